"""What a method is asked, and what any method answers: values, tokens' shares, and what the model predicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from normscope.explain.probabilities import each_by_itself, has_probabilities, probabilities
from normscope.explain.pulling import PullRequest
from normscope.explain.question import Answer, LogitQuestion, Question, label_name
from normscope.explain.recording import Played, Recording
from normscope.explain.spaces import note_on_spaces
from normscope.inputs import TokenSequence
from normscope.models.model import Model

_MOST_PREDICTIONS = 5


@dataclass(frozen=True)
class Asked:
    """One input with what is asked about it, and how its pull-back is done where one is."""

    model: Model
    sequence: TokenSequence
    question: Question
    request: PullRequest

    def within(self, memory: int | None) -> Asked:
        """The same with another limit of the memory (bytes) that traces take."""
        return replace(self, request=replace(self.request, max_memory=memory))


@dataclass(frozen=True)
class Attributed:
    """Shares of the tokens in each value. `encoder` has those of an encoder's tokens.

    With a `bias`, shares and bias are meant to add up to the values, and `errors` say how far they are from it.
    """

    answers: list[Answer]
    logits: Float[Tensor, "row label"]
    values: Float[Tensor, " target"]
    shares: Float[Tensor, "target token"]
    encoder: Float[Tensor, "target source"] | None = None
    bias: Float[Tensor, " target"] | None = None
    errors: Float[Tensor, " target"] | None = None


@dataclass(frozen=True)
class Predictions:
    """The labels of highest probability at the row of each value: their names and probabilities, `[target][rank]`.

    `each_by_itself`: several may be true at once. `note` is what a user should know of the words that were asked about.
    """

    names: list[list[str]]
    probabilities: Float[Tensor, "target rank"]
    each_by_itself: bool
    note: str


def predictions_of(
    model: Model, question: Question, logits: Float[Tensor, "row label"], answers: Sequence[Answer]
) -> Predictions | None:
    """What the model predicts where the answers are read off, if its labels have probabilities."""
    if not isinstance(question, LogitQuestion) or not has_probabilities(model.module, logits.shape[-1]):
        return None
    rows = probabilities(model.module, logits[[answer.target.row for answer in answers]].detach().float())
    top = rows.topk(min(_MOST_PREDICTIONS, rows.shape[-1]))
    names = [[label_name(model, label) for label in labels] for labels in top.indices.tolist()]
    return Predictions(names, top.values, each_by_itself(model.module), note_on_spaces(question, answers[0], rows[0]))


# ---- Where a value is read off the last layer: which tokens' states the head looks at, and along which direction.
#
# For methods that go through the layers forwards, or by maps, and need only this of the prediction.


def read_off(asked: Asked) -> tuple[Played, Recording]:
    """One pass through the model: the values asked about, and its recording, which keeps as many layers as memory holds."""
    recording = Recording(asked.model, asked.sequence, asked.request)
    return recording.play(asked.question), recording
