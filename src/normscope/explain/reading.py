"""Where a value is read off the last layer: which tokens' states the head looks at, and along which direction.

For methods that go through the layers forwards, or by maps, and need only this of the prediction.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.explain.asked import Asked
from normscope.explain.question import Answer
from normscope.explain.recording import Recording
from normscope.head_trace import HeadTrace
from normscope.pullback import PulledHead, pull_back_head, values_of


@dataclass(frozen=True)
class Reading:
    """The values asked about, by the model's own logits, as functions of the states that leave the last layer."""

    answers: list[Answer]
    head: HeadTrace
    pulled: PulledHead
    values: Float[Tensor, " target"]
    recording: Recording

    def tokens(self, target: int) -> list[int]:
        """The tokens that a value is read off."""
        return sorted(set(self.pulled.tokens[self.pulled.targets == target].tolist()))


def read_off(asked: Asked, *, max_memory: int | None) -> Reading:
    """One pass through the model; its recording keeps as many layers as memory holds."""
    request = asked.request
    recording = Recording(asked.analyzer, asked.sequence, request.dtype, max_memory, request.tell, request.baseline)
    head = recording.play(asked.question)
    answers = asked.question.answers(head.logits)
    targets = [answer.target for answer in answers]
    with torch.no_grad():
        return Reading(answers, head, pull_back_head(head, targets), values_of(head, targets), recording)
