"""The base class of experiments.

An experiment declares what it needs (`needs`), maps each analysed sequence to a partial result (`observe`), and turns the
sum of all partial results into tables and figures (`finish`). Its `finding` and `captions` describe these in words. A list
in memory, a corpus run on one machine and any other engine use this interface; it knows no files and no processes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial as bind
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from normscope.chain.measure import AnyMeasure, Measure
from normscope.errors import InputError, UnsupportedArchitectureError, listing
from normscope.experiments.declared import DeclaredExperiment
from normscope.experiments.partial import Partial, merged
from normscope.experiments.tables import Row, Table, finite_rows
from normscope.models.source import short_name
from normscope.results.analysis import Analysis
from normscope.scopes import ATTENTION_WEIGHTS, Scope

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from normscope.analyzer import Analyzer
    from normscope.experiments.links import AlignedPair

_Result = TypeVar("_Result")

CLS, SEP, MASK = "[CLS]", "[SEP]", "[MASK]"
FIRST = "first"
"""The first token of a causal model: all that it reads is itself, and the others use it as a sink for attention."""
_ROLES = {
    "[CLS]": CLS,
    "<s>": CLS,
    "<cls>": CLS,
    "[SEP]": SEP,
    "</s>": SEP,
    "<sep>": SEP,
    "[MASK]": MASK,
    "<mask>": MASK,
}


@dataclass(frozen=True)
class ModelFacts:
    """What experiments may know of a model: its name, layers and scopes, which tokens play which special role, its width
    and the size of its vocabulary (0 where they are not known), whether a token sees those before it alone, and which of two
    stacks is looked at."""

    name: str
    layers: tuple[int, ...]
    scopes: tuple[Scope, ...]
    model_type: str = ""
    roles: Mapping[str, str] = field(default_factory=lambda: dict(_ROLES))
    width: int = 0
    vocabulary: int = 0
    causal: bool = False
    stack: str = ""

    @classmethod
    def of_analysis(cls, analysis: Analysis) -> ModelFacts:
        scopes = tuple(Scope(str(scope)) for scope in analysis.dataset["scope"].values)
        attributes = analysis.attrs
        maps = [analysis.dataset[name] for name in ("map", "head_map") if name in analysis.dataset]
        return cls(
            str(attributes.get("model", "")),
            tuple(analysis.layers),
            scopes,
            str(attributes.get("model_type", "")),
            causal=any(bool(values.isnull().any()) for values in maps),
        )

    @classmethod
    def of_analyzer(cls, analyzer: Analyzer, stack: str | None = None) -> ModelFacts:
        config = analyzer.model.config
        text = config.get_text_config()
        roles = _ROLES | _roles(analyzer)
        sizes = int(getattr(text, "hidden_size", 0) or 0), int(getattr(text, "vocab_size", 0) or 0)
        model_type = str(config.model_type)
        scopes, causal = tuple(analyzer.scopes), analyzer.family.stack.causal
        return cls(analyzer.name, tuple(analyzer.layers), scopes, model_type, roles, *sizes, causal, stack or "")


def _roles(analyzer: Analyzer) -> dict[str, str]:
    """The roles of special tokens by their names; without a tokenizer, tokens are called by their ids."""
    tokenizer, config = analyzer.tokenizer, analyzer.model.config
    roles: dict[str, str] = {}
    for name, role in (("bos", CLS), ("cls", CLS), ("eos", SEP), ("sep", SEP), ("mask", MASK)):
        known = getattr(config, f"{name}_token_id", None) if tokenizer is None else None
        token = getattr(tokenizer, f"{name}_token", known)
        for item in token if isinstance(token, list) else [token]:
            if item is not None:
                roles[str(item)] = role
    return roles


@dataclass(frozen=True)
class Needs:
    """What an experiment needs of every sequence: measures, and whether tokens are masked first, as in the papers.

    `labels`, `gold`, `evidence`, `compared` and `asked` require a corpus with named entities, word alignments, known
    evidence, pairs of texts to compare or questions about sentences; `corpus` requires one at all. With `asks_model` the
    experiment needs no measures and runs the model itself.
    """

    measures: tuple[AnyMeasure, ...] = ()
    masked: bool = False
    labels: bool = False
    gold: bool = False
    corpus: bool = True
    evidence: bool = False
    asks_model: bool = False
    compared: bool = False
    asked: bool = False


@dataclass(frozen=True)
class Observation:
    """One sequence as experiments see it: its analysis, and what an analysis does not hold.

    `results` are those of the requested measures; `entities` has for every token the number of its entity, -1 outside;
    `pair` has the words and the gold alignment of a sentence pair. `number` is the sequence's index in the corpus, and
    `seed` that of the run.
    """

    analysis: Analysis
    number: int = 0
    token_ids: np.ndarray | None = None
    results: Mapping[AnyMeasure, Any] = field(default_factory=dict[AnyMeasure, Any])
    entities: np.ndarray | None = None
    pair: AlignedPair | None = None
    seed: int = 0

    @property
    def tokens(self) -> list[str]:
        return [str(token) for token in self.analysis.dataset["query_token"].values]

    @property
    def special(self) -> np.ndarray:
        return np.asarray(self.analysis.dataset["query_special"].values, bool)

    @property
    def words(self) -> np.ndarray:
        return np.asarray(self.analysis.dataset["query_word"].values)

    def map(self, scope: str) -> np.ndarray:
        """`[layer, query, key]` in float64."""
        return self.analysis.map(scope).values.astype(np.float64)

    def head_maps(self, scope: str) -> np.ndarray:
        """`[layer, head, query, key]` of the block's own attention."""
        return self.analysis.map(scope, heads=True).values[..., : len(self.tokens)]

    def attention_weights(self) -> np.ndarray:
        """`[layer, head, query, key]`: weights between 0 and 1; refused if a layer has weights of either sign."""
        weights = self.head_maps(ATTENTION_WEIGHTS)
        signed = [str(layer) for layer, maps in enumerate(weights, start=1) if bool((maps < 0).any())]
        if signed:
            raise UnsupportedArchitectureError(
                f"This experiment is about attention weights between 0 and 1, but layer {', '.join(signed)} of this model "
                f"mixes tokens without a softmax: its weights are effective weights, of either sign. Experiments on norms "
                f"(mixing-ratio, scope-similarity) take such models."
            )
        return weights

    def result(self, measure: Measure[Any, _Result]) -> _Result:
        """The result of a measure that the experiment needs."""
        if measure not in self.results:
            raise InputError(
                f"This experiment needs {type(measure).__name__}, which an analysis alone does not hold. "
                f"Run it on texts: normscope.runs.run([...], model=..., corpus=...)."
            )
        return self.results[measure]


@dataclass(frozen=True)
class Approximated:
    """How the maps of a run were approximated, and what they reached on sampled queries, in the worst sequence and layer."""

    name: str
    spearman: float
    error: float

    columns: ClassVar[dict[str, str]] = {
        "approximate": "how the maps from the feed-forward on were approximated",
        "approximate_spearman": "their lowest rank correlation with exact ones, on sampled queries of every layer",
    }

    def __str__(self) -> str:
        return (
            f"Approximate maps from the feed-forward on ({self.name}): on sampled queries, rank correlation with exact ones "
            f"at least {self.spearman:.4f}, median error of a cell at most {100 * self.error:.1f} %."
        )

    def labelled(self, table: Table) -> Table:
        """The table with columns that name the approximation and its error."""
        for name, value in zip(self.columns, (self.name, self.spearman), strict=True):
            table = table.append_column(name, [[value] * len(table)])
        return table


@dataclass(frozen=True)
class RunFacts:
    """What is known about the run when an experiment finishes: model, corpus as the papers call it, seed, token frequency
    ranks by vocabulary id (`None`: counted in the corpus), the number of sequences, the experiments that saw masked tokens,
    where the sequences come from, how maps were approximated, if they were, the format of the corpus, the length of its
    longest sequence in tokens, how many of its sequences were cut or left out as too long, and the conventions of the
    decomposition that are not the papers', if any."""

    model: ModelFacts
    corpus: str = ""
    seed: int = 0
    ranks: Mapping[int, int] | None = None
    sequences: int = 0
    masked: frozenset[str] = frozenset()
    source: str = ""
    approximated: Approximated | None = None
    format: str = ""
    longest: int = 0
    too_long: int = 0
    conventions: str = ""

    @property
    def model_label(self) -> str:
        """The short name of the model, with the stack if it has two."""
        return f"{short_name(self.model.name)}{f' ({self.model.stack})' if self.model.stack else ''}"

    def caption(self, experiment: str) -> str:
        """The model, the corpus, and how much of it, for the title of a figure."""
        model = self.model_label
        if not self.sequences:
            return model
        corpus = " ".join(filter(None, (short_name(self.source or self.corpus), f"({self.sequences:,} sequences)")))
        masked = ", 12 % of tokens masked" if experiment in self.masked else ""
        return f"{model} on {corpus}{masked}{'' if self.approximated is None else ', approximate maps'}"


@dataclass(frozen=True)
class Outcome:
    """Finished tables (tidy, columns documented by the experiment), figures, which are drawn when called, and notes.

    `printed` creates the output of a run when it ends: a table as in the paper, for `rich`.
    """

    tables: dict[str, Table]
    figures: dict[str, Callable[[], Figure]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    printed: Callable[[], RenderableType] | None = None


@dataclass(frozen=True)
class Experiment(DeclaredExperiment, ABC):
    """One experiment of the papers. Its options are its fields."""

    columns: ClassVar[Mapping[str, str]]
    """What every column of the tables means."""
    captions: ClassVar[Mapping[str, str]] = {}
    """What its figures show, by name. An entry also covers the figures whose names begin with it and a hyphen, since some
    are drawn once for each kind or question; the longest entry wins."""
    across_caption: ClassVar[str] = ""
    """The caption of a figure over several models, for experiments that have one."""

    @abstractmethod
    def needs(self, model: ModelFacts) -> Needs:
        """What the experiment needs of every sequence."""

    @abstractmethod
    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        """The partial result of one sequence."""

    @abstractmethod
    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        """Tables and figures from the sum of all partial results."""

    def conclude(self, partial: Partial, facts: RunFacts) -> Outcome:
        """`finish`, with the model and the corpus named in every figure, and approximate maps labelled everywhere."""
        outcome = self.finish(partial, facts)
        if facts.approximated is not None:
            labelled = {name: facts.approximated.labelled(table) for name, table in outcome.tables.items()}
            outcome = replace(outcome, tables=labelled, notes=[str(facts.approximated), *outcome.notes])
        if not self.needs(facts.model).corpus:
            facts = replace(facts, sequences=0)
        caption = facts.caption(self.name)
        return replace(outcome, figures={name: bind(_named, draw, caption) for name, draw in outcome.figures.items()})

    @property
    def ranks_only(self) -> bool:
        """Whether its tables depend on the order of the values of maps alone, so that maps may be approximate."""
        return bool(self.rank_options) and all(tuple(getattr(self, name)) == v for name, v in self.rank_options.items())

    def check(self, analyzer: Analyzer) -> None:
        """Raise for a model that the experiment cannot be run on, before any work begins."""

    def from_model(self, analyzer: Analyzer) -> Partial:
        """The partial result that depends on the model alone, once for a run."""
        return Partial()

    @classmethod
    def sentence(cls, rows: list[Row]) -> str | None:
        """The finding of the first table of a run, in one sentence with plain numbers.

        Numbers that are not finite are `None` in `rows`. Raises where a number or a column is missing.
        """
        del rows
        return None

    @classmethod
    def finding(cls, tables: Sequence[Table]) -> str | None:
        """The sentence about a finished run, from its tables in the order of the manifest.

        `None` where there is no data, and where tables of older versions lack columns that the sentence needs.
        """
        if not tables:
            return None
        try:
            return cls.sentence(finite_rows(tables[0]))
        except (KeyError, ValueError, StopIteration, TypeError, IndexError, ZeroDivisionError):
            return None

    @classmethod
    def caption(cls, figure: str) -> str:
        """The caption of a figure; for one without a caption, its name as words."""
        known = [name for name in cls.captions if figure == name or figure.startswith(f"{name}-")]
        return cls.captions[max(known, key=len)] if known else name_as_words(figure)

    def options(self) -> dict[str, object]:
        return {option.name: getattr(self, option.name) for option in fields(self)}

    def over(
        self,
        analyses: Iterable[Analysis | Observation],
        *,
        corpus: str = "",
        seed: int = 0,
        ranks: Mapping[int, int] | None = None,
    ) -> Outcome:
        """The experiment on analyses in memory."""
        observations = [_observation(item, number) for number, item in enumerate(analyses)]
        if not observations:
            raise InputError(f"{self.name} was given no analyses: give at least one.")
        model = ModelFacts.of_analysis(observations[0].analysis)
        partial = merged(self.observe(observation, model) for observation in observations)
        return self.conclude(partial, RunFacts(model, corpus, seed, ranks, len(observations)))


def _named(draw: Callable[[], Figure], caption: str) -> Figure:
    figure = draw()
    title = "\n".join(filter(None, (figure.get_suptitle(), caption)))
    figure.suptitle(title, fontsize=9, parse_math=False, wrap=True)
    return figure


def _observation(item: Analysis | Observation, number: int) -> Observation:
    return item if isinstance(item, Observation) else Observation(item, number)


def name_as_words(name: str) -> str:
    """The name of a figure as the beginning of a sentence."""
    words = name.replace("-", " ").replace("_", " ")
    return words[:1].upper() + words[1:]


def check_choice(experiment: str, option: str, value: object, choices: Sequence[object]) -> None:
    """Raise for a value that is not one of an option's choices."""
    if value not in choices:
        raise InputError(f"{experiment}: {option} is one of {listing(choices)}, not {value!r}.")
