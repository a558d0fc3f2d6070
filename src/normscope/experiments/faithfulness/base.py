"""The base class of trials: experiments that run the model themselves, sequence by sequence, instead of reading an analysis.

Trials of methods share the choice of methods by name, their cost in model calls, and the prediction of a text that they
explain: a classifier's own label, the tag that a tagger gives to a random token (of a named entity, where the corpus knows
them), the token that a masked model predicts at a random position, or that a causal model predicts after one; the last state
itself where a model has no head.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from normscope.corpora.item import Item
from normscope.errors import HeadError, InputError, NormscopeError, UnsupportedArchitectureError, listing
from normscope.experiments import declared, tables
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation, check_choice
from normscope.experiments.partial import Partial, Rows, merged
from normscope.experiments.tables import Row, Table
from normscope.explain.pulling import PullRequest
from normscope.explain.question import DirectionQuestion, LogitQuestion, Question, Wanted
from normscope.explain.task import Asked
from normscope.explain.weightings import can_share, shares_by_weights
from normscope.families.heads import head_of, is_bare
from normscope.inputs import TokenSequence
from normscope.inputs.text import cut
from normscope.methods.declared import PullBack
from normscope.options import Objective, Weights, weights_of
from normscope.results.explanation import Explanation

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer
    from normscope.methods import Gives, Method

PREDICTIONS = ("sequence-classification", "token-classification", "masked-lm", "causal-lm")
"""The tasks of models whose predictions are tried."""

ALL = "all"
"""Stands for every method there is."""

RESAMPLES, CONFIDENCE = 2000, 0.95
"""Of the bootstrap."""


@dataclass(frozen=True)
class Trial(Experiment):
    """An experiment that runs the model itself."""

    unit: ClassVar[str] = "model calls"
    """What its cost is counted in."""
    has_evidence: ClassVar[bool] = False
    """Whether it needs rows with known evidence."""
    tasks: ClassVar[tuple[str, ...]] = ()
    """The tasks of the models that it takes, `none` being a bare model; any model if there are none."""
    timed: ClassVar[int] = 1
    """How many sequences are examined together, where the time of a run is estimated."""
    pairs_itself: ClassVar[bool] = False
    """Whether it gives a decoder something to read where the corpus has no sentence pairs."""

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
            f"{self.name} runs the model itself, and an analysis does not contain it. Run it on texts: "
            f"normscope.runs.run([{self.name!r}], model=..., corpus=...)."
        )

    @abstractmethod
    def examine(self, analyzer: Analyzer, item: Item, seed: int) -> Partial:
        """The partial result of one sequence."""

    def examine_all(self, analyzer: Analyzer, items: Sequence[Item], seed: int) -> Partial:
        """The partial result of several sequences."""
        return merged(self.examine(analyzer, item, seed) for item in items)

    def problem_of(self, analyzer: Analyzer, item: Item) -> str | None:
        """Why a sequence cannot be examined, as far as is known before the work; `None` if it can."""
        return None

    @abstractmethod
    def calls(self, model: ModelFacts, length: int) -> int:
        """The approximate cost of a sequence of `length` tokens, in units of `unit`."""


@dataclass(frozen=True)
class MethodTrial(declared.MethodTrial, Trial):
    """A trial of methods: of those named, or of all."""

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
        """The names of the requested methods; `all` stands for all of them."""
        from normscope.methods import available_methods  # noqa: PLC0415  (methods know the analyzer, which experiments do not)

        return tuple(method.name for method in available_methods()) if ALL in self.methods else self.methods

    def check_reference(self, reference: str, default: str, compared: Sequence[str]) -> None:
        """Raise for a reference that was named and is not compared with others."""
        if reference != default:
            check_choice(self.name, "reference", reference, tuple(compared))

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


# ---- the attributions of a prediction by every method ----------------------------------------------------------------


UNAVAILABLE = pa.schema({"method": pa.string(), "why": pa.string()})


@dataclass(frozen=True)
class Case:
    """One prediction: the input, what is explained, and the indices of the tokens that may be removed."""

    sequence: TokenSequence
    question: Question
    candidates: tuple[int, ...]


def case_of(analyzer: Analyzer, item: Item, seed: int, objective: Objective = "logit") -> Case:
    """The prediction that is explained for a text. Its position depends on the seed and the text's number."""
    sequence, chance = item.sequence, np.random.default_rng([seed, item.number])
    content = [index for index, special in enumerate(sequence.special) if not special]
    match task_of(analyzer):
        case "causal-lm":
            end = int(chance.choice(content[len(content) // 2 :]))
            sequence, row = cut(sequence, end + 1), end
            content = [index for index in content if index <= end]
        case "masked-lm":
            row = int(chance.choice(content))
            mask = getattr(analyzer.tokenizer, "mask_token_id", None)
            if mask is None:
                raise InputError(f"{analyzer.name} fills in masks, but its tokenizer has no mask token.")
            sequence = _masked(sequence, row, int(mask), str(getattr(analyzer.tokenizer, "mask_token", "")))
            content = [index for index in content if index != row]
        case "token-classification":
            inside = [] if item.entities is None else [index for index in content if item.entities[index] >= 0]
            row = int(chance.choice(inside or content))
            content = [index for index in content if index != row]
        case "none":
            index = len(sequence) - 1 if analyzer.family.stack.causal else 0
            return Case(sequence, DirectionQuestion(index, None), tuple(content))
        case _:
            row = 0
    return Case(sequence, LogitQuestion(analyzer, [(row, Wanted(objective=objective))]), tuple(content))


def _masked(sequence: TokenSequence, position: int, mask: int, token: str) -> TokenSequence:
    ids = [mask if index == position else number for index, number in enumerate(sequence.features["input_ids"])]
    tokens = [token if index == position else own for index, own in enumerate(sequence.tokens)]
    return replace(sequence, features={**sequence.features, "input_ids": ids}, tokens=tokens)


@dataclass
class MethodShares:
    """`[target, token]` by method, NaN where it has no value; why methods are unavailable; and which tokens are attention
    sinks, where a pull-back says so."""

    values: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    sinks: np.ndarray | None = None

    def refuse(self, name: str, error: NormscopeError, *, strict: bool) -> None:
        if strict:
            raise error
        self.refused[name] = str(error)


def shares_by(
    analyzer: Analyzer, sequence: TokenSequence, question: Question, names: Sequence[str], *, strict: bool
) -> MethodShares:
    """The values of every method for one input; `strict`: raise if one is unavailable. Pull-backs share one forward
    pass."""
    from normscope.methods import attribution  # noqa: PLC0415  (methods know the analyzer, which experiments do not)

    methods = {name: attribution(named_method(name)) for name in names}
    found = MethodShares()
    rules = pull_back_rules(names)
    if rules and can_share(analyzer, sequence, PullRequest()):
        _share_pass(analyzer, sequence, question, rules, found, strict=strict)
    for name, method in methods.items():
        if name in found.values or name in found.refused:
            continue
        try:
            tree = method.explain(Asked(analyzer, sequence, question, PullRequest()))
        except (UnsupportedArchitectureError, InputError) as error:
            found.refuse(name, error, strict=strict)
        else:
            found.values[name] = Explanation.from_tree(tree).shares.values.astype(np.float64)
    found.values = {name: found.values[name] for name in names if name in found.values}
    return found


def pull_back_rules(names: Sequence[str]) -> dict[str, Weights]:
    """The methods that are pull-backs, with their rules for attention weights."""
    rules: dict[str, Weights] = {}
    for name in names:
        method = named_method(name)
        if isinstance(method, PullBack):
            rules[name] = weights_of(method.weights or PullRequest().weights)
    return rules


def _share_pass(
    analyzer: Analyzer,
    sequence: TokenSequence,
    question: Question,
    rules: Mapping[str, Weights],
    found: MethodShares,
    *,
    strict: bool,
) -> None:
    """Pull-backs that differ only in the rule for attention weights."""
    try:
        pulled = shares_by_weights(analyzer, sequence, question, PullRequest(), list(dict.fromkeys(rules.values())))
    except (UnsupportedArchitectureError, InputError) as error:
        for name in rules:
            found.refuse(name, error, strict=strict)
        return
    found.sinks = pulled.sinks.numpy()
    for name, rule in rules.items():
        if rule in pulled.refused:
            found.refuse(name, pulled.refused[rule], strict=strict)
        else:
            found.values[name] = pulled.shares[rule].double().cpu().numpy()


def unavailable(refused: dict[str, str]) -> Partial:
    """The methods that are unavailable, as a partial result."""
    rows = [{"method": method, "why": why} for method, why in refused.items()]
    return Partial(rows={"unavailable": Rows((pa.Table.from_pylist(rows, schema=UNAVAILABLE),))})


def notes_of(partial: Partial) -> list[str]:
    """A sentence for each method that was unavailable."""
    if "unavailable" not in partial.rows:
        return []
    table: Table = partial.rows["unavailable"].select("SELECT DISTINCT method, why FROM rows ORDER BY method, why")
    return [f"Without {row['method']}: {row['why']}" for row in table.to_pylist()]
