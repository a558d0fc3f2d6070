"""The parts of a group of keys, as attention weights times per-head factors, and their norms from Gram matrices.

`part[i, j] = scale_i * sum_h a[h, i, j] * U[j, h]` with the factors `U[j, h] = values[h, j] @ output[h]`, so that
`||part[i, j]||^2 = scale_i^2 * a[:, i, j] @ G[j] @ a[:, i, j]` with the Gram matrix `G[j]` of the factors of key `j`.
Squared norms are computed in float64, since heads cancel.
"""

from __future__ import annotations

from collections.abc import Iterable
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
