"""Gates of attention as players: integrated gradients of `gate * context`, where the gate's share is the query's own.

A gate `g(z)` is a function of the query's own state, and multiplies the output of attention. By default it is a
constant of the pass. Here both follow the straight path from zero, as gate and up projection of a gated feed-forward
do:

    IG of the context = I(z) * context        I(z) = integral of g(t z) over t from 0 to 1
    IG of the gate    = (g(z) - I(z)) * context

so that the parts are gated by `I(z)`, and what is left is added to the part of the query's own token. Tensors, no models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.baseline import BiasBaseline, Counted, baseline
from normscope.chain.trace import Attention, LayerTrace
from normscope.options import Conventions, gates_of


@dataclass(frozen=True)
class JointGates:
    """Gates take a share of what they let through; after that, feed-forwards may start from the bias."""

    then: BiasBaseline | None = None

    def applied(self, trace: LayerTrace) -> LayerTrace:
        """The trace with parts gated by the integrals of its gates, and the gates' shares kept separately."""
        steps = tuple(joint(step) if isinstance(step, Attention) else step for step in trace.steps)
        trace = replace(trace, steps=steps)
        return trace if self.then is None else self.then.applied(trace)


Counting = BiasBaseline | JointGates
"""How a trace is changed before it is measured."""


def joint(step: Attention) -> Attention:
    """An attention with the share of its gates kept separately; one without gates is unchanged."""
    gating = step.gating
    if gating is None:
        return step
    full = gating.activation.function(gating.entering)
    _, integral = gating.activation.gate_slopes(gating.entering)
    if step.gates is None:  # one gate for each head, which is in the weights
        share = torch.where(full == 0, 0, integral / full)
        taken = replace(step, weights=step.weights * share.repeat(step.taps, 1, 1), gating=None)
    else:
        taken = replace(step, gates=torch.cat([step.gates[: gating.ungated], integral]), gating=None)
    return replace(taken, beside=_brought(step) - _brought(taken))


def _brought(step: Attention) -> Float[Tensor, "query d"]:
    """What an attention outputs, without its bias."""
    return step.through_output(step.weights @ step.values)


def counting(conventions: Conventions, counted: Counted) -> Counting | None:
    """How traces are changed before they are measured, so that they count as requested."""
    start = baseline(conventions.ff_baseline, counted)
    return JointGates(start) if gates_of(conventions.gates) == "joint" else start
