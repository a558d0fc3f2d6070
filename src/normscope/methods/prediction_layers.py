"""Attributions by methods that go through the layers: rows of rollouts, ALTI with the logit's direction, DecompX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from normscope.decompose.propagate import BiasShare, Block, Columns, starting_vectors
from normscope.errors import CompletenessError, InputError, UnsupportedArchitectureError, listing
from normscope.explain.direct import direct_attention
from normscope.explain.task import Asked, Attributed, read_off
from normscope.methods.layer import Alti, LayerMethod
from normscope.methods.maps import maps_by
from normscope.methods.prediction import SharesOnly
from normscope.results.analysis import Analysis

_ONE_LAYER = 1
"""So little memory (in bytes) that no more than a layer's trace is kept."""


# ---- rollouts ------------------------------------------------------------------------------------------------------------


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
    def options(self) -> dict[str, Any]:
        return self.of.options

    @property
    def facts(self) -> dict[str, str | int]:
        return self.of.facts

    def attribute(self, asked: Asked) -> Attributed:
        played, _ = read_off(asked, max_memory=_ONE_LAYER)
        model, scopes = asked.model, None
        if self.of.name in ("norms", "projections"):  # they have many scopes: the whole layer's is rolled out
            scopes = [*model.scopes[-1:], *model.encoder_scopes[-1:]]
        analysis = maps_by(model, asked.sequence, self.of, scopes, asked.request.dtype, asked.request.tell)
        last = _rolled(analysis)[-1]
        rows = [last[played.tokens(target)].mean(0) for target in range(len(played.answers))]
        main, encoder = _to_inputs(np.stack(rows), analysis)
        return Attributed(played.answers, played.head.logits, played.values, main, encoder)


def _rolled(analysis: Analysis) -> np.ndarray:
    """`[layer, query, key]` of a rollout at the method's scope, or the last there is; what does not exist counts nothing."""
    scope = analysis.attrs.get("scope", str(analysis.scopes[-1]) if len(analysis.scopes) > 1 else None)
    rolled = analysis.rollout(None if scope is None else str(scope))
    return np.nan_to_num(rolled.transpose("layer", "query", "key").values.astype(np.float64))


def _to_inputs(rows: np.ndarray, analysis: Analysis) -> tuple[Tensor, Tensor | None]:
    """Rows over the keys of a decoder, those of the encoder's states followed to its inputs by its own rollout."""
    if not analysis.has_encoder:
        return torch.from_numpy(rows), None
    own = analysis.dataset["key_group"].values != "source"
    through = rows[:, ~own] @ _rolled(analysis.encoder)[-1]
    return torch.from_numpy(rows[:, own]), torch.from_numpy(through)


@dataclass(frozen=True)
class AltiLogit(SharesOnly):
    """What every layer's attention adds to the logit directly, followed to the inputs by ALTI's rollout of the layers below.

    As in the paper, what feed-forwards and the token's own embedding add is left out, so that shares do not add up.
    """

    name: ClassVar[str] = "alti-logit"
    summary: ClassVar[str] = (
        "what each layer's attention adds to the logit directly, followed to the tokens by ALTI; no feed-forwards"
    )
    quantity: ClassVar[str] = "update of the logit by attention"
    signed: ClassVar[bool] = True
    cost: ClassVar[str] = "that of ALTI's maps, and a pass that keeps all traces"
    operations: ClassVar[str] = "2 L n^2 H d"
    paper: ClassVar[str] = "Ferrando et al. 2023"
    passes: ClassVar[int] = 3

    def attribute(self, asked: Asked) -> Attributed:
        played, recording = read_off(asked, max_memory=asked.request.max_memory)
        request = asked.request
        analysis = maps_by(asked.model, asked.sequence, Alti(), None, request.dtype, request.tell)
        rolled = _rolled(analysis)
        length = rolled.shape[1]
        shares, covector = np.zeros((len(played.answers), rolled.shape[-1])), played.pulled.covector
        for layer, trace in recording.back():
            brought, covector = direct_attention(trace, covector)
            values = brought.double().cpu().numpy()
            shares[:, length:] += values[:, length:]
            shares += values[:, :length] @ (_identity(rolled) if layer == 1 else rolled[layer - 2])
        main, encoder = _to_inputs(shares, analysis)
        return Attributed(played.answers, played.head.logits, played.values, main, encoder)


def _identity(rolled: np.ndarray) -> np.ndarray:
    """Before the first layer every state is its own token's."""
    return np.eye(rolled.shape[1], rolled.shape[2])


# ---- DecompX -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DecompX(SharesOnly):
    """The parts of the inputs carried through all layers and contracted with the output row, biases shared out on the way.

    `bias="apart"` is the pull-back, at a higher price. The head's own bias is shared out once, at the end.
    """

    bias: BiasShare = "absdot"

    name: ClassVar[str] = "decompx"
    through_slopes: ClassVar[bool] = True
    summary: ClassVar[str] = "what each token puts into the logit, with all biases shared out over the tokens; adds up"
    quantity: ClassVar[str] = "logit"
    signed: ClassVar[bool] = True
    cost: ClassVar[str] = "about n forward passes in one batch; memory of n x n vectors"
    operations: ClassVar[str] = "2 L n^2 (4 d^2 + 2 d F + n d)"
    paper: ClassVar[str] = "Modarressi et al. 2023"
    passes_per_token: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.bias not in get_args(BiasShare):
            raise InputError(f"The bias is shared out by {listing(get_args(BiasShare))}, not by {self.bias!r}.")

    def attribute(self, asked: Asked) -> Attributed:
        if asked.sequence.target is not None:
            raise UnsupportedArchitectureError(
                "DecompX carries parts through one stack of layers, and this model has an encoder beside its decoder. "
                "pull-back goes through both."
            )
        played, recording = read_off(asked, max_memory=None)
        blocks = [Block(trace) for _, trace in recording.back()][::-1]
        columns = Columns(range(blocks[0].length), bias=True)
        vectors, _ = starting_vectors(blocks[0], columns)
        for block in blocks:
            vectors = block.carry(vectors, None, columns, self.bias)
        contracted = torch.einsum("tqd,qcd->tc", played.pulled.covector, vectors)
        shares, bias = contracted[:, :-1], contracted[:, -1] + played.pulled.bias
        if self.bias != "apart":
            shares, bias = _shared_out(shares, bias, self.bias)
        sizes = torch.maximum(shares.abs().sum(-1) + bias.abs(), played.values.abs())
        errors = (shares.sum(-1) + bias - played.values).abs() / sizes
        if not float(errors.amax()) <= asked.model.tolerance:
            raise CompletenessError(
                f"By DecompX the tokens' shares do not add up to the model's own value: relative error "
                f"{float(errors.amax()):.2e}, tolerance {asked.model.tolerance:.0e}. There is no explanation."
            )
        return Attributed(played.answers, played.head.logits, played.values, shares, None, bias, errors)


def _shared_out(
    shares: Float[Tensor, "target token"], bias: Float[Tensor, " target"], by: BiasShare
) -> tuple[Float[Tensor, "target token"], Float[Tensor, " target"]]:
    """What is left of the biases at the logit, shared out by the sizes of the tokens' shares, or equally."""
    weights = (shares != 0).to(shares.dtype) if by == "equal" else shares.abs()
    total = weights.sum(-1, keepdim=True)
    weights = weights / torch.where(total == 0, 1, total)
    return shares + weights * bias[:, None], bias * (total[:, 0] == 0)
