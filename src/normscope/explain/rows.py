"""The head at some rows of the logits: a row is as long as the vocabulary, and few of them are explained."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.chain.head_trace import Activate, HeadTrace
from normscope.chain.trace import Normalise
from normscope.explain.question import LogitQuestion, Rows
from normscope.explain.recording import Played
from normscope.families.heads import head_of
from normscope.families.heads.spec import LinearPart, ScalePart
from normscope.families.spec import NormPart
from normscope.models.model import Model
from normscope.pullback import pull_back_head, sizes_of, values_of


def played_rows(model: Model, head: HeadTrace, rows: Rows, leaving: Float[Tensor, "token d"]) -> Played:
    """The values wanted at some rows, whose `head` is proved; `leaving` are the states of all tokens before it."""
    few = [(place, wanted) for place, (_, wanted) in enumerate(rows)]
    found = LogitQuestion(model, few).answers(head.logits)
    targets = [answer.target for answer in found]
    answers = [replace(each, position=row) for each, (row, _) in zip(found, rows, strict=True) if row is not None]
    with torch.no_grad():
        pulled = pull_back_head(head, targets)
        values, sizes = values_of(head, targets), sizes_of(head, targets)
    model.proof.head(head, sorted({label for target in targets for label in target.weights}))
    places = torch.tensor([row for row, _ in rows], device=pulled.tokens.device)
    pulled = replace(pulled, tokens=places[pulled.tokens], length=len(leaving))
    return Played(answers, replace(head, states=leaving), pulled, values, sizes)


def keeps_rows(model: Model) -> bool:
    """Whether the model can leave out rows of its logits, and its head does nothing that depends on their number."""
    plain = all(isinstance(part, NormPart | LinearPart | ScalePart) for part in head_of(model.module).parts)
    return plain and "logits_to_keep" in signature(model.module.forward).parameters


def head_of_rows(head: HeadTrace, rows: Tensor, *, few: bool) -> HeadTrace:
    """The trace of a head for some of its rows; `few` says that the model output the logits of these alone."""
    steps = tuple(
        replace(step, state_before=step.state_before[rows.to(step.state_before.device)])
        if isinstance(step, Normalise | Activate)
        else step
        for step in head.steps
    )
    return HeadTrace(head.states[rows], steps, head.logits if few else head.logits[rows.to(head.logits.device)])
