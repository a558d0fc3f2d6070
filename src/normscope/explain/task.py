"""The task of a method, and its result: values, tokens' shares, and what the model predicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.explain.probabilities import each_by_itself, has_probabilities, probabilities
from normscope.explain.pulling import PullRequest
from normscope.explain.question import Answer, LogitQuestion, Question, label_name
from normscope.explain.recording import Played, Recording
from normscope.families.heads import labels_of
from normscope.inputs import TokenSequence
from normscope.models.model import Model

_MOST_PREDICTIONS = 5


@dataclass(frozen=True)
class Asked:
    """One input with the question about it, and how its pull-back is done where one is."""

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
    """The labels of highest probability at the row of each value: their names and probabilities, `[target][rank]`; and the
    probability of the label that is explained itself (of a contrast, the first).

    `each_by_itself`: several may be true at once. `note` is what a user should know of the words in question.
    """

    names: list[list[str]]
    probabilities: Float[Tensor, "target rank"]
    of_targets: Float[Tensor, " target"]
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
    labels = torch.tensor([next(iter(answer.target.weights)) for answer in answers], device=rows.device)
    own = rows.gather(1, labels[:, None])[:, 0]
    note = note_on_spaces(question, answers[0], rows[0])
    return Predictions(names, top.values, own, each_by_itself(model.module), note)


# ---- Where a value is read off the last layer: which tokens' states the head looks at, and along which direction.
#
# For methods that go through the layers forwards, or by maps, and need only this of the prediction.


def read_off(asked: Asked) -> tuple[Played, Recording]:
    """One pass through the model: the explained values, and its recording, which keeps as many layers as memory holds."""
    recording = Recording(asked.model, asked.sequence, asked.request)
    return recording.play(asked.question), recording


# ---- words with and without the space before them: two tokens of most vocabularies -----------------------------------


SPACES = ("\u0120", "\u2581")
"""How byte-level and SentencePiece vocabularies write the space before a word."""

_FAR_MORE = 10
"""How many times as probable the other token is, where it is worth a word."""


def note_on_spaces(question: LogitQuestion, answer: Answer, chances: Float[Tensor, " label"]) -> str:
    """A note if a word was requested whose variant with a space is far more probable; else empty."""
    return " ".join(_notes(question, answer, chances))


def _notes(question: LogitQuestion, answer: Answer, chances: Float[Tensor, " label"]) -> Iterator[str]:
    if labels_of(question.model.module) is not None:
        return
    asked = (question.asked.target, "--target"), (question.asked.against, "--against")
    for (word, option), label in zip(asked, answer.target.weights, strict=False):
        if not isinstance(word, str) or word[:1].isspace():
            continue
        twin = spaced_twin(question, label)
        if twin is None or not chances[twin] >= _FAR_MORE * chances[label]:
            continue
        name, spaced = (label_name(question.model, number).strip() for number in (label, twin))
        yield (
            f"The token {name!r} without a space before it has probability {float(chances[label]):.2g}, and with a space, "
            f"{' ' + spaced!r}, {float(chances[twin]):.2g}. If that is meant, write {option} {' ' + word!r}."
        )


def spaced_twin(question: LogitQuestion, label: int) -> int | None:
    """The token that is the same with a space before it, where the vocabulary has it."""
    tokenizer = question.model.tokenizer
    name = None if tokenizer is None else tokenizer.convert_ids_to_tokens(label)
    if tokenizer is None or not isinstance(name, str) or name.startswith(SPACES):
        return None
    known = tokenizer.get_vocab()
    return next((known[space + name] for space in SPACES if space + name in known), None)
