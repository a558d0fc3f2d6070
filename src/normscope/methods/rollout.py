"""Rollouts: maps of attention weights to multiply over layers, and what the rollout of any method says of a prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from normscope.chain.measure import AnyMeasure
from normscope.explain.task import Asked, Attributed, read_off
from normscope.methods import declared
from normscope.methods.across_layers import maps_by
from normscope.methods.layer import LayerMethod, MapRequest, refuse_options
from normscope.methods.norms import Decomposition
from normscope.methods.prediction import SharesOnly
from normscope.results.analysis import Analysis
from normscope.scopes import CROSS_WEIGHTS, HALF_ATTENTION_WEIGHTS, Scope, basis


@dataclass(frozen=True)
class AttentionRollout(declared.AttentionRollout, LayerMethod):
    @property
    def scope(self) -> Scope:
        return HALF_ATTENTION_WEIGHTS

    def measures(self, request: MapRequest) -> list[AnyMeasure]:
        refuse_options(self, request, takes=("heads",))
        weights = (basis(HALF_ATTENTION_WEIGHTS), CROSS_WEIGHTS)
        return [Decomposition(maps=tuple(s for s in request.scopes if s in weights), heads=request.heads)]


_ONE_LAYER = 1
"""So little memory (in bytes) that no more than a layer's trace is kept."""


@dataclass(frozen=True)
class RowOfRollout(SharesOnly):
    """What the rollout of a method's maps says of the states that a value is read off. It knows no labels."""

    of: LayerMethod

    name: ClassVar[str] = "rollout"
    summary: ClassVar[str] = "the row of the rollout of a method's maps at the token that the logit is read off"
    quantity: ClassVar[str] = "share of the rollout"
    cost: ClassVar[str] = "that of the maps, and a product of n x n matrices for each layer"
    operations: ClassVar[str] = "2 L n^3"
    paper: ClassVar[str] = "Abnar & Zuidema 2020"

    @property
    def options(self) -> dict[str, object]:
        return self.of.options

    @property
    def facts(self) -> dict[str, str | int]:
        return self.of.facts

    def attribute(self, asked: Asked) -> Attributed:
        played, _ = read_off(asked.within(_ONE_LAYER))
        model, scopes = asked.model, None
        if self.of.name in ("norms", "projections"):  # they have many scopes: the whole layer's is rolled out
            scopes = [*model.scopes[-1:], *model.encoder_scopes[-1:]]
        analysis = maps_by(model, asked.sequence, self.of, scopes, asked.request.dtype, asked.request.tell)
        last = rolled_out(analysis)[-1]
        rows = [last[played.tokens(target)].mean(0) for target in range(len(played.answers))]
        main, encoder = to_inputs(np.stack(rows), analysis)
        return Attributed(played.answers, played.head.logits, played.values, main, encoder)


def rolled_out(analysis: Analysis) -> np.ndarray:
    """`[layer, query, key]` of a rollout at the method's scope, or the last there is; what does not exist counts nothing."""
    scope = analysis.attrs.get("scope", str(analysis.scopes[-1]) if len(analysis.scopes) > 1 else None)
    rolled = analysis.rollout(None if scope is None else str(scope))
    return np.nan_to_num(rolled.transpose("layer", "query", "key").values.astype(np.float64))


def to_inputs(rows: np.ndarray, analysis: Analysis) -> tuple[Tensor, Tensor | None]:
    """Rows over the keys of a decoder, those of the encoder's states followed to its inputs by its own rollout."""
    if not analysis.has_encoder:
        return torch.from_numpy(rows), None
    own = analysis.dataset["key_group"].values != "source"
    through = rows[:, ~own] @ rolled_out(analysis.encoder)[-1]
    return torch.from_numpy(rows[:, own]), torch.from_numpy(through)
