"""Operations and bytes of an analysis, counted as the engine does them, for one block and one sequence.

Three kinds are counted separately, since a machine does them at different speeds: large matrix products, thin ones (batches
whose inner size is the number of heads), and passes over memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from normscope.capture import LONG, ROWS_AT_ONCE, rows_together
from normscope.decompose import Approximation
from normscope.decompose.approximate.sketch import SAMPLED_PAIRS
from normscope.decompose.dense import CAUSAL_SHARE, TILE_NEURONS, TILE_VECTORS
from normscope.estimate.sizes import BlockSizes


@dataclass(frozen=True)
class Work:
    """Operations of large products, of thin ones and of thin ones in float64; bytes that are read or written.

    Thin ones in float64 are those of Gram matrices. What is read and written around them is part of them.
    """

    large: float = 0.0
    thin: float = 0.0
    thin_double: float = 0.0
    passed: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.large + other.large,
            self.thin + other.thin,
            self.thin_double + other.thin_double,
            self.passed + other.passed,
        )

    def __mul__(self, times: float | int) -> Work:
        return Work(self.large * times, self.thin * times, self.thin_double * times, self.passed * times)

    @property
    def flops(self) -> float:
        """All operations on floating-point numbers that are part of a product."""
        return self.large + self.thin + self.thin_double


class Extent(NamedTuple):
    """How much of a sequence is requested: its tokens, its query rows, and whether keys after a query are left out.

    `source` are the tokens of an encoder that a decoder attends to, too.
    """

    tokens: int
    queries: int
    causal: bool
    item: int = 4
    """Bytes of a number."""
    source: int = 0

    @property
    def keys(self) -> int:
        """The keys of a map: the sequence's own tokens, and those of its source."""
        return self.tokens + self.source

    def groups(self) -> list[Extent]:
        """The sequence's own keys, and those of its source, as if each were alone."""
        own = self._replace(source=0)
        return [own, own._replace(tokens=self.source, causal=False)] if self.source else [own]

    @property
    def pairs(self) -> float:
        """Pairs of a query and a key that exist, assuming evenly spaced queries."""
        return self.queries * (self.tokens + 1) / 2 if self.causal else float(self.queries * self.tokens)

    @property
    def tiled_pairs(self) -> float:
        """The same, including the cells above the diagonal in tiles along it."""
        if not self.causal:
            return self.pairs
        apart, start, pairs = self.tokens / self.queries, 0, 0.0
        while start < self.queries:
            height = 1
            while (
                start + height < self.queries
                and (height + 1) * (start + height + 1) * apart <= TILE_VECTORS / CAUSAL_SHARE
            ):
                height += 1
            pairs += height * (start + height) * apart
            start += height
        return pairs


def forward(block: BlockSizes, extent: Extent) -> Work:
    """The model's own pass through a block, with attention weights."""
    n = extent.tokens
    square = float(n) * n * block.heads * extent.item
    states = n * (16.0 * block.d + 6.0 * block.branches * block.neurons) * extent.item
    weights = float(block.parameters) * extent.item
    products = 2.0 * n * block.parameters + 4.0 * n * (n + extent.source) * block.values
    square += float(n) * extent.source * block.heads * extent.item
    return Work(large=products, passed=8 * square + states + weights)


def sums(block: BlockSizes, extent: Extent, *, feed_forward: bool) -> Work:
    """The few vectors per query that mixing ratios and completeness need."""
    q, d = extent.queries, block.d
    work = Work(
        large=2.0 * q * extent.keys * block.values + 4.0 * q * block.values * d * len(extent.groups()),
        passed=24.0 * q * d * extent.item,
    )
    if not feed_forward:
        return work
    rows = 2 if block.beside else 3
    network = 2.0 * rows * q * block.neurons * d * (1 + block.branches)
    return work + Work(large=network, passed=4.0 * rows * q * block.neurons * block.branches * extent.item)


_COMBINATIONS = 8
"""The number of random combinations in which the outputs of a product are proved."""


def proof(block: BlockSizes, extent: Extent, *, feed_forward: bool) -> Work:
    """Every component compared in combinations, values from all keys' states too; each matrix is read for its norms."""
    q, d, item = extent.queries, block.d, extent.item
    work = Work()
    for keys in (each.tokens for each in extent.groups()):
        compared = _compared(keys, d, block.values, block.heads) + _compared(q, block.values, d)
        passed = 2.0 * block.values * d + 12.0 * (keys + q) * block.values + 20.0 * (keys + q) * d
        work += Work(large=2.0 * q * keys * block.values, thin=compared, passed=passed * item)
    if not feed_forward:
        return work
    matrices = block.neurons * d * (1.0 + block.branches)
    passed = matrices + q * (6.0 * block.neurons * (1 + block.branches) + 20.0 * d)
    compared = _compared(q, d, block.neurons) * block.branches + _compared(q, block.neurons, d)
    return work + Work(thin=compared, passed=passed * item)


def _compared(rows: int, inputs: int, outputs: int, groups: int = 1) -> float:
    """Operations of a product that is compared and not multiplied out: combinations of the matrix, of what enters, and of
    what leaves, and the spread of what is rounded."""
    by_row = _COMBINATIONS * (inputs * groups + outputs) + inputs * groups
    return 2.0 * (rows * by_row + _COMBINATIONS * inputs * outputs)


def attention_maps(block: BlockSizes, extent: Extent, scopes: int, of_source: int = 0) -> Work:
    """Norm maps before the feed-forward; `of_source` of them have the keys of a source, too."""
    own, *source = extent.groups()
    return sum((_gram_maps(block, each, of_source) for each in source), _gram_maps(block, own, scopes))


def _gram_maps(block: BlockSizes, extent: Extent, scopes: int) -> Work:
    """Norm maps of one group of keys, from the Gram matrices of each key."""
    n, h, d = extent.tokens, block.heads, block.d
    one = Work(
        large=2.0 * n * block.values * d,
        thin_double=2.0 * n * h * h * d + 2.0 * extent.pairs * h * h,
        passed=24.0 * n * h * d,
    )
    copies = Work(passed=8.0 * extent.queries * n * h * extent.item)  # a transposed copy, at a quarter of the speed
    return one * scopes + copies


def folds_query(block: BlockSizes, keys: float) -> bool:
    """Whether the engine multiplies the two matrices around the slopes of a query first: as `decompose.expand` decides."""
    expanded = keys * block.neurons * (block.d + block.branches * block.heads)
    folded = block.values * (block.neurons * (block.d + block.branches) + keys * (block.d + 1))
    return folded < expanded


def feed_forward_maps(block: BlockSizes, extent: Extent, scopes: int) -> Work:
    """Exact norm maps from the feed-forward on."""
    if block.beside:
        return attention_maps(block, extent, scopes, scopes)
    return sum((_expanded_maps(block, each, scopes) for each in extent.groups()), Work())


def _expanded_maps(block: BlockSizes, extent: Extent, scopes: int) -> Work:
    """Norm maps of one group of keys, whose parts go through the feed-forward."""
    pairs, d, neurons, item = extent.tiled_pairs, block.d, block.neurons, extent.item
    after = Work(thin=2.0 * pairs * block.heads * d, passed=pairs * d * item * (2.0 + 4.0 * scopes))
    if folds_query(block, pairs / max(1, extent.queries)):
        common = 2.0 * block.values * d * neurons * block.branches
        by_query = 2.0 * block.values * neurons * d * extent.queries
        scaled = extent.queries * 2.0 * block.branches * block.values * neurons * item
        return after + Work(
            large=common + by_query + 2.0 * pairs * block.values * d, passed=scaled + 3 * pairs * block.values * item
        )
    d_head = block.values // block.heads
    if d_head * (d + extent.tokens) < extent.tokens * d:
        first = 2.0 * block.values * neurons * (d + extent.tokens)
    else:
        first = 2.0 * extent.tokens * block.values * d + 2.0 * extent.tokens * block.heads * d * neurons
    hidden = 2.0 * pairs * block.heads * neurons * block.branches
    return after + Work(
        large=first * block.branches + 2.0 * pairs * neurons * d,
        thin=hidden,
        passed=pairs * neurons * item * (4.0 * block.branches),
    )


def pull_back(block: BlockSizes, extent: Extent, values: int) -> Work:
    """The pull-back of some values through a block: the transposes of everything that acts on a token."""
    n, d, item = extent.tokens, block.d, extent.item
    network = 2.0 * n * block.neurons * d * (1 + block.branches)
    slopes = 8.0 * n * block.branches * block.neurons * item
    around = sum(4.0 * n * block.values * d + 4.0 * n * each.tokens * block.values for each in extent.groups())
    each = Work(
        large=network + around,
        passed=(3.0 * n * extent.keys * block.heads + n * (20.0 * d + 4.0 * block.branches * block.neurons)) * item,
    )
    return each * values + Work(passed=slopes)


def trace_bytes(block: BlockSizes, extent: Extent) -> float:
    """What the trace of one layer holds: attention weights, values, states and pre-activations."""
    n, item = extent.tokens, extent.item
    states = n * (10.0 * block.d + block.branches * block.neurons) + extent.keys * block.values
    return (n * extent.keys * block.heads + states) * item


def memory(block: BlockSizes, extent: Extent, *, maps: bool, feed_forward: bool, together: int) -> float:
    """Bytes that one layer of a pass holds at its worst, for a batch of sequences of this length."""
    n, q, h, item = extent.keys, extent.queries, block.heads, extent.item
    rows = n
    if n >= LONG:  # attention weights are recomputed for some rows, never stored
        rows, q, together = min(n, ROWS_AT_ONCE), min(q, rows_together(n)), 1
    states = n * (12.0 * block.d + 4.0 * block.branches * block.neurons) * item
    shown = together * (3.0 * rows * n * h * item + states)
    if not maps:
        return shown
    copies = 2.0 * q * n * h * item + 2.0 * n * h * block.d * item
    if not feed_forward or block.beside:
        return shown + copies
    keys = n / 2 if extent.causal else float(n)
    if folds_query(block, keys):
        return (
            shown + copies + 3.0 * block.values * block.neurons * block.branches * item + TILE_VECTORS * block.d * item
        )
    first = float(n) * h * block.neurons * block.branches * item
    tile = TILE_VECTORS * (block.d + block.branches * min(TILE_NEURONS, block.neurons)) * item
    return shown + copies + first + tile


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
        large=2.0 * (extent.queries * min(by_query) + common),
        thin=2.0 * pairs * block.heads * width,
        passed=pairs * width * extent.item * 3.0 * scopes,
    )
