"""Exact decomposition of one block's hidden states into one vector per input token, and the norms of those vectors.

Pure PyTorch on tensors. A `Walk` follows the chain of a `LayerTrace`; the carriers (`sums`, `factored`, `dense`) hold the
decomposition in the cheapest form that is still exact at each point. How the tensors came about is `capture`'s concern.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxtyping import Int
from torch import Tensor

from normscope.chain.trace import LayerTrace
from normscope.decompose.approximate.request import Approximation, Reached
from normscope.decompose.carriers import Summed, Sums
from normscope.decompose.factored import Factored
from normscope.decompose.maps import Branches, LayerResult, Walk

__all__ = ["Approximation", "Branches", "LayerResult", "Reached", "decompose", "mixing_ratios"]


def decompose(
    trace: LayerTrace,
    scopes: Sequence[str],
    *,
    ratios: Sequence[str] = (),
    heads: bool = False,
    value_bias: str = "token",
    approximation: Approximation | None = None,
    without: Mapping[str, Int[Tensor, " dimension"]] | None = None,
) -> LayerResult:
    """Maps and mixing ratios at `scopes`, and ratios alone at further ones; the chain is followed only as far as needed.

    `value_bias="bias"` counts the value projection's bias with the bias, not with the `"token"`; it needs a trace that was
    captured below attention. With an `approximation`, maps from the feed-forward on are approximate. `without` names sets of
    dimensions that are left out of the norms after the feed-forward, for further maps from the same parts.
    """
    walk = Walk(
        trace, maps=scopes, ratios=(*scopes, *ratios), heads=heads, value_bias=value_bias, without=without or {}
    )
    if approximation is not None:
        return Branches(walk).result(approximation)
    return walk.run(Factored.of_tokens(trace))


def mixing_ratios(trace: LayerTrace, scopes: Sequence[str], *, value_bias: str = "token") -> LayerResult:
    """Mixing ratios alone, by the cheap route: a few vectors per query at every scope, and never a map."""
    walk = Walk(trace, maps=(), ratios=scopes, heads=False, value_bias=value_bias)
    return walk.run(Summed(sums=Sums.of_tokens(trace.hidden, trace.queries)))
