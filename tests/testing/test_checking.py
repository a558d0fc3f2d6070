"""In the tests, a call that breaks the annotations of normscope fails: types, shapes, and axes of the same name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from jaxtyping import Float, TypeCheckError
from support.checking import checked
from torch import Tensor

from normscope.chain.linear import deviation
from normscope.chain.trace import Linear, RmsNorm

ROWS = torch.ones(3, 4)


@checked
def product(rows: Float[Tensor, "row d"], weight: Float[Tensor, "d f"], name: str = "") -> Float[Tensor, "row f"]:
    return rows if name == "wrong" else rows @ weight


def adder(amount: int) -> Callable[[Any], Any]:
    @checked
    def add(value: int) -> int:
        return value + amount

    return add


@checked
@dataclass(frozen=True)
class Pair:
    left: Float[Tensor, " d"]
    right: Float[Tensor, " d"]


@checked
def later(count: int) -> Iterator[int]:
    yield from range(count)


CALLS: dict[str, Callable[[], object]] = {
    "a type": lambda: product(ROWS, torch.ones(4, 5), 3),
    "the number of axes": lambda: product(ROWS, torch.ones(4)),
    "axes of the same name": lambda: product(ROWS, torch.ones(5, 4)),
    "the dtype": lambda: product(ROWS.long(), torch.ones(4, 5)),
    "the result": lambda: product(ROWS, torch.ones(4, 5), "wrong"),
    "an argument of a closure": lambda: adder(1)("one"),
    "the result of a closure": lambda: adder(0.5)(1),  # type: ignore[arg-type]
    "a field": lambda: Pair(torch.ones(3), torch.ones(4)),
    "an argument of a generator": lambda: later("three"),
    "a function of normscope": lambda: deviation(RmsNorm(torch.ones(4), 1e-6), "state"),  # type: ignore[arg-type]
    "a dataclass of normscope": lambda: Linear(torch.ones(3)),
}


@pytest.mark.parametrize("broken", CALLS)
def test_a_call_that_breaks_an_annotation_fails(broken: str) -> None:
    with pytest.raises(TypeCheckError):
        CALLS[broken]()


def test_a_call_that_keeps_them_is_what_it_would_be_without_checks() -> None:
    assert torch.equal(product(ROWS, weight=torch.ones(4, 5)), ROWS @ torch.ones(4, 5))
    assert [adder(amount)(1) for amount in (1, 2)] == [2, 3]
    assert Pair(torch.ones(3), torch.zeros(3)).right.sum() == 0
    assert list(later(3)) == [0, 1, 2]
    assert product.__name__ == "product" and product.__doc__ is None


def test_axes_of_one_call_do_not_bind_those_of_the_next() -> None:
    assert product(ROWS, torch.ones(4, 5)).shape == (3, 5)
    assert product(torch.ones(2, 6), torch.ones(6, 1)).shape == (2, 1)


@pytest.mark.usefixtures("unchecked_types")
def test_a_test_can_do_without_checks() -> None:
    assert adder(0.5)(1) == 1.5  # type: ignore[arg-type]
