"""Products that are compared in random combinations are judged as if they had been multiplied out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from normscope.chain.proof import LIMIT
from normscope.chain.rounding import Computed
from normscope.chain.trace import Linear, Shared

ROWS, INPUTS, OUTPUTS, GROUPS = 40, 96, 64, 4
SIZES = pytest.mark.parametrize("size", [1.0, 1e-22, 1e15])


def computed(size: float = 1.0, groups: int = 1) -> tuple[Computed, Tensor]:
    """A product, with a bias and something that bypasses it, and what a model of float32 would output."""
    random = torch.Generator().manual_seed(0)
    rows, bypass = (torch.randn(ROWS, width, generator=random) * size for width in (INPUTS, OUTPUTS))
    linear = Linear(torch.randn(OUTPUTS, INPUTS, generator=random), torch.randn(OUTPUTS, generator=random) * size)
    own = torch.nn.functional.linear(rows, linear.weight, linear.bias)
    product = Computed.from_model(rows).product(linear, groups)
    if groups > 1:
        return product, own
    return product + Computed.from_model(bypass), own + bypass


def errors(each: Computed, own: Tensor, groups: int = 1) -> Tensor:
    return each.error(own, torch.finfo(torch.float32).tiny, groups, LIMIT[torch.float32])


@SIZES
@pytest.mark.parametrize("groups", [1, GROUPS])
def test_what_a_model_rounds_is_no_error(size: float, groups: int) -> None:
    product, own = computed(size, groups)
    for each in (product, product.multiplied_out()):
        assert bool((errors(each, own, groups) < LIMIT[torch.float32]).all())


@SIZES
@pytest.mark.parametrize("groups", [1, GROUPS])
def test_one_number_of_one_row_that_is_wrong_is_seen_as_well_as_if_it_had_been_multiplied_out(
    size: float, groups: int
) -> None:
    product, own = computed(size, groups)
    for place in range(OUTPUTS):
        wrong = own.clone()
        wrong[place % ROWS, place] += 0.01 * wrong.abs().mean()
        found, expected = (
            errors(each, wrong, groups) > LIMIT[torch.float32] for each in (product, product.multiplied_out())
        )
        assert int(expected.sum()) == 1
        assert torch.equal(found, expected)


def test_numbers_that_change_places_are_seen() -> None:
    product, own = computed()
    for step in range(1, OUTPUTS):
        assert bool((errors(product, own.roll(step, 1)) > LIMIT[torch.float32]).all())
    assert bool((errors(product, own.roll(1, 0)) > LIMIT[torch.float32]).all())


def test_what_is_no_number_is_an_error() -> None:
    product, own = computed()
    own[3, 5] = torch.nan
    found = errors(product, own)
    assert not bool(found[3] <= LIMIT[torch.float32])
    assert bool((found[torch.arange(ROWS) != 3] <= LIMIT[torch.float32]).all())


@pytest.mark.parametrize("factor", [0.5, torch.linspace(-2, 2, ROWS)[:, None]], ids=["one number", "one for each row"])
def test_products_are_scaled_selected_and_added_as_what_they_make(factor: float | Tensor) -> None:
    product, _ = computed()
    rows = torch.tensor([7, 3, 3])
    whole = product.multiplied_out()
    late, early = ((each * factor + each)[rows].plus(torch.ones(OUTPUTS)) for each in (product, whole))
    late = late.multiplied_out()
    torch.testing.assert_close(late.value, early.value)
    torch.testing.assert_close(late.rounded, early.rounded)


def test_what_follows_from_weights_is_kept_for_these_alone() -> None:
    random = torch.Generator().manual_seed(0)
    rows, shared = torch.randn(ROWS, INPUTS, generator=random), Shared()
    for _ in range(2):
        linear = Linear(torch.randn(OUTPUTS, INPUTS, generator=random), None, shared)
        product = Computed.from_model(rows).product(linear)
        for own, expected in ((rows @ linear.weight.T, True), (rows @ linear.weight.roll(1, 0).T, False)):
            assert bool((errors(product, own) <= LIMIT[torch.float32]).all()) == expected
