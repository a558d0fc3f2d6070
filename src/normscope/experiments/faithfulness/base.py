"""What a trial is: an experiment that asks the model itself, sequence by sequence, instead of reading an analysis.

Here is also what trials share: which methods are tried, by their names, and what each costs in model calls.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from normscope.corpora.item import Item
from normscope.errors import InputError, listing
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation
from normscope.experiments.partial import Partial

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer
    from normscope.methods import Gives, Method

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

    def needs(self, model: ModelFacts) -> Needs:
        return Needs(evidence=self.has_evidence, asks_model=True)

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        raise InputError(
            f"{self.name} asks the model itself, which an analysis is not. Run it on texts: "
            f"normscope.experiments.run([{self.name!r}], model=..., corpus=...)."
        )

    @abstractmethod
    def examine(self, analyzer: Analyzer, item: Item, seed: int) -> Partial:
        """What one sequence adds."""

    @abstractmethod
    def calls(self, model: ModelFacts, length: int) -> int:
        """About how many of its units of cost a sequence of so many tokens takes."""


def method_names(experiment: str, asked: Sequence[str], gives: Gives | None = None) -> tuple[str, ...]:
    """The methods asked for, each known and once; `all` stands for all of them."""
    from normscope.methods import methods  # noqa: PLC0415  (methods know the analyzer, which experiments do not)

    if not asked:
        raise InputError(f"{experiment}: name at least one method, or all.")
    names = [each.name for each in methods(gives)] if ALL in asked else list(asked)
    for name in names:
        named_method(name, gives)
    if len(set(names)) < len(names):
        raise InputError(f"{experiment}: each method is named once, not as in {listing(names)}.")
    return tuple(names)


def named_method(text: str, gives: Gives | None = None) -> Method:
    """The method that a text names, with options where it has them: `integrated-gradients:steps=20`."""
    from normscope.methods import method  # noqa: PLC0415

    name, *pairs = text.split(":")
    plain = method(name, gives)
    options: dict[str, Any] = {}
    for pair in pairs:
        option, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"An option of a method is METHOD:OPTION=VALUE, not {text!r}.")
        whole = isinstance(plain.options.get(option), int)
        if whole and not value.isdecimal():
            raise InputError(f"The option {option!r} of {name!r} is a whole number, not {value!r}.")
        options[option] = int(value) if whole else value
    return method(name, gives, **options) if options else plain


_PASSES = {"pull-back": 2, "alti-logit": 3, "gradient-norm": 3, "gradient-x-input": 3, "random": 1}
_PER_TOKEN = ("decompx", "leave-one-out", "norms", "propagated", "value-zeroing")


def calls_of(name: str, length: int) -> int:
    """About how many model calls a method's attribution of one prediction costs."""
    method = named_method(name)
    if method.name in _PER_TOKEN:
        return length
    return 3 * int(method.options["steps"]) if "steps" in method.options else _PASSES.get(method.name, 2)
