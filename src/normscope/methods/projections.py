"""Projection maps: the share of every part in the state itself, signed, adding up to 1, and split over heads everywhere.

`score[i, j] = <part[i, j], y_i> / ||y_i||^2`, from one pull-back of all scopes of a layer: no part is ever formed, and
there is no product of n x n vectors with the feed-forward's matrices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.measure import AnyMeasure, CaptureDepth, Errors, LayerMeasure, Variables
from normscope.chain.trace import CrossAttention, LayerTrace
from normscope.errors import SelectionError, listing
from normscope.methods import declared
from normscope.methods.layer import LayerMethod, MapRequest, refuse_options
from normscope.methods.maps import by_scope, error_variables, state_after
from normscope.pullback.block import PulledBlock, pull_back_block
from normscope.results import schema
from normscope.scopes import Scope, components_needed, scopes_of


@dataclass
class LayerProjection:
    """The projections of one layer by scope: maps, the bias' share of every query, maps of heads, and the errors.

    A map is the sum of the heads' maps and, on the diagonal, of what the token keeps by residuals and its own feed-forward.
    """

    maps: dict[str, Float[Tensor, "query key"]] = field(default_factory=dict)
    bias: dict[str, Float[Tensor, " query"]] = field(default_factory=dict)
    heads: dict[str, Float[Tensor, "head query key"]] = field(default_factory=dict)
    errors: dict[str, Float[Tensor, " query"]] = field(default_factory=dict)


@dataclass(frozen=True)
class Projections(LayerMeasure[LayerProjection]):
    """Projection maps at some scopes, and, if requested, those of every head.

    They are added to the norm maps of a dataset or, `alone`, replace them.
    """

    scopes: tuple[Scope, ...]
    heads: bool = False
    alone: bool = False

    def reach(self, components: Sequence[str]) -> CaptureDepth:
        return CaptureDepth(components_needed(self.scopes, components))

    def of_layer(self, trace: LayerTrace) -> LayerProjection:
        ends = _ends(trace)
        scopes = sorted((scope for scope in self.scopes if scope in ends), key=lambda scope: -ends[scope])
        pulled = pull_back_block(trace, {ends[scope]: _direction(trace, ends[scope])[None] for scope in scopes})
        projection = LayerProjection()
        for target, scope in reversed(list(enumerate(scopes))):
            self._note(projection, scope, target, pulled, trace)
        return projection

    def _note(
        self, projection: LayerProjection, scope: Scope, target: int, pulled: PulledBlock, trace: LayerTrace
    ) -> None:
        by_head = _head_scores(pulled, target, trace)
        scores = by_head.sum(0)
        rows = torch.arange(len(trace.queries), device=scores.device)
        scores[rows, trace.queries] += (pulled.direct[target] * trace.hidden).sum(-1)
        if pulled.own is not None and target < len(pulled.own.covector):
            scores[rows, trace.queries] += pulled.own.shares()[target]
        bias = pulled.bias[target]
        projection.errors[scope] = (scores.sum(-1) + bias - 1).abs()
        projection.bias[scope] = bias
        projection.maps[scope] = _marked(scores, trace)
        if self.heads:
            projection.heads[scope] = _marked(by_head, trace)

    def errors(self, state: dict[int, LayerProjection], layer: int) -> Errors:
        return state[layer].errors

    def variables(self, result: Mapping[int, LayerProjection]) -> Variables:
        layers = list(result.values())
        scopes = [Scope(scope) for scope in layers[0].maps]
        along, name, head_name = ("projection_scope", schema.PROJECTION, schema.HEAD_PROJECTION)
        if self.alone:
            along, name, head_name = ("scope", schema.MAP, schema.HEAD_MAP)
        quantity = {"quantity": "projection"}
        maps = by_scope([layer.maps for layer in layers], scopes)
        biases = by_scope([layer.bias for layer in layers], scopes)
        variables: Variables = {
            along: [str(scope) for scope in scopes],
            name: ((along, "layer", "query", "key"), maps, quantity),
            schema.PROJECTION_BIAS: ((along, "layer", "query"), biases, quantity),
        }
        if self.alone:
            variables |= error_variables([layer.errors for layer in layers])
        else:
            errors = by_scope([layer.errors for layer in layers], scopes).max(-1)
            variables[schema.PROJECTION_ERROR] = (along, "layer"), errors
        if layers[0].heads:
            heads = by_scope([layer.heads for layer in layers], scopes)
            head_along = "head_scope" if self.alone else along
            variables |= {"head": np.arange(1, 1 + heads.shape[2]), head_along: [str(scope) for scope in scopes]}
            variables[head_name] = (head_along, "layer", "head", "query", "key"), heads, quantity
        return variables


def _ends(trace: LayerTrace) -> dict[str, int]:
    """The number of steps that end each scope."""
    scopes = iter(scopes_of(trace.components, weights=False))
    return {next(scopes): index + 1 for index, step in enumerate(trace.steps) if step.name}


def _direction(trace: LayerTrace, end: int) -> Float[Tensor, "query d"]:
    """`y_i / ||y_i||^2`, with `y_i` the model's own state after some steps."""
    state = state_after(trace, end)
    return state / state.square().sum(-1, keepdim=True)


def _head_scores(pulled: PulledBlock, target: int, trace: LayerTrace) -> Float[Tensor, "head query every_key"]:
    """What every head brings from every key, of the sequence itself and of the encoder."""
    keys = trace.length + trace.source_length
    weights = pulled.attentions[0].attention.mixing_weights
    scores = weights.new_zeros(*weights.shape[:2], keys)
    for attention in pulled.attentions:
        if target < len(attention.covector):
            values = attention.attention.values
            start = trace.length if isinstance(attention.attention, CrossAttention) else 0
            product = (attention.covector[target] @ values.mT).mul_(attention.attention.weights)
            scores[..., start : start + values.shape[1]] += attention.attention.summed_taps(product)
    return scores


def _marked(scores: Float[Tensor, "*head query key"], trace: LayerTrace) -> Float[Tensor, "*head query key"]:
    """Keys after the query, which do not exist for a causal model, marked as missing."""
    if not trace.causal:
        return scores
    keys = torch.arange(scores.shape[-1], device=scores.device)
    return scores.masked_fill((keys > trace.queries[:, None]) & (keys < trace.length), torch.nan)


@dataclass(frozen=True)
class ProjectionsMethod(declared.ProjectionsMethod, LayerMethod):
    """Projections alone, without the norms and their price."""

    def measures(self, request: MapRequest) -> list[AnyMeasure]:
        refuse_options(self, request, takes=("scopes", "heads", "ff_baseline"))
        return [Projections(projected_scopes(request), request.heads, alone=True)]


def projected_scopes(request: MapRequest) -> tuple[Scope, ...]:
    """The requested scopes at which there are projections; raises if none of those that the user named is one."""
    scopes = tuple(scope for scope in request.scopes if scope.quantity == "norm")
    if request.given and not scopes:
        raise SelectionError(
            f"There are no projections at {listing(request.scopes)}: attention weights are not vectors."
        )
    return scopes
