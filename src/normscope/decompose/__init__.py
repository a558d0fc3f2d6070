"""Exact decomposition of one block's hidden states into one vector per input token, and the norms of those vectors.

Pure PyTorch on tensors. A `Walk` follows the chain of a `LayerTrace`; the carriers (`sums`, `factored`, `dense`) hold
the decomposition in the cheapest form that is still exact at each point. Where the tensors come from is `capture`'s
concern.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxtyping import Int
from torch import Tensor

from normscope.chain.trace import LayerTrace
from normscope.decompose.approximate.request import Approximation, Reached
from normscope.decompose.carriers import Summed, Sums
from normscope.decompose.factored import Factored
from normscope.decompose.maps import Branches, LayerRequest, LayerResult, Walk
from normscope.options import ValueBias
from normscope.scopes import Scope

__all__ = [
    "Approximation",
    "Branches",
    "LayerRequest",
    "LayerResult",
    "Reached",
    "decompose",
    "decomposed",
    "mixing_ratios",
]


def decompose(
    trace: LayerTrace,
    scopes: Sequence[str],
    *,
    heads: bool = False,
    value_bias: ValueBias = "token",
    approximation: Approximation | None = None,
) -> LayerResult:
    """Maps and mixing ratios at `scopes`; the chain is followed only as far as needed.

    With an `approximation`, maps from the feed-forward on are approximate. `heads` and `value_bias` are those of a
    `LayerRequest`.
    """
    request = LayerRequest(tuple(Scope(scope) for scope in scopes), heads=heads, value_bias=value_bias)
    if approximation is not None:
        return Branches(Walk(trace, request)).result(approximation)
    return decomposed(trace, request)


def decomposed(
    trace: LayerTrace, request: LayerRequest, without: Mapping[str, Int[Tensor, " dimension"]] | None = None
) -> LayerResult:
    """The numbers of a layer that are requested. Without maps, a few vectors per query are enough, and no map is ever
    built.

    `without` names sets of dimensions that are left out of the norms after the feed-forward, for further maps.
    """
    if request.maps:
        return Walk(trace, request, without).run(Factored.of_tokens(trace))
    return Walk(trace, request).run(Summed(sums=Sums.of_tokens(trace.hidden, trace.queries)))


def mixing_ratios(trace: LayerTrace, scopes: Sequence[str]) -> LayerResult:
    """Mixing ratios alone."""
    return decomposed(trace, LayerRequest(ratios=tuple(Scope(scope) for scope in scopes)))
