"""Published values, to stand beside measured ones: only where the model is that of a paper by name and by shape, the corpus
is said to be that of the paper and has its sequences, whole, and tokens were masked as there. Otherwise there is a note that
says why not."""

from __future__ import annotations

import re
from dataclasses import dataclass

from normscope.experiments import published_values as values
from normscope.experiments.base import ModelFacts, RunFacts
from normscope.experiments.published_values import CONLL, MNLI, SST2, WIKIPEDIA
from normscope.models.source import short_name

__all__ = ["CONLL", "MNLI", "SST2", "WIKIPEDIA", "Paper", "paper_of", "paper_of_model"]


@dataclass(frozen=True)
class Paper:
    """The published values that a run may be compared with: those of a model on a corpus, or none, and why none."""

    model: str = ""
    corpus: str = ""
    why_not: str = ""

    @property
    def notes(self) -> list[str]:
        """What is to be said about published values."""
        return [f"No published values: {self.why_not}"] if self.why_not else []

    def mixing_ratio(self, scope: str, statistic: str = "mean") -> float | None:
        """As a fraction."""
        known = values.MIXING.get((self.model, self.corpus), {}).get(statistic)
        return (
            None
            if known is None or scope not in values.MIXING_SCOPES
            else _at(values.MIXING_SCOPES, scope, known) / 100
        )

    def mixing_ratio_note(self) -> list[str]:
        note = values.MIXING_NOTES.get((self.model, self.corpus))
        return [] if note is None else [note]

    def mixing_ratio_of_layer(self, scope: str, layer: int) -> float | None:
        known = values.MIXING_LAYERS.get((self.model, self.corpus))
        return None if known is None or scope != "AttnResLn" or layer > len(known) else known[layer - 1] / 100

    def mixing_depth(self, scope: str) -> float | None:
        return values.MIXING_DEPTH.get((self.model, self.corpus)) if scope == "AttnResLn" else None

    def mixing_frequency(self, scope: str, *, special: bool, deviation: bool = False) -> float | None:
        known = (values.FREQUENCY_DEVIATION if deviation else values.FREQUENCY).get((self.model, self.corpus))
        if known is None or scope not in values.FREQUENCY_SCOPES:
            return None
        return _at(values.FREQUENCY_SCOPES, scope, known[0 if special else 1])

    def expansion_rate(self) -> tuple[float | None, float | None, float | None]:
        """Mean, minimum and maximum over layers."""
        return values.EXPANSION.get(self.model, (None, None, None))

    def similarity(self, first: str, second: str) -> float | None:
        return values.SIMILARITY.get((self.model, self.corpus), {}).get((first, second))

    def similarity_of_layer(self, first: str, second: str, layer: int) -> float | None:
        if (first, second) != ("AttnResLn", "AttnResLnFf"):
            return None
        return values.FEED_FORWARD_LAYERS.get((self.model, self.corpus, layer))

    def outlier_removal(self, layer: int) -> tuple[float | None, float | None]:
        return values.REMOVED.get((self.model, self.corpus, layer), (None, None))

    def significant(self, experiment: str, layer: int) -> bool | None:
        """Whether the paper found the group's pairs amplified in a layer."""
        layers = values.SIGNIFICANT.get((experiment, self.model, self.corpus))
        return None if layers is None else layer in layers


def paper_of(facts: RunFacts, experiment: str, *, masked: bool) -> Paper:
    """What a run of an experiment may be compared with; `masked` is whether the paper masks tokens for it."""
    paper = paper_of_model(facts.model)
    if paper.why_not:
        return paper
    why_not = _corpus_differs(facts, paper.model)
    if facts.conventions:
        why_not = f"the run has {facts.conventions}, and the paper has not."
    if not why_not and (experiment in facts.masked) != masked:
        done = ("tokens were masked", "as they are not") if not masked else ("no tokens were masked", "as they are")
        why_not = f"{done[0]}, {done[1]} in the paper."
    return Paper(why_not=why_not) if why_not else Paper(paper.model, facts.corpus)


def _corpus_differs(facts: RunFacts, model: str) -> str:
    """Why a corpus is not the one that it is said to be, as far as its sequences show."""
    expected = values.SEQUENCES.get(facts.corpus)
    longest = values.LONGEST.get(facts.corpus)
    if not facts.corpus:
        return "the corpus is not said to be one of the papers' (--corpus-name)."
    if expected is None:
        return f"the papers have no corpus {facts.corpus!r} (they have {', '.join(values.SEQUENCES)})."
    if facts.sequences != expected:
        return f"{facts.sequences} sequences were analysed, and {expected} in the paper."
    if facts.too_long:
        return (
            f"sequences were cut or left out at {facts.longest} tokens ({facts.too_long} of them), and none in the paper "
            f"(--max-tokens)."
        )
    if facts.corpus == WIKIPEDIA and facts.format != "clark":
        return (
            f"the papers' {WIKIPEDIA} is that of Clark et al. (2019), lists of tokens in two segments (--format clark), and "
            f"this corpus is {facts.format or 'another'}."
        )
    if longest is not None and facts.longest > longest and not model.startswith("roberta"):
        return f"the longest sequence has {facts.longest} tokens, and at most {longest} in the paper."
    return ""


def paper_of_model(model: ModelFacts) -> Paper:
    """The papers' model that this one is, by its name and by its shape."""
    name = short_name(model.name)
    known = _named(name)
    shape = (model.model_type, len(model.layers), model.width, model.vocabulary)
    if known is None:
        return Paper(why_not=f"{name!r} is not the name of a model of the papers.")
    if not model.width:
        return Paper(why_not="the width and the vocabulary of the model are not known here.")
    if shape != values.SHAPES[known]:
        return Paper(
            why_not=f"the model is called {name!r}, but it is {_described(shape)}; {known} is "
            f"{_described(values.SHAPES[known])}."
        )
    return Paper(known)


def _named(name: str) -> str | None:
    for pattern, known in values.NAMES.items():
        match = re.fullmatch(pattern, name)
        if match:
            return known.format(*match.groups())
    return None


def _described(shape: tuple[str, int, int, int]) -> str:
    kind, layers, width, vocabulary = shape
    return f"a {kind} of {layers} layers, width {width} and {vocabulary} tokens"


def _at(scopes: tuple[str, ...], scope: str, known: tuple[float, ...]) -> float:
    return known[scopes.index(scope)]
