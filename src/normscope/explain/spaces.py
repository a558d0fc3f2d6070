"""Words with and without the space before them: two tokens of most vocabularies, and the wrong one is easily asked for."""

from __future__ import annotations

from collections.abc import Iterator

from jaxtyping import Float
from torch import Tensor

from normscope.explain.question import Answer, LogitQuestion, label_name
from normscope.families.heads import labels_of

SPACES = ("\u0120", "\u2581")
"""How byte-level and SentencePiece vocabularies write the space before a word."""

_FAR_MORE = 10
"""How many times as probable the other token is, where it is worth a word."""


def note_on_spaces(question: LogitQuestion, answer: Answer, chances: Float[Tensor, " label"]) -> str:
    """A sentence where a word was asked about whose twin with a space is far more probable; else nothing."""
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
