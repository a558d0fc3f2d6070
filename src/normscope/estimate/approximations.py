"""Which approximations of norm maps are worth a try for a block and a length: cheapest first, by counted work.

Counts are for choosing among them, and follow `decompose.approximate`; no machine is measured.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from normscope.decompose import Approximation
from normscope.decompose.approximate.sketch import SAMPLED_PAIRS
from normscope.estimate.machine import Machine
from normscope.estimate.sizes import BlockSizes
from normscope.estimate.work import Extent, Work, feed_forward_maps

TYPICAL = Machine(products=1.0, thin=0.5, thin_double=0.25, passed=0.25)
"""Rates of a machine beside that of its large products, where none is measured."""

WORTHWHILE = 0.3
"""The share of the exact maps' work up to which an approximation is tried: it also has to be measured."""

_KINDS = (Approximation(), Approximation(neurons=0.3), Approximation(patterns=128))
_DIRECTIONS = (48, 64, 96, 128, 192, 256, 384, None)


def candidates(block: BlockSizes, extent: Extent, scopes: int) -> list[Approximation]:
    """Approximations that are expected to save time, cheapest first."""
    limit = WORTHWHILE * TYPICAL.seconds(feed_forward_maps(block, extent, scopes))
    every = (replace(kind, directions=directions) for kind, directions in product(_KINDS, _DIRECTIONS))
    near = [each for each in every if each != Approximation()]
    costs = {each: TYPICAL.seconds(approximate_maps(block, extent, scopes, each)) for each in near}
    return sorted((each for each, cost in costs.items() if cost <= limit), key=costs.__getitem__)


def approximate_maps(block: BlockSizes, extent: Extent, scopes: int, approximation: Approximation) -> Work:
    """Approximate norm maps from the feed-forward on."""
    d, neurons, values, pairs = block.d, block.neurons, block.values, float(extent.queries * extent.tokens)
    width = approximation.width(d)
    by_query = approximation.operations(d, neurons, block.heads, values, block.branches, extent.tokens)
    common = values * d * neurons * block.branches
    if approximation.patterns is not None:
        common += approximation.patterns * values * neurons * block.branches * width
    elif by_query[0] < by_query[1]:
        common += extent.tokens * values * neurons * block.branches
    if approximation.neurons < 1:
        common += values * neurons * d
    if width < d:
        common += SAMPLED_PAIRS * neurons * d + 2 * neurons * d * width
    return Work(
        products=2.0 * (extent.queries * min(by_query) + common),
        thin=2.0 * pairs * block.heads * width,
        passed=pairs * width * extent.item * 3.0 * scopes,
    )
