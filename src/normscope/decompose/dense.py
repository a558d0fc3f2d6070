"""The dense form, the carrier after the activation: the part vectors of one tile of queries after another.

The slopes of a feed-forward differ by query, so that parts can no longer stay factored. For a tile of queries `i`,

    part[i, j] = (c_i * sum_h a[h, i, j] * P[h, j]) @ W2,    P[h, j] = values[h, j] @ output[h] @ W1

is expanded and multiplied by the second matrix in one large product: `2 n^2 F d` operations per layer, the floor for exact
maps. All norms after the feed-forward are taken from the same tile, in place. The product can run in TF32 (torch's own
setting, restored afterwards; devices without it multiply as usual) or in bfloat16 (both operands are rounded).
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.chain.linear import LinearisedNetwork, scale_
from normscope.chain.trace import Norm, QueryRows
from normscope.decompose.carriers import BIAS, OWN, Carrier, OpenCarrier, Sums
from normscope.decompose.key_groups import SELF, KeyGroup
from normscope.options import Products

_TOLERANCE: dict[Products, float] = {"tf32": 1e-2, "bf16": 5e-2}


@dataclass(frozen=True)
class Multiplication:
    """How large matrices are multiplied: in their dtype, or with less precise `products`."""

    products: Products | None = None

    @property
    def tolerance(self) -> float:
        """The completeness error above which a result is refused if products are less precise."""
        return 0.0 if self.products is None else _TOLERANCE[self.products]

    def __call__(
        self, left: Float[Tensor, "row inner"], right: Float[Tensor, "inner column"]
    ) -> Float[Tensor, "row column"]:
        """The product of two matrices."""
        result = left.new_empty(len(left), right.shape[1])
        self.add(result, left, right, first=True)
        return result

    def add(
        self,
        target: Float[Tensor, "row column"],
        left: Float[Tensor, "row inner"],
        right: Float[Tensor, "inner column"],
        *,
        first: bool,
    ) -> None:
        """Add a product to what `target` holds; if it is the `first`, write it."""
        if self.products == "bf16":
            rounded = left.bfloat16() @ right.bfloat16()
            target.copy_(rounded) if first else target.add_(rounded)
            return
        with _tf32(self.products == "tf32"):
            if first:
                torch.mm(left, right, out=target)
            else:
                target.addmm_(left, right)


PLAIN = Multiplication()
"""Products in the dtype of the operands."""


@contextmanager
def _tf32(allowed: bool) -> Generator[None]:
    if not allowed:
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


# ---- The carrier of one tile. `parts` is a buffer that `Expansion` fills tile by tile, and operations change it in place.


@final
@dataclass(frozen=True, kw_only=True)
class Dense(Carrier):
    """Every part of a tile of queries as a vector; `extents` says which rows of `parts` belong to which group of keys."""

    parts: Float[Tensor, "key query d"]
    extents: dict[int, slice]

    def add(self, bypass: OpenCarrier) -> Dense:
        sums = self.sums.add(bypass.sums)
        for group in bypass.groups:
            group.add_to(self.parts[self.extents[group.kind]])
        if SELF in self.extents:
            rows = torch.arange(len(sums.queries), device=self.parts.device)
            self.parts[sums.queries, rows] = sums.own
        return Dense(sums=sums, parts=self.parts, extents=self.extents)

    def scaled(self, factor: float | Tensor) -> Dense:
        return Dense(sums=self.sums.scaled(factor), parts=self.parts.mul_(factor), extents=self.extents)

    def normalise(self, norm: Norm, deviation: Float[Tensor, " query"]) -> Dense:
        scale_(norm, self.parts).div_(deviation[:, None])
        return Dense(sums=self.sums.normalise(norm, deviation), parts=self.parts, extents=self.extents)

    def maps(self) -> dict[int, Float[Tensor, "query key"]]:
        norms = torch.linalg.vector_norm(self.parts, dim=-1).T
        return {kind: norms[:, keys] for kind, keys in self.extents.items()}

    def maps_without(self, dimensions: Int[Tensor, " dimension"]) -> dict[int, Float[Tensor, "query key"]]:
        """The same norms without some dimensions of the parts, which are as they were afterwards."""
        kept = self.parts[..., dimensions].clone()
        self.parts[..., dimensions] = 0
        maps = self.maps()
        self.parts[..., dimensions] = kept
        return maps


# ---- FF on a factored decomposition: from factors to the part vectors of one tile of queries after another.

TILE_VECTORS = 4096
"""The number of part vectors in a tile: many queries share one reading of the keys' factors."""

CAUSAL_SHARE = 4
"""By how much a tile of a causal model is smaller."""

TILE_NEURONS = 1024
"""How many neurons are expanded at a time: enough to keep the matrix multiplication busy, few enough to stay in cache."""


class Buffers:
    """Buffers by name, reused from tile to tile."""

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._buffers: dict[str, Tensor] = {}

    def __call__(self, name: str, *shape: int) -> Tensor:
        size = torch.Size(shape).numel()
        if name not in self._buffers or len(self._buffers[name]) < size:
            self._buffers[name] = self._like.new_empty(size)
        return self._buffers[name][:size].view(shape)


class Projected:
    """The contribution of every head of a key to every neuron, `P`: computed when first needed, and shared."""

    def __init__(self, groups: tuple[KeyGroup, ...], network: LinearisedNetwork) -> None:
        self._groups, self._network = groups, network

    @cached_property
    def by_group(self) -> list[list[Float[Tensor, "..."]]]:
        """For each group of keys and each branch, the factors times the first matrix."""
        return [[group.through(linear) for linear in self._network.projections] for group in self._groups]

    def forget(self) -> None:
        """Free the memory when it is no longer needed."""
        self.__dict__.pop("by_group", None)


class Expansion:
    """All tiles of one feed-forward: the sum over its networks, of which a plain model has one."""

    def __init__(
        self,
        sums: Sums,
        groups: tuple[KeyGroup, ...],
        networks: list[LinearisedNetwork],
        multiply: Multiplication = PLAIN,
        projected: Projected | None = None,
    ) -> None:
        self.queries, self.groups, self.d = sums.queries, groups, sums.rows.shape[-1]
        everything = torch.arange(len(sums.queries), device=sums.queries.device)
        self.one_for_all = len(networks) == 1 and torch.equal(networks[0].rows, everything)
        self.buffers = Buffers(sums.rows)
        self.networks = [
            ExpandedNetwork(network, groups, sums, self.buffers, multiply, projected or Projected(groups, network))
            for network in networks
        ]

    def tiles(self) -> Iterator[tuple[slice, Dense]]:
        start = 0
        while start < len(self.queries):
            rows = slice(start, start + self._height(start))
            yield rows, self._tile(rows)
            start = rows.stop

    def _height(self, start: int) -> int:
        """How many queries, from one on, make a tile. A causal tile is smaller: less of it is above the diagonal."""
        limit = TILE_VECTORS // CAUSAL_SHARE if self.groups[0].causal else TILE_VECTORS
        height = 1
        while start + height < len(self.queries):
            if (height + 1) * sum(self._visible(slice(start, start + height + 1))) > limit:
                break
            height += 1
        return height

    def _visible(self, rows: slice) -> list[int]:
        """How many keys of each group the queries of a tile can see."""
        last = int(self.queries[rows].max()) + 1
        return [last if group.causal else len(group.weights) for group in self.groups]

    def _tile(self, rows: slice) -> Dense:
        visible, queries = self._visible(rows), self.queries[rows]
        parts, bias = self._parts(rows, visible)
        ends = list(itertools.accumulate(visible, initial=0))
        extents = {group.kind: slice(*ends[index : index + 2]) for index, group in enumerate(self.groups)}
        own = torch.zeros_like(bias)
        if SELF in extents:
            own = parts[queries, torch.arange(len(queries), device=queries.device)]
        by_group = [parts[keys].sum(0) for keys in extents.values()]
        sums = Sums(torch.stack([own, bias, by_group[0] - own, *by_group[1:]]), queries)
        return Dense(sums=sums, parts=parts, extents=extents)

    def _parts(self, rows: slice, visible: list[int]) -> tuple[Tensor, Tensor]:
        """Part vectors and biases of a tile, added up over the networks that serve it."""
        groups = [group.select(rows) for group in self.groups]
        parts = self.buffers("parts", sum(visible), len(self.queries[rows]), self.d)
        if self.one_for_all:
            self.networks[0].write(parts, groups, visible, rows, self.queries[rows])
            return parts, self.networks[0].bias[rows]
        parts.zero_()
        bias = parts.new_zeros(len(self.queries[rows]), self.d)
        for network in self.networks:
            local, place = network.serving(rows)
            if len(local):
                of_expert = self.buffers("expert", len(parts), len(local), self.d)
                served = [group.select(local) for group in groups]
                network.write(of_expert, served, visible, place, self.queries[rows][local])
                parts[:, local] += of_expert
                bias[local] += network.bias[place]
        return parts, bias


class ExpandedNetwork:
    """One network's share: what is common to all tiles is computed once, when first needed."""

    def __init__(
        self,
        network: LinearisedNetwork,
        groups: tuple[KeyGroup, ...],
        sums: Sums,
        buffers: Buffers,
        multiply: Multiplication,
        projected: Projected,
    ) -> None:
        self.network, self.groups, self.buffers = network, groups, buffers
        self.multiply, self.projected = multiply, projected
        # Two vectors per query go through by themselves: its own part (the diagonal) and its bias.
        hidden = network.hidden(sums.rows[[OWN, BIAS]][:, network.rows])
        self.hidden_own = hidden[0]
        hidden[1] += network.hidden_bias
        self.bias = network.out(hidden[1:], bias=0)[0]

    def serving(self, rows: slice) -> tuple[Int[Tensor, " row"], Int[Tensor, " row"]]:
        """Which rows of a tile the network serves: their indices in the tile, and in the network's own rows."""
        (place,) = ((self.network.rows >= rows.start) & (self.network.rows < rows.stop)).nonzero(as_tuple=True)
        return self.network.rows[place] - rows.start, place

    def write(
        self,
        parts: Float[Tensor, "key row d"],
        groups: list[KeyGroup],
        keys: list[int],
        place: QueryRows,
        queries: Int[Tensor, " row"],
    ) -> None:
        """The part vectors of `queries` (at `place` among the network's rows), by the cheaper of two orders.

        `groups` are those of the queries alone, which see the first `keys` keys.
        """
        if self._folding_is_cheaper(keys):
            self._write_folded(parts, groups, keys, place)
        else:
            self._write_expanded(parts, groups, keys, place)
        if self.groups[0].kind == SELF:
            own = self.hidden_own[place] @ self.network.output.weight.T
            parts[queries, torch.arange(len(queries), device=queries.device)] = own

    def _folding_is_cheaper(self, keys: list[int]) -> bool:
        """Count the multiplications per query of `(a P * c) W2` against `(a v) (K diag(c) W2)`."""
        d, neurons = self.network.output.weight.shape
        branches = len(self.network.projections)
        expanded = sum(keys) * neurons * (d + branches * self.groups[0].width)
        folded = 0
        for group, count in zip(self.groups, keys, strict=True):
            value_size = group.output.shape[0] * group.output.shape[1]
            folded += value_size * (neurons * (d + branches) + count * (d + 1))
        return folded < expanded

    def _write_expanded(self, parts: Tensor, groups: list[KeyGroup], keys: list[int], place: QueryRows) -> None:
        slopes = [slope[place] for slope in self.network.slopes]
        output, vectors = self.network.output.weight, parts.flatten(0, 1)
        neurons = output.shape[1]
        for start in range(0, neurons, TILE_NEURONS):
            tile = slice(start, min(start + TILE_NEURONS, neurons))
            hidden = self._hidden(groups, keys, [slope[:, tile] for slope in slopes], tile)
            self.multiply.add(vectors, hidden, output[:, tile].T, first=start == 0)

    def _hidden(
        self, groups: list[KeyGroup], keys: list[int], slopes: list[Tensor], neurons: slice
    ) -> Float[Tensor, "key_row f"]:
        """The parts of every key at a tile of the activated neurons of every query."""
        queries, width = slopes[0].shape
        hidden = self.buffers("hidden", sum(keys), queries, width)
        targets = hidden.split(keys)
        for group, target, projected in zip(groups, targets, self.projected.by_group, strict=True):
            group.put_into(neurons, projected[0], target).mul_(slopes[0])
            for branch, slope in zip(projected[1:], slopes[1:], strict=True):
                more = self.buffers("branch", *target.shape)
                target.add_(group.put_into(neurons, branch, more).mul_(slope))
        return hidden.flatten(0, 1)

    def _write_folded(self, parts: Tensor, groups: list[KeyGroup], keys: list[int], place: QueryRows) -> None:
        output, slopes = self.network.output.weight.T, [slope[place] for slope in self.network.slopes]
        targets = parts.split(keys)
        for column in range(parts.shape[1]):
            for group, target, folded in zip(groups, targets, self._folded, strict=True):
                scaled = [first * slope[column] for first, slope in zip(folded, slopes, strict=True)]
                matrix = scaled[0] if len(scaled) == 1 else scaled[0].add_(scaled[1])
                target[:, column] = group.contexts_of(column, len(target)) @ self.multiply(matrix, output)

    @cached_property
    def _folded(self) -> list[list[Float[Tensor, "_ f"]]]:
        """For each group of keys and each branch, output projection times first matrix: `K`."""
        return [[group.folded(linear) for linear in self.network.projections] for group in self.groups]
