"""What attention puts into a value directly, layer by layer: along the residual stream, past all later layers.

Used by ALTI-Logit. Feed-forwards and later attentions are left out; norms act by the deviation of the model's own state.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from normscope.chain.trace import (
    Attention,
    CrossAttention,
    FeedForward,
    Fork,
    LayerTrace,
    Normalise,
    OwnFeedForward,
    Residual,
    Scale,
)
from normscope.pullback.block import Covector, PulledAttention, constant_values, pull_back_norm


def direct_attention(trace: LayerTrace, covector: Covector) -> tuple[Float[Tensor, "target every_key"], Covector]:
    """What each key of a layer's attentions puts into the values, and the covectors at the layer's input.

    Keys are the sequence's own tokens, then the encoder's. Only what is linear in a token's state counts.
    """
    covector = covector.to(trace.hidden.device)
    brought = covector.new_zeros(len(covector), trace.length + trace.source_length)
    bypasses: list[Covector] = []
    for step in reversed(trace.steps):
        match step:
            case Residual():
                bypasses.append(covector)
            case Fork():
                covector = covector + bypasses.pop()
            case Normalise():
                covector = pull_back_norm(step, covector)
            case Scale():
                covector = covector * step.factor
            case Attention():
                start = trace.length if isinstance(step, CrossAttention) else 0
                keys = step.values.shape[1]
                brought[:, start : start + keys] += _by_key(step, covector)
                covector = covector.new_zeros(covector.shape)
            case FeedForward():
                covector = covector if isinstance(step, OwnFeedForward) else covector.new_zeros(covector.shape)
    return brought, covector


def _by_key(step: Attention, covector: Covector) -> Float[Tensor, "target key"]:
    heads, d_head, _ = step.output.shape
    at_context = (covector @ step.output.flatten(0, 1).T).unflatten(-1, (heads, d_head)).transpose(1, 2)
    constant = constant_values(step.linear_source)
    values = step.values if constant is None else step.values - constant
    return PulledAttention(step, at_context).edges(values).sum(1)
