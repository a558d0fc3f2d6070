"""The parts of a group of keys, as attention weights times per-head factors, and their norms from Gram matrices.

`part[i, j] = scale_i * sum_h a[h, i, j] * U[j, h]` with the factors `U[j, h] = values[h, j] @ output[h]`, so that
`||part[i, j]||^2 = scale_i^2 * a[:, i, j] @ G[j] @ a[:, i, j]` with the Gram matrix `G[j]` of the factors of key `j`.
Squared norms are computed in float64, since heads cancel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.chain.linear import scale_
from normscope.chain.trace import Attention, CrossAttention, Linear, Norm, QueryRows, Shared

SELF, SOURCE = 0, 1
"""The two groups of keys: the sequence's own tokens, and those of the encoder."""

NUMBERS = 1_000_000
"""How many float64 numbers each of the products may hold at once."""


def gram_matrices(factors: Iterable[Float[Tensor, "_ head d"]]) -> Float[Tensor, "key head head"]:
    """The products of every two heads of a key, some keys after the other."""
    return torch.cat([doubles @ doubles.mT for doubles in (some.double() for some in factors)])


def squared_norms(
    weights: Float[Tensor, "key query head"], grams: Float[Tensor, "key head head"]
) -> Float[Tensor, "key query"]:
    """The squared norms of the sums of each key's factors with these weights."""
    doubles = weights.double()
    return (doubles @ grams).mul_(doubles).sum(-1).clamp_(min=0)


@dataclass(frozen=True)
class KeyGroup:
    """The off-diagonal parts of one group of keys, in factored form. Keys come first, as batched products want them."""

    kind: int
    weights: Float[Tensor, "key query tap_head"]
    values: Float[Tensor, "tap_head key d_head"]
    output: Float[Tensor, "head d_head d"]
    scale: Float[Tensor, " query"]
    queries: Int[Tensor, " query"]
    causal: bool
    shared: Shared
    passed: tuple[Tensor, ...]
    """The weights that `output` is made of."""

    @staticmethod
    def of(attention: Attention, queries: Int[Tensor, " query"], *, causal: bool, bias_apart: bool = False) -> KeyGroup:
        """In factored form, unless gates differ from channel to channel or a convolution has several taps."""
        values, value_bias = attention.values, attention.value_bias if bias_apart else None
        if value_bias is not None:
            values = values - value_bias
        factors, weights = attention.factors, attention.weights
        factored = attention.taps == 1 and (factors is None or factors.shape[-1] == 1)
        if factored and factors is not None:
            weights, factors = weights * factors, None
        weights = weights.permute(2, 1, 0).contiguous()
        scale = torch.ones_like(weights[0, :, 0])
        cross = isinstance(attention, CrossAttention)
        kind, causal = (SOURCE, False) if cross else (SELF, causal)
        common = kind, weights, values, attention.output, scale, queries, causal, attention.shared, (attention.output,)
        return KeyGroup(*common) if factored else GatedKeyGroup(*common, gates=factors)

    def select(self, rows: QueryRows) -> KeyGroup:
        selected = replace(self, weights=self.weights[:, rows], scale=self.scale[rows], queries=self.queries[rows])
        selected.__dict__["factors"] = self.factors  # they do not depend on the query
        if "grams" in self.__dict__:
            selected.__dict__["grams"] = self.grams
        return selected

    def scaled(self, factor: float | Float[Tensor, " d"]) -> KeyGroup:
        if isinstance(factor, Tensor):
            return replace(self, output=self.output * factor, passed=(*self.passed, factor))
        return replace(self, scale=self.scale * factor)

    def normalise(self, norm: Norm, deviation: Float[Tensor, " query"]) -> KeyGroup:
        output = scale_(norm, self.output.clone())
        return replace(self, output=output, scale=self.scale / deviation, passed=(*self.passed, norm.weight))

    @cached_property
    def factors(self) -> Float[Tensor, "key head d"]:
        """`U[j, h] = values[h, j] @ output[h]`."""
        return torch.bmm(self.values, self.output).transpose(0, 1)

    @cached_property
    def scaled_weights(self) -> Float[Tensor, "key query tap_head"]:
        return self.weights * self.scale[:, None]

    @property
    def width(self) -> int:
        """The number of multiplications per part and neuron."""
        return self.weights.shape[-1]

    def put_into(self, neurons: slice, projected: Tensor, into: Float[Tensor, "seen_key query neuron"]) -> Tensor:
        """The parts of the first keys at some neurons of every query; `projected` is the result of `through`."""
        keys = len(into)
        return torch.bmm(self.scaled_weights[:keys], projected[:keys, :, neurons], out=into)

    def contexts_of(self, query: int, keys: int) -> Float[Tensor, "seen_key inner"]:
        """The share of the first keys in the context of one query, all heads side by side."""
        values = self.values[:, :keys] * self.scaled_weights[:keys, query].T[..., None]
        return values.transpose(0, 1).flatten(1)

    def add_to(self, parts: Float[Tensor, "seen_key query d"]) -> None:
        """Add the parts of the first keys, in place."""
        keys = len(parts)
        torch.baddbmm(parts, self.scaled_weights[:keys], self.factors[:keys], out=parts)

    def visible(self) -> int:
        """The number of keys, from the first, that the queries can see."""
        return int(self.queries.max()) + 1 if self.causal else len(self.weights)

    def through(self, linear: Linear) -> Float[Tensor, "key head outputs"]:
        """The factors after one more linear map, by the cheaper of two orders of multiplication."""
        _, keys, d_head = self.values.shape
        d = self.output.shape[-1]
        if d_head * (d + keys) < keys * d:
            folded = self.folded(linear).unflatten(0, self.output.shape[:2])
            return torch.bmm(self.values, folded).transpose(0, 1)
        return self.factors @ linear.weight.T

    def folded(self, linear: Linear) -> Float[Tensor, "_ outputs"]:
        """The output projection of all heads times one more linear map: a row for each number of a value vector."""
        key = (self.kind, len(self.passed), id(linear.weight))
        weights = (*self.passed, linear.weight)
        return self.shared.once(key, weights, lambda: self.output.flatten(0, 1) @ linear.weight.T)

    @cached_property
    def grams(self) -> Float[Tensor, "seen_key head head"]:
        """The Gram matrices of the factors of the keys that the queries can see."""
        some = max(1, NUMBERS // self.factors[0].numel())
        return gram_matrices(self.factors[: self.visible()].split(some))

    def norms(self) -> Float[Tensor, "query key"]:
        """`||part[i, j]||` from the Gram matrix of each key's factors."""
        keys, queries, heads = self.weights.shape
        norms = self.weights.new_zeros(keys, queries)
        some = max(1, NUMBERS // (heads * queries))
        for start in range(0, self.visible(), some):
            keys_here = slice(start, min(start + some, self.visible()))
            seeing = self.queries >= start if self.causal else slice(None)
            squares = squared_norms(self.weights[keys_here, seeing], self.grams[keys_here])
            norms[keys_here, seeing] = squares.sqrt_().to(norms.dtype)
        return norms.T * self.scale[:, None]

    def head_norms(self) -> Float[Tensor, "head query key"]:
        """`a[h, i, j] * ||f_h(x_j)||`."""
        return self.weights.permute(2, 1, 0) * self.factors.norm(dim=-1).T[:, None]


TILE_CONTEXTS = 4096
"""How many context vectors are held at once."""


@dataclass(frozen=True)
class GatedKeyGroup(KeyGroup):
    """Parts that do not factor into weights and vectors of keys: their channels are gated, by every query in its own way, or
    come by the taps of a convolution.

        part[i, j] = scale_i * (gates_i * sum_tap a[tap, :, i, j] values[tap, :, j]) @ output

    The context vectors are made tile by tile, and multiplied by the output projection (or by all that follows it).
    """

    gates: Float[Tensor, "head query channel"] | None = None

    def select(self, rows: QueryRows) -> GatedKeyGroup:
        gates = None if self.gates is None else self.gates[:, rows]
        return replace(
            self, weights=self.weights[:, rows], scale=self.scale[rows], queries=self.queries[rows], gates=gates
        )

    @property
    def width(self) -> int:
        return self.output.shape[0] * self.output.shape[1]

    def contexts(self, keys: int) -> Float[Tensor, "seen_key query inner"]:
        """The share of the first keys in the contexts of all queries, gated and scaled."""
        heads, d_head, _ = self.output.shape
        taps = len(self.values) // heads
        values = self.values[:, :keys].unflatten(0, (taps, heads)).permute(2, 1, 0, 3)
        weights = self.weights[:keys].unflatten(-1, (taps, heads)).permute(0, 3, 1, 2)
        contexts = (weights @ values).transpose(1, 2)  # key, query, head, channel
        factors = self.scale[:, None, None]
        if self.gates is not None:
            factors = factors * self.gates.transpose(0, 1)
        return contexts.mul_(factors).reshape(keys, -1, heads * d_head)

    def _kept(self, keys: int) -> Float[Tensor, "seen_key query inner"]:
        """The same, kept for a tile that several products are made of."""
        kept: Tensor | None = self.__dict__.get("kept")
        if kept is None or len(kept) < keys:
            kept = self.__dict__["kept"] = self.contexts(keys)
        return kept[:keys]

    def through(self, linear: Linear) -> Float[Tensor, "inner outputs"]:
        return self.folded(linear)

    def put_into(self, neurons: slice, projected: Tensor, into: Float[Tensor, "seen_key query neuron"]) -> Tensor:
        torch.mm(self._kept(len(into)).flatten(0, 1), projected[:, neurons], out=into.flatten(0, 1))
        return into

    def contexts_of(self, query: int, keys: int) -> Float[Tensor, "seen_key inner"]:
        return self._kept(keys)[:, query]

    def add_to(self, parts: Float[Tensor, "seen_key query d"]) -> None:
        parts.flatten(0, 1).addmm_(self._kept(len(parts)).flatten(0, 1), self.output.flatten(0, 1))

    def norms(self) -> Float[Tensor, "query key"]:
        return self._norms.clone()

    @cached_property
    def _norms(self) -> Float[Tensor, "query key"]:
        norms = self.weights.new_zeros(self.weights.shape[1], len(self.weights))
        output = self.output.flatten(0, 1)
        for rows, contexts in self._tiles():
            norms[rows, : len(contexts)] = torch.linalg.vector_norm(contexts @ output, dim=-1).T
        return norms

    def head_norms(self) -> Float[Tensor, "head query key"]:
        """`||(gates_i * a[h, i, j] v_hj) W_O^h||`."""
        heads, d_head, _ = self.output.shape
        norms = self.weights.new_zeros(heads, self.weights.shape[1], len(self.weights))
        for rows, contexts in self._tiles():
            by_head = contexts.unflatten(-1, (heads, d_head))
            for head in range(heads):
                vectors = by_head[..., head, :] @ self.output[head]
                norms[head, rows, : len(contexts)] = torch.linalg.vector_norm(vectors, dim=-1).T
        return norms

    def _tiles(self) -> Iterator[tuple[slice, Float[Tensor, "seen_key row inner"]]]:
        count = self.weights.shape[1]
        height = max(1, TILE_CONTEXTS // len(self.weights))
        for start in range(0, count, height):
            rows = slice(start, min(start + height, count))
            tile = self.select(rows)
            yield rows, tile.contexts(tile.visible())
