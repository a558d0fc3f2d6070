"""What a trial is: an experiment that asks the model itself, sequence by sequence, instead of reading an analysis.

Here is also what trials share: which methods are tried, by their names, and what each costs in model calls.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from normscope.corpora.item import Item
from normscope.errors import HeadError, InputError, listing
from normscope.experiments import tables
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation
from normscope.experiments.partial import Partial
from normscope.experiments.tables import Row
from normscope.families.heads import head_of, is_bare

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer
    from normscope.methods import Gives, Method

PREDICTIONS = ("sequence-classification", "masked-lm", "causal-lm")
"""The tasks of models whose predictions are tried."""

ALL = "all"
"""Stands for every method there is."""

RESAMPLES, CONFIDENCE = 2000, 0.95
"""Of the bootstrap."""


@dataclass(frozen=True)
class Trial(Experiment):
    """An experiment that asks the model itself."""

    unit: ClassVar[str] = "model calls"
    """What its cost is counted in."""
    has_evidence: ClassVar[bool] = False
    """Whether it needs rows with known evidence."""
    tasks: ClassVar[tuple[str, ...]] = ()
    """The tasks of the models that it takes, `none` being a bare model; any model if there are none."""

    def check(self, analyzer: Analyzer) -> None:
        if not self.tasks:
            return
        task, two_stacks = task_of(analyzer), analyzer.family.encoder is not None
        if task not in self.tasks or two_stacks:
            has = "no task head" if task == "none" else f"a head for {task}"
            raise InputError(
                f"{self.name} needs a model for {', '.join(self.tasks)} with one stack of layers; {analyzer.name} has {has}"
                f"{', an encoder and a decoder' if two_stacks else ''}."
            )

    def needs(self, model: ModelFacts) -> Needs:
        return Needs(evidence=self.has_evidence, asks_model=True)

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        raise InputError(
            f"{self.name} asks the model itself, which an analysis is not. Run it on texts: "
            f"normscope.runs.run([{self.name!r}], model=..., corpus=...)."
        )

    @abstractmethod
    def examine(self, analyzer: Analyzer, item: Item, seed: int) -> Partial:
        """What one sequence adds."""

    @abstractmethod
    def calls(self, model: ModelFacts, length: int) -> int:
        """About how many of its units of cost a sequence of so many tokens takes."""


@dataclass(frozen=True)
class MethodTrial(Trial):
    """A trial of methods: of those named, or of all."""

    methods: tuple[str, ...] = (ALL,)

    def __post_init__(self) -> None:
        names = self.names
        if not names:
            raise InputError(f"{self.name}: name at least one method, or all.")
        for name in names:
            named_method(name)
        if len(set(names)) < len(names):
            raise InputError(f"{self.name}: each method is named once, not as in {listing(names)}.")

    @property
    def names(self) -> tuple[str, ...]:
        """The methods asked for; `all` stands for all of them."""
        from normscope.methods import available_methods  # noqa: PLC0415  (methods know the analyzer, which experiments do not)

        return tuple(each.name for each in available_methods()) if ALL in self.methods else self.methods

    def calls(self, model: ModelFacts, length: int) -> int:
        return sum(named_method(name).calls(length) for name in self.names)

    @classmethod
    def sentence(cls, rows: list[Row]) -> str:
        measure = rows[0]["measure"]
        means = [row for row in tables.rows_with(rows, "mean") if row["measure"] == measure]
        low, high = (choose(means, key=lambda row: row["mean"]) for choose in (min, max))
        return f"{measure}: from {low['mean']:.3g} ({low['method']}) to {high['mean']:.3g} ({high['method']})."


def task_of(analyzer: Analyzer) -> str:
    """The task of a model's head; `none` for a bare model."""
    try:
        return head_of(analyzer.model).task
    except HeadError:
        if is_bare(analyzer.model):
            return "none"
        raise


def named_method(text: str, gives: Gives | None = None) -> Method:
    """The method that a text names, with options where it has them: `integrated-gradients:steps=20`."""
    from normscope.methods import read_method  # noqa: PLC0415

    name, *pairs = text.split(":")
    return read_method(name, pairs, gives)
