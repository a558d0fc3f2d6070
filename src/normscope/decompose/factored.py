"""The factored form, the carrier up to the activation: attention weights times one vector per head and key.

Until the activation every step is either one linear map for all queries (output projection, centring, gamma) or one scalar
per query (a deviation, the factor of a branch). Off the diagonal, parts are therefore

    part[i, j] = scale_i * sum_h a[h, i, j] * values[h, j] @ output[h]

where linear maps act on `output`, which holds weights only, and scalars on `scale`: nothing of size n x n x d exists. The
diagonal `part[i, i]`, which residuals add to, is the `own` row of the sums. Norms follow from the Gram matrix `G` of each
key's factors `U_h = values[h, j] @ output[h]`: `||sum_h a_h U_h||^2 = a^T G a`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.chain.linear import LinearisedNetwork, scale_
from normscope.chain.trace import Attention, CrossAttention, LayerTrace, Linear, Norm, QueryRows, Shared
from normscope.decompose.approximate.main_slope import Approximate, ApproximateExpansion
from normscope.decompose.approximate.request import Approximation
from normscope.decompose.approximate.sketch import RestOfChain
from normscope.decompose.carriers import NUMBERS, SELF, SOURCE, OpenCarrier, Sums, gram_matrices, squared_norms
from normscope.decompose.dense import Dense, Expansion, Projected
from normscope.errors import UnsupportedArchitectureError
from normscope.options import Products


@dataclass(frozen=True)
class KeyGroup:
    """The off-diagonal parts of one group of keys, in factored form. Keys come first, as batched products want them."""

    kind: int
    weights: Float[Tensor, "key query head"]
    values: Float[Tensor, "head key d_head"]
    output: Float[Tensor, "head d_head d"]
    scale: Float[Tensor, " query"]
    queries: Int[Tensor, " query"]
    causal: bool
    shared: Shared
    passed: tuple[Tensor, ...]
    """The weights that `output` is made of."""

    @staticmethod
    def of(attention: Attention, queries: Int[Tensor, " query"], *, causal: bool, bias_apart: bool = False) -> KeyGroup:
        values, value_bias = attention.values, attention.value_bias if bias_apart else None
        if value_bias is not None:
            values = values - value_bias[:, None]
        weights = attention.weights.permute(2, 1, 0).contiguous()
        scale = torch.ones_like(weights[0, :, 0])
        cross = isinstance(attention, CrossAttention)
        kind, causal = (SOURCE, False) if cross else (SELF, causal)
        return KeyGroup(
            kind, weights, values, attention.output, scale, queries, causal, attention.shared, (attention.output,)
        )

    def select(self, rows: QueryRows) -> KeyGroup:
        selected = replace(self, weights=self.weights[:, rows], scale=self.scale[rows], queries=self.queries[rows])
        selected.__dict__["factors"] = self.factors  # they do not depend on the query
        if "grams" in self.__dict__:
            selected.__dict__["grams"] = self.grams
        return selected

    def scaled(self, factor: float) -> KeyGroup:
        return replace(self, scale=self.scale * factor)

    def normalise(self, norm: Norm, deviation: Float[Tensor, " query"]) -> KeyGroup:
        output = scale_(norm, self.output.clone())
        return replace(self, output=output, scale=self.scale / deviation, passed=(*self.passed, norm.weight))

    @cached_property
    def factors(self) -> Float[Tensor, "key head d"]:
        """`U[j, h] = values[h, j] @ output[h]`."""
        return torch.bmm(self.values, self.output).transpose(0, 1)

    @property
    def scaled_weights(self) -> Float[Tensor, "key query head"]:
        return self.weights * self.scale[:, None]

    def visible(self) -> int:
        """How many keys, from the first, the queries can see."""
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


@final
class Factored(OpenCarrier):
    """Parts in factored form; none before the attention, where every state is still its own token's."""

    @staticmethod
    def of_tokens(trace: LayerTrace) -> Factored:
        """Where a block starts."""
        return Factored(sums=Sums.of_tokens(trace.hidden, trace.queries))

    def select(self, rows: QueryRows) -> Factored:
        return Factored(sums=self.sums.select(rows), groups=tuple(group.select(rows) for group in self.groups))

    def attend(self, attention: Attention, *, causal: bool, bias_apart: bool = False) -> Factored:
        group = KeyGroup.of(attention, self.sums.queries, causal=causal, bias_apart=bias_apart)
        return Factored(sums=self.sums.attend(attention, bias_apart=bias_apart), groups=(group,))

    def add(self, bypass: OpenCarrier) -> Factored:
        groups = sorted((*self.groups, *bypass.groups), key=lambda group: group.kind)
        if len({group.kind for group in groups}) < len(groups):
            raise UnsupportedArchitectureError(
                "Both branches of a residual connection bring parts of the same keys by attention, in one block. "
                "Blocks with a second attention to the same tokens are not supported."
            )
        return Factored(sums=self.sums.add(bypass.sums), groups=tuple(groups))

    def scaled(self, factor: float) -> Factored:
        return Factored(sums=self.sums.scaled(factor), groups=tuple(group.scaled(factor) for group in self.groups))

    def normalise(self, norm: Norm, deviation: Float[Tensor, " query"]) -> Factored:
        groups = tuple(group.normalise(norm, deviation) for group in self.groups)
        return Factored(sums=self.sums.normalise(norm, deviation), groups=groups)

    def feed_forward(
        self, networks: list[LinearisedNetwork], products: Products | None = None, projected: Projected | None = None
    ) -> Iterator[tuple[slice, Dense]]:
        yield from Expansion(self.sums, self.groups, networks, products, projected).tiles()

    def approximate_feed_forward(
        self,
        networks: list[LinearisedNetwork],
        approximation: Approximation,
        rest: RestOfChain,
        projected: Projected | None,
    ) -> Iterator[tuple[slice, Approximate]]:
        yield from ApproximateExpansion(self.sums, self.groups, networks, approximation, rest, projected).tiles()

    def maps(self) -> dict[int, Float[Tensor, "query key"]]:
        maps = {group.kind: group.norms() for group in self.groups}
        if SELF in maps:
            rows = torch.arange(len(self.sums.queries), device=maps[SELF].device)
            maps[SELF][rows, self.sums.queries] = self.sums.own.norm(dim=-1)
        return maps
