"""Leave-one-out: what a value loses without a token, which is masked, dropped, or replaced by the mean embedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.errors import InputError, listing
from normscope.explain.model_values import Values
from normscope.explain.removal import NO_ROW, removal_of, without_each
from normscope.explain.task import Asked, Attributed
from normscope.methods import declared
from normscope.methods.prediction import STATES_AT_ONCE, SharesOnly
from normscope.options import Removal


@dataclass(frozen=True)
class LeaveOneOut(declared.LeaveOneOut, SharesOnly):
    """What a value loses without a token."""

    leaves_out = True

    def __post_init__(self) -> None:
        if self.removal not in get_args(Removal):
            raise InputError(f"A token is removed by {listing(get_args(Removal))}, not by {self.removal!r}.")

    def attribute(self, asked: Asked) -> Attributed:
        model, sequence, question = asked.model, asked.sequence, asked.question
        removal = removal_of(model, sequence, self.removal)
        values = Values(model, sequence, question)
        shares = _without_states(values) if removal == "mean" else _without_tokens(asked, values, removal)
        length = values.entering[0].shape[1]
        encoder = shares[:, length:] if len(values.entering) > 1 else None
        return Attributed(values.answers, values.logits, values.own, shares[:, :length], encoder)


def _without_tokens(asked: Asked, values: Values, removal: Removal) -> Float[Tensor, "target token"]:
    """What every value loses without each token; missing where it does not exist without it."""
    withouts = without_each(asked.model, asked.sequence, asked.question, values.rows, removal)
    count = sum(each.shape[1] for each in values.entering)
    shares = values.own.new_full((len(values.answers), count), torch.nan)
    if not withouts:
        return shares
    others = values.of_sequences([each.sequence for each in withouts], [each.rows for each in withouts])
    for without, other in zip(withouts, others, strict=True):
        lost = torch.tensor([row == NO_ROW for row in without.rows], device=other.device)
        shares[:, without.place] = _loss(values, other).masked_fill(lost, torch.nan)
    return shares


def _without_states(values: Values) -> Float[Tensor, "target token"]:
    """What every value loses when the mean of the states that enter the first block takes the place of one of them."""
    pieces: list[Tensor] = []
    with torch.no_grad():
        for side, states in enumerate(values.entering):
            length = states.shape[1]
            at_once = max(1, STATES_AT_ONCE // max(each.shape[1] for each in values.entering))
            for places in torch.arange(length, device=states.device).split(at_once):
                changed = [each.repeat(len(places), 1, 1) for each in values.entering]
                changed[side][torch.arange(len(places), device=places.device), places] = states.mean(1)
                pieces.append(_loss(values, values.of_states(*changed)))
    return torch.cat(pieces).T


def _loss(values: Values, other: Float[Tensor, "*input target"]) -> Float[Tensor, "*input target"]:
    """How much the values lose. What is no number is infinite here: missing is only what does not exist."""
    return (values.own - other).nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
