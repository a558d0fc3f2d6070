"""The walk along the chain of a block, written once: forwards for what the chain carries, backwards for covectors.

A branch opens at a `Fork` and closes at a `Residual`. With `F` everything between the two,

    forwards:   y  = F(x) + x            the value that the fork set aside is added after the branch
    backwards:  g_x = F^T(g_y) + g_y     the covector that the residual set aside is added before the branch

(or with x transformed by the steps `around` the branch), so both folds keep a stack of bypasses and differ only in which
step opens a branch and which one closes it. What is carried (a state, a decomposition, its bias, a covector) is up to the
`Rules`: one method for each component. A fold can stop at any step and continue from the `Point` it reached, which may have
been changed in between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar, runtime_checkable

from torch import Tensor

from normscope.chain.trace import (
    Attention,
    FeedForward,
    Fork,
    Normalise,
    OwnFeedForward,
    Residual,
    Scale,
    Transformation,
    Wiring,
    map_components,
)

Summand = TypeVar("Summand")


@runtime_checkable
class Carried(Protocol):
    """What a chain can carry: values that branches add up and scale."""

    def __add__(self: Summand, bypass: Summand, /) -> Summand: ...

    def __mul__(self: Summand, factor: float | Tensor, /) -> Summand: ...


Value = TypeVar("Value", bound=Carried)
Component = TypeVar("Component")
Attending = TypeVar("Attending")
Normalising = TypeVar("Normalising")
Feeding = TypeVar("Feeding")


@dataclass(frozen=True)
class Point(Generic[Value]):
    """A point of a chain: the value there, and the values that bypass the open branches, the innermost last."""

    value: Value
    bypasses: tuple[Value, ...] = ()


class ChainRules(ABC, Generic[Value, Component]):
    """The rules for a chain whose components are of any type: how each transforms a value, and how branches add up."""

    @abstractmethod
    def transform(self, step: Component, value: Value) -> Value:
        """The value on the other side of a component."""

    def add(self, value: Value, bypass: Value) -> Value:
        """The value with what bypassed the branch."""
        return value + bypass


class Rules(ChainRules[Value, Transformation]):
    """The rules for the components of a trace: for each the value after it (or, backwards, before it)."""

    @abstractmethod
    def attention(self, step: Attention, value: Value) -> Value:
        """ATTN, CROSS."""

    @abstractmethod
    def normalise(self, step: Normalise, value: Value) -> Value:
        """LN."""

    @abstractmethod
    def feed_forward(self, step: FeedForward, value: Value) -> Value:
        """FF that reads the state which the chain has reached."""

    @abstractmethod
    def own_feed_forward(self, step: OwnFeedForward, value: Value) -> Value:
        """FF parallel to the attention, which reads the query's own token and adds to the value."""

    def transform(self, step: Transformation, value: Value) -> Value:
        match step:
            case Attention():
                return self.attention(step, value)
            case Normalise():
                return self.normalise(step, value)
            case OwnFeedForward():
                return self.own_feed_forward(step, value)
            case FeedForward():
                return self.feed_forward(step, value)


def forward(point: Point[Value], step: Wiring | Component, rules: ChainRules[Value, Component]) -> Point[Value]:
    """One step along the chain."""
    match step:
        case Fork():
            bypass = fold(step.around, rules, Point(point.value)).value
            return Point(point.value, (*point.bypasses, bypass))
        case Residual():
            return _closed(point, rules)
        case _:
            return _within(point, step, rules)


def backward(point: Point[Value], step: Wiring | Component, rules: ChainRules[Value, Component]) -> Point[Value]:
    """One step back along the chain. A covector that started inside a branch has no bypass to meet at its fork."""
    match step:
        case Residual():
            return Point(point.value, (*point.bypasses, point.value))
        case Fork():
            return _closed(_around(point, step, rules), rules) if point.bypasses else point
        case _:
            return _within(point, step, rules)


def fold(steps: Sequence[Wiring | Component], rules: ChainRules[Value, Component], start: Point[Value]) -> Point[Value]:
    """Forwards through all the steps."""
    for step in steps:
        start = forward(start, step, rules)
    return start


def fold_back(
    steps: Sequence[Wiring | Component], rules: ChainRules[Value, Component], start: Point[Value]
) -> Point[Value]:
    """Backwards through all the steps, the last one first."""
    for step in reversed(steps):
        start = backward(start, step, rules)
    return start


def prepared(
    steps: Sequence[Wiring | Transformation],
    *,
    attention: Callable[[Attention], Attending],
    normalise: Callable[[Normalise], Normalising],
    feed_forward: Callable[[FeedForward], Feeding],
) -> tuple[Wiring | Attending | Normalising | Feeding, ...]:
    """The chain with each component replaced by what its rule needs, which is computed once for many folds."""

    def changed(step: Transformation) -> Attending | Normalising | Feeding:
        match step:
            case Attention():
                return attention(step)
            case Normalise():
                return normalise(step)
            case FeedForward():
                return feed_forward(step)

    return map_components(changed, steps)


def _around(point: Point[Value], step: Fork, rules: ChainRules[Value, Component]) -> Point[Value]:
    """Back along the way around a branch."""
    *others, bypass = point.bypasses
    return replace(point, bypasses=(*others, fold_back(step.around, rules, Point(bypass)).value))


def _closed(point: Point[Value], rules: ChainRules[Value, Component]) -> Point[Value]:
    return Point(rules.add(point.value, point.bypasses[-1]), point.bypasses[:-1])


def _within(point: Point[Value], step: Scale | Component, rules: ChainRules[Value, Component]) -> Point[Value]:
    value = point.value * step.factor if isinstance(step, Scale) else rules.transform(step, point.value)
    return replace(point, value=value)
