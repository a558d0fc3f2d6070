"""Edges cut in the real model, next to what an explanation says of them.

An edge is one key's value for one query at one layer, over all heads and without what biases put into it. To cut it, the
model is run with

    attention output of query i  -  sum over heads h of a[h, i, j] (values[h, j] - constant[h]) W_O[h]

at that layer: everything after it, including attention weights, norms and slopes, is recomputed. The explanation predicts
the change with all of these fixed. The two would be equal if the model were linear from there on; their agreement measures
what fixing leaves out.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normscope.capture import Side, blocks_of
from normscope.capture.hooks import hooks
from normscope.chain.trace import Attention, LayerTrace
from normscope.errors import CompletenessError, UnsupportedArchitectureError
from normscope.explain.model_values import Values
from normscope.explain.recording import Recording
from normscope.explain.task import Asked
from normscope.families.spec import AttentionBesideMixer, AttentionPart, Part
from normscope.pullback import PulledLayer, pull_back_layer
from normscope.pullback.block import constant_values


@dataclass(frozen=True, order=True)
class Edge:
    """From the token `key` before a layer (from 1) to the token `query` after it; keys of an encoder come last."""

    layer: int
    query: int
    key: int


Cut = Mapping[str, Float[Tensor, "query d"]]
"""What is taken away at a layer: a vector for every query, by the path of an attention's output projection."""


@dataclass(frozen=True)
class Predicted:
    """How values change without each of some edges, and without all of them: then what flows through two of them, one after
    the other, counts once."""

    alone: Float[Tensor, "edge target"]
    together: Float[Tensor, " target"]


class EdgeCuts:
    """The model of an explanation, run with edges cut, and what the pull-back predicts of edges that are cut together."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked

    @cached_property
    def values(self) -> Values:
        """The values explained, as the model computes them."""
        return Values(self.asked.model, self.asked.sequence, self.asked.question)

    def check_same(self, target: int, explained: float) -> None:
        """Raise if the model no longer gives the value that was explained: its weights or hooks have changed since."""
        own, logits = float(self.values.own[target]), self.values.logits
        size = max(1.0, abs(explained), float(logits[logits.isfinite()].abs().amax()))
        if not abs(own - explained) <= self.asked.model.tolerance * size:
            raise CompletenessError(
                f"The value that was explained is {explained:.6g}, and {self.asked.model.name} now gives {own:.6g}: it has "
                f"changed since. Explain again, then verify."
            )

    def observed(self, edges: Sequence[Edge]) -> Float[Tensor, " target"]:
        """How the values change in the real model without these edges, all of them at once.

        From layer to layer: what an edge carries after another was cut below it is what it carries then.
        """
        cuts: dict[int, Cut] = {}
        for layer in sorted({edge.layer for edge in edges}):
            own = [edge for edge in edges if edge.layer == layer]
            cuts[layer] = self._carried(layer, own, cuts)
        values = self.values
        with self._without(cuts) as met:
            (changed,) = values.of_sequences([self.asked.sequence], [values.rows])
        missed = sorted({layer for layer in cuts if layer not in met})
        if missed:
            raise UnsupportedArchitectureError(
                f"Nothing can be cut in layer {missed[0]} of {self.asked.model.name}: its attention does not call its "
                f"output projection as a module."
            )
        return changed - values.own

    def predicted(self, edges: Sequence[Edge]) -> Predicted:
        """How they change with everything fixed, attention weights as well: also where an explanation counts the weights.

        Its numbers share out what value and weight make together. A cut takes the value away, and with it all of that.
        """
        request = replace(self.asked.request, head_edges=False, tell=None, weights="constant")
        recording = Recording(self.asked.model, self.asked.sequence, request)
        played = recording.play(self.asked.question)
        whole = rest = played.pulled.covector
        alone, together = dict[Edge, Tensor](), torch.zeros_like(played.values)
        lowest = min(edge.layer for edge in edges)
        for layer, trace in recording.back():
            own = [edge for edge in edges if edge.layer == layer]
            pulled = pull_back_layer(trace, whole)
            remaining = pulled if rest is whole else pull_back_layer(trace, rest)
            for edge in own:
                alone[edge] = -_along(pulled, edge).to(together)
                together = together - _along(remaining, edge).to(together)
            if layer == lowest:
                break
            whole = pulled.covector
            rest = pull_back_layer(_weights_cut(trace, own), rest).covector if own else remaining.covector
        return Predicted(torch.stack([alone[edge] for edge in edges]), together)

    def _carried(self, layer: int, edges: Sequence[Edge], below: Mapping[int, Cut]) -> Cut:
        """What edges of a layer carry, after others were cut below it."""
        carried: dict[str, Tensor] = {}

        def consume(_: int, __: int, trace: LayerTrace) -> None:
            self.asked.model.proof.layer(trace, f"layer {layer}")
            for path, step in zip(self._outputs(layer), _attentions(trace), strict=True):
                carried[path] = _edges_of(trace, step, edges)

        model, sequence = self.asked.model, self.asked.sequence
        (batch,) = model.batches([sequence])
        side = Side(
            model.family.stack,
            batch.target_lengths or batch.lengths,
            [layer],
            consume,
            batch.lengths if batch.target_lengths else None,
        )
        with self._without(below):
            model.capture(batch, [side], dtype=self.asked.request.dtype or _arithmetic(self.asked))
        return carried

    def _outputs(self, layer: int) -> list[str]:
        """The paths of the output projections of a layer's attentions, in the order of its chain."""
        chains = self._chains
        return [part.output for part in _attention_parts(chains[(layer - 1) % len(chains)])]

    @property
    def _chains(self) -> list[Sequence[Part]]:
        model = self.asked.model
        return [topology.chain() for topology in model.family.stack.topologies(model.config)]

    @contextmanager
    def _without(self, cuts: Mapping[int, Cut]) -> Generator[set[int]]:
        """While it lasts, the model runs without what these layers are to lose; gives the layers that have lost it."""
        model = self.asked.model
        counter = _LayerCounter(model.family.stack.depth(model.config))
        blocks, chains = blocks_of(model.module, model.family.stack), self._chains
        with hooks(model.module) as handles:
            for block in dict.fromkeys(blocks):
                handles.append(block.register_forward_pre_hook(counter.enter))
                for part in _attention_parts(chains[blocks.index(block) % len(chains)]):
                    scale = _factor_of(part, block)
                    hook = partial(_subtract, counter, cuts, part.output, scale)
                    handles.append(block.get_submodule(part.output).register_forward_hook(hook))
            yield counter.changed


def _factor_of(part: AttentionPart, block: nn.Module) -> Tensor | None:
    """The factor that the block applies to the output of the output projection."""
    if isinstance(part, AttentionBesideMixer):
        return torch.tensor(part.factors[0])
    path = getattr(part, "layer_scale", None)
    return None if path is None else _tensor_at(block, path)


def _attention_parts(chain: Sequence[Part]) -> list[AttentionPart]:
    return [part for part in chain if isinstance(part, AttentionPart)]


class _LayerCounter:
    """The layer that is being run, counted by calls, since layers may share modules, and the layers changed so far."""

    def __init__(self, depth: int) -> None:
        self.depth, self.layer = depth, 0
        self.changed = set[int]()

    def enter(self, *_: object) -> None:
        """A block begins; after the last one, the first of the next pass."""
        self.layer = self.layer % self.depth + 1


def _subtract(
    counter: _LayerCounter,
    cuts: Mapping[int, Cut],
    path: str,
    scale: Tensor | None,
    _: nn.Module,
    __: object,
    output: Tensor,
) -> Tensor:
    cut = cuts.get(counter.layer, {}).get(path)
    if cut is None:
        return output
    counter.changed.add(counter.layer)
    vectors = cut if scale is None else cut / scale
    return output - vectors.to(output).view_as(output)


def _edges_of(trace: LayerTrace, step: Attention, edges: Sequence[Edge]) -> Float[Tensor, "query d"]:
    """The contributions of some edges of a layer to the output of one of its attentions."""
    keys, source = step.keys(trace), step.linear_source
    constant = constant_values(source)
    values = step.values if constant is None else step.values - constant
    chosen = torch.zeros_like(step.weights[0])
    for edge in edges:
        if keys.start <= edge.key < keys.stop:
            chosen[edge.query, edge.key - keys.start] = 1
    return step.through_output((step.weights * chosen) @ values)


def _along(pulled: PulledLayer, edge: Edge) -> Float[Tensor, " target"]:
    edges = pulled.flow.edges
    assert edges is not None
    return edges[:, edge.query, edge.key]


def _weights_cut(trace: LayerTrace, edges: Sequence[Edge]) -> LayerTrace:
    """The trace of a layer without some edges in its attentions."""

    def cut(step: Attention) -> Attention:
        keys, weights = step.keys(trace), step.weights.clone()
        for edge in edges:
            if keys.start <= edge.key < keys.stop:
                weights[:, edge.query, edge.key - keys.start] = 0
        return replace(step, weights=weights)

    return replace(trace, steps=tuple(cut(step) if isinstance(step, Attention) else step for step in trace.steps))


def _attentions(trace: LayerTrace) -> list[Attention]:
    return [step for step in trace.steps if isinstance(step, Attention)]


def _tensor_at(block: nn.Module, path: str) -> Tensor:
    owner, _, name = path.rpartition(".")
    return getattr(block.get_submodule(owner), name)


def _arithmetic(asked: Asked) -> torch.dtype:
    return torch.promote_types(asked.model.weight_dtype, torch.float32)
