"""What attention puts into a value directly, layer by layer: along the residual stream, past all later layers.

Used by ALTI-Logit. Feed-forwards and later attentions are left out; norms act by the deviation of the model's own state.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from normscope.chain.fold import Point, Rules, fold_back
from normscope.chain.trace import Attention, FeedForward, LayerTrace, Normalise, OwnFeedForward
from normscope.pullback.block import Covector, PulledAttention, constant_values, pull_back_norm


def direct_attention(trace: LayerTrace, covector: Covector) -> tuple[Float[Tensor, "target every_key"], Covector]:
    """What each key of a layer's attentions puts into the values, and the covectors at the layer's input.

    Keys are the sequence's own tokens, then the encoder's. Only what is linear in a token's state counts.
    """
    covector = covector.to(trace.hidden.device)
    rules = _Direct(trace, covector.new_zeros(len(covector), trace.length + trace.source_length))
    return rules.by_key, fold_back(trace.steps, rules, Point(covector)).value


@dataclass(frozen=True)
class _Direct(Rules[Tensor]):
    """Covectors that go back through norms and residuals alone; at attentions, what they meet there is added to `by_key`."""

    trace: LayerTrace
    by_key: Float[Tensor, "target every_key"]

    def attention(self, step: Attention, value: Covector) -> Covector:
        self.by_key[:, step.keys(self.trace)] += _by_key(step, value)
        return value.new_zeros(value.shape)

    def normalise(self, step: Normalise, value: Covector) -> Covector:
        return pull_back_norm(step, value)

    def feed_forward(self, step: FeedForward, value: Covector) -> Covector:
        return value.new_zeros(value.shape)

    def own_feed_forward(self, step: OwnFeedForward, value: Covector) -> Covector:
        return value


def _by_key(step: Attention, covector: Covector) -> Float[Tensor, "target key"]:
    constant = constant_values(step.linear_source)
    values = step.values if constant is None else step.values - constant
    return PulledAttention.of(step, covector).edges(values).sum(1)
