"""Published values for comparison with measured ones.

A run is compared with a paper only if its model is one of the paper's, by name and by shape, its corpus is declared to be
the paper's and has the same number of sequences, uncut, and tokens were masked as in the paper. Otherwise a note says why
there is no comparison. The numbers themselves are in `published.csv`, as the papers print them.
"""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import pyarrow as pa

from normscope.experiments.base import ModelFacts, RunFacts
from normscope.experiments.tables import Table, finite_rows
from normscope.models.source import short_name
from normscope.scopes import scopes_of

WIKIPEDIA, SST2, MNLI, CONLL = "wikipedia", "sst2", "mnli", "conll"

SEQUENCES = {WIKIPEDIA: 992, SST2: 872, MNLI: 1000, CONLL: 1000}
"""Number of sequences of each corpus that the papers analysed (2021, Table 1)."""

LONGEST = {WIKIPEDIA: 128}
"""Maximum number of tokens of a sequence. The authors do not cut those of RoBERTa, which has a tokenizer of its own."""

SHAPES = {
    "bert-large": ("bert", 24, 1024, 30522),
    "bert-base": ("bert", 12, 768, 30522),
    "multiberts": ("bert", 12, 768, 30522),
    "bert-medium": ("bert", 8, 512, 30522),
    "bert-small": ("bert", 4, 512, 30522),
    "bert-mini": ("bert", 4, 256, 30522),
    "bert-tiny": ("bert", 2, 128, 30522),
    "roberta-large": ("roberta", 24, 1024, 50265),
    "roberta-base": ("roberta", 12, 768, 50265),
}
"""Type, layers, width and vocabulary of the papers' models."""

TITLES = {
    "bert-large": "BERT-large",
    "bert-base": "BERT-base",
    "multiberts": "MultiBERTs",
    "bert-medium": "BERT-medium",
    "bert-small": "BERT-small",
    "bert-mini": "BERT-mini",
    "bert-tiny": "BERT-tiny",
    "roberta-large": "RoBERTa-large",
    "roberta-base": "RoBERTa-base",
}
"""Names of the models in the papers."""

NAMES = {
    r"bert-large-uncased": "bert-large",
    r"bert-base-uncased": "bert-base",
    r"multiberts-seed_\d+": "multiberts",
    r"bert-(medium|small|mini|tiny)": "bert-{}",
    r"bert_uncased_L-8_H-512_A-8": "bert-medium",
    r"bert_uncased_L-4_H-512_A-8": "bert-small",
    r"bert_uncased_L-4_H-256_A-4": "bert-mini",
    r"bert_uncased_L-2_H-128_A-2": "bert-tiny",
    r"roberta-(large|base)": "roberta-{}",
}
"""Names of the models on the hub, without the owner: the small ones as the authors loaded them and as first published."""

_CHAIN = tuple(scopes_of(("Attn", "Res", "Ln", "Ff", "Res", "Ln")))
"""The scopes of the papers' models."""


class _Key(NamedTuple):
    """What a row of `published.csv` is about; `component` is a scope, a pair of scopes (`AttnW-Attn`) or a method."""

    experiment: str
    quantity: str
    model: str
    corpus: str
    component: str
    layer: int | None


@cache
def _values() -> Mapping[_Key, float]:
    """All rows of `published.csv`."""
    text = (files("normscope.experiments") / "published.csv").read_text(encoding="utf-8")
    values: dict[_Key, float] = {}
    for row in csv.DictReader(text.splitlines()):
        layer = int(row["layer"]) if row["layer"] else None
        key = _Key(row["experiment"], row["quantity"], row["model"], row["corpus"], row["component"], layer)
        values[key] = float(row["value"])
    return values


@dataclass(frozen=True)
class Paper:
    """The published values for a model on a corpus, or the reason why a run has none to be compared with."""

    model: str = ""
    corpus: str = ""
    why_not: str = ""

    @property
    def notes(self) -> list[str]:
        return [f"No published values: {self.why_not}"] if self.why_not else []

    def value(self, experiment: str, quantity: str, component: str = "", layer: int | None = None) -> float | None:
        """The value as the paper prints it (a mixing ratio in per cent); `None` if it has none."""
        return _values().get(_Key(experiment, quantity, self.model, self.corpus, component, layer))


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
    """Why a corpus is not the one that it is declared to be, as far as its sequences show."""
    expected = SEQUENCES.get(facts.corpus)
    longest = LONGEST.get(facts.corpus)
    if not facts.corpus:
        return "the corpus is not said to be one of the papers' (--corpus-name)."
    if expected is None:
        return f"the papers have no corpus {facts.corpus!r} (they have {', '.join(SEQUENCES)})."
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
    if shape != SHAPES[known]:
        return Paper(
            why_not=f"the model is called {name!r}, but it is {_described(shape)}; {known} is "
            f"{_described(SHAPES[known])}."
        )
    return Paper(known)


def _named(name: str) -> str | None:
    for pattern, known in NAMES.items():
        match = re.fullmatch(pattern, name)
        if match:
            return known.format(*match.groups())
    return None


def _described(shape: tuple[str, int, int, int]) -> str:
    kind, layers, width, vocabulary = shape
    return f"a {kind} of {layers} layers, width {width} and {vocabulary} tokens"


def nearest_paper(facts: RunFacts, experiment: str) -> Paper | None:
    """The published model and corpus to print next to a run: its own if there are values for it, else BERT-base on
    Wikipedia. `None` for a block of other components than the papers' models have."""
    if tuple(facts.model.scopes) != _CHAIN:
        return None
    known = {(key.model, key.corpus) for key in _values() if key.experiment == experiment}
    model = paper_of_model(facts.model).model
    candidates = ((model, facts.corpus), (model, WIKIPEDIA))
    return Paper(*next((candidate for candidate in candidates if candidate in known), ("bert-base", WIKIPEDIA)))


def agreement(tables: Sequence[Table]) -> str | None:
    """A sentence about the distance of measured values from published ones; `None` where there are none to compare.

    In every table with a column `published`, that column is compared with the first column of measured numbers.
    """
    differences: list[float] = []
    for table in tables:
        if "published" not in table.column_names:
            continue
        numbers = [field.name for field in table.schema if pa.types.is_floating(field.type)]
        measured = next((name for name in numbers if not name.startswith("published")), None)
        if measured is not None:
            pairs = [(row[measured], row["published"]) for row in finite_rows(table)]
            differences += [abs(first - second) for first, second in pairs if None not in (first, second)]
    if not differences:
        return None
    values = "value" if len(differences) == 1 else "values"
    return (
        f"{len(differences)} published {values} next to measured ones: they differ by "
        f"{statistics.median(differences):.3g} (median) and {max(differences):.3g} at most."
    )
