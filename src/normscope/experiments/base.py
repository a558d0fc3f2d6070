"""What an experiment is: it says what it needs, turns each analysed sequence into a partial result, and finishes the sum.

This is the seam that every way of running goes through: a list in memory, the corpus run on one machine, or any other
engine. It knows no files and no processes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from normscope.analysis import Analysis
from normscope.errors import InputError, listing
from normscope.experiments.arrow import Table
from normscope.experiments.partial import Partial, merged
from normscope.measures import Measure
from normscope.scopes import Scope

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from normscope.analyzer import Analyzer
    from normscope.experiments.links import AlignedPair

_Result = TypeVar("_Result")

CLS, SEP, MASK = "[CLS]", "[SEP]", "[MASK]"
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
    """What experiments may know of a model: its name, layers and scopes, which tokens play which special role, and its width
    and the size of its vocabulary (0 where they are not known)."""

    name: str
    layers: tuple[int, ...]
    scopes: tuple[Scope, ...]
    model_type: str = ""
    roles: Mapping[str, str] = field(default_factory=lambda: dict(_ROLES))
    width: int = 0
    vocabulary: int = 0

    @classmethod
    def of_analysis(cls, analysis: Analysis) -> ModelFacts:
        scopes = tuple(Scope(str(scope)) for scope in analysis.dataset["scope"].values)
        attributes = analysis.attrs
        return cls(
            str(attributes.get("model", "")), tuple(analysis.layers), scopes, str(attributes.get("model_type", ""))
        )

    @classmethod
    def of_analyzer(cls, analyzer: Analyzer) -> ModelFacts:
        roles = dict(_ROLES)
        tokenizer = analyzer.tokenizer
        for attribute, role in (
            ("bos_token", CLS),
            ("cls_token", CLS),
            ("eos_token", SEP),
            ("sep_token", SEP),
            ("mask_token", MASK),
        ):
            token = getattr(tokenizer, attribute, None)
            if token is not None:
                roles[str(token)] = role
        config = analyzer.model.config
        text = config.get_text_config()
        sizes = int(getattr(text, "hidden_size", 0) or 0), int(getattr(text, "vocab_size", 0) or 0)
        model_type = str(config.model_type)
        return cls(analyzer.name, tuple(analyzer.layers), tuple(analyzer.scopes), model_type, roles, *sizes)


@dataclass(frozen=True)
class Needs:
    """What an experiment asks of every sequence: measures, and whether tokens are masked first, as in the papers.

    `labels`, `gold` and `evidence` say that the corpus must have named entities, word alignments or known evidence;
    `corpus`, that there must be one. With `asks_model` the experiment has nothing measured and asks the model itself.
    """

    measures: tuple[Measure[Any, Any], ...] = ()
    masked: bool = False
    labels: bool = False
    gold: bool = False
    corpus: bool = True
    evidence: bool = False
    asks_model: bool = False


@dataclass(frozen=True)
class Observation:
    """One sequence as experiments see it: its analysis, and what an analysis does not hold.

    `results` are those of the measures it asked for; `entities` has for every token the number of its entity, -1 outside;
    `pair` has the words and the gold alignment of a sentence pair. `number` is the sequence's place in the corpus, and
    `seed` that of the run.
    """

    analysis: Analysis
    number: int = 0
    token_ids: np.ndarray | None = None
    results: Mapping[Measure[Any, Any], Any] = field(default_factory=dict[Measure[Any, Any], Any])
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

    def result(self, measure: Measure[Any, _Result]) -> _Result:
        """The result of a measure that the experiment said it needs."""
        if measure not in self.results:
            raise InputError(
                f"This experiment needs {type(measure).__name__}, which an analysis alone does not hold. "
                f"Run it on texts: normscope.experiments.run([...], model=..., corpus=...)."
            )
        return self.results[measure]


@dataclass(frozen=True)
class RunFacts:
    """What the finish of an experiment may know of the run: model, corpus as the papers call it, seed, token frequency ranks
    by vocabulary id (`None`: counted in the corpus), the number of sequences, and the experiments that saw masked tokens."""

    model: ModelFacts
    corpus: str = ""
    seed: int = 0
    ranks: Mapping[int, int] | None = None
    sequences: int = 0
    masked: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Outcome:
    """Finished tables (tidy, columns documented by the experiment), figures, which are drawn when called, and notes."""

    tables: dict[str, Table]
    figures: dict[str, Callable[[], Figure]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Experiment(ABC):
    """One experiment of the papers. Its options are its fields."""

    name: ClassVar[str]
    paper: ClassVar[str]
    shows: ClassVar[str]
    summary: ClassVar[str]
    columns: ClassVar[Mapping[str, str]]
    """What every column of the tables means."""

    @abstractmethod
    def needs(self, model: ModelFacts) -> Needs:
        """What is asked of every sequence."""

    @abstractmethod
    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        """What one sequence adds."""

    @abstractmethod
    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        """Tables and figures from the sum of all partial results."""

    def check(self, analyzer: Analyzer) -> None:  # noqa: B027  (most take any model)
        """Refuse a model that the experiment cannot be run on, before any work begins."""

    def from_model(self, analyzer: Analyzer) -> Partial:
        """What the model adds by itself, once."""
        return Partial()

    def options(self) -> dict[str, Any]:
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
        return self.finish(partial, RunFacts(model, corpus, seed, ranks, len(observations)))


def _observation(item: Analysis | Observation, number: int) -> Observation:
    return item if isinstance(item, Observation) else Observation(item, number)


def check_choice(experiment: str, option: str, value: object, choices: Sequence[object]) -> None:
    """Refuse a value that an option does not have."""
    if value not in choices:
        raise InputError(f"{experiment}: {option} is one of {listing(choices)}, not {value!r}.")
