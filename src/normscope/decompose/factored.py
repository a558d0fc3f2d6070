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
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.linear import LinearisedNetwork
from normscope.chain.trace import Attention, LayerTrace, Norm, QueryRows
from normscope.decompose.approximate.main_slope import Approximate, ApproximateExpansion
from normscope.decompose.approximate.request import Approximation
from normscope.decompose.approximate.sketch import RestOfChain
from normscope.decompose.carriers import OpenCarrier, Sums
from normscope.decompose.dense import PLAIN, Dense, Expansion, Multiplication, Projected
from normscope.decompose.key_groups import SELF, GatedKeyGroup, KeyGroup
from normscope.errors import UnsupportedArchitectureError


@final
class Factored(OpenCarrier):
    """Parts in factored form; none before the attention, where every state belongs to its own token alone."""

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

    def scaled(self, factor: float | Tensor) -> Factored:
        return Factored(sums=self.sums.scaled(factor), groups=tuple(group.scaled(factor) for group in self.groups))

    def normalise(self, norm: Norm, deviation: Float[Tensor, " query"]) -> Factored:
        groups = tuple(group.normalise(norm, deviation) for group in self.groups)
        return Factored(sums=self.sums.normalise(norm, deviation), groups=groups)

    def feed_forward(
        self,
        networks: list[LinearisedNetwork],
        multiply: Multiplication = PLAIN,
        projected: Projected | None = None,
    ) -> Iterator[tuple[slice, Dense]]:
        yield from Expansion(self.sums, self.groups, networks, multiply, projected).tiles()

    def approximate_feed_forward(
        self,
        networks: list[LinearisedNetwork],
        approximation: Approximation,
        rest: RestOfChain,
        projected: Projected | None,
    ) -> Iterator[tuple[slice, Approximate]]:
        if any(isinstance(group, GatedKeyGroup) for group in self.groups):
            raise UnsupportedArchitectureError(
                "What this model's mixers output is gated in every channel (or comes by a convolution), so that its parts "
                "have no factored form, which approximations of maps need: compute them exactly."
            )
        yield from ApproximateExpansion(self.sums, self.groups, networks, approximation, rest, projected).tiles()

    def maps(self) -> dict[int, Float[Tensor, "query key"]]:
        maps = {group.kind: group.norms() for group in self.groups}
        if SELF in maps:
            rows = torch.arange(len(self.sums.queries), device=maps[SELF].device)
            maps[SELF][rows, self.sums.queries] = self.sums.own.norm(dim=-1)
        return maps
