"""What is to be explained: from what a user names (a word, a label, a position) to rows and labels of the model's logits.

Owns the words of a question and every error about them. How the answer is computed is not decided here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.capture.heads import HeadListener
from normscope.errors import InputError, SelectionError, listing
from normscope.families.heads import head_of, labels_of
from normscope.families.heads.spec import LANGUAGE_MODELLING, Head, Task
from normscope.head_trace import HeadTrace, Target
from normscope.inputs import TokenSequence, decoder_side, read_inputs, with_targets
from normscope.trace import Linear

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

_ROW_PER_TOKEN: tuple[Task, ...] = ("token-classification", "question-answering", "replaced-token")
"""Tasks, beside language modelling, whose logits have a row for every token."""

LabelName = str | int
"""A label as people name it: a word of the vocabulary, a class by its name, or the number of either."""


@dataclass(frozen=True)
class Wanted:
    """What a user asks: a label (default: what the model predicts), another to set against it, and where.

    Instead of a label, the model's own continuation for some tokens, or a direction of the last state.
    """

    target: LabelName | None = None
    against: LabelName | None = None
    at: int | None = None
    continue_for: int | None = None
    direction: Float[Tensor, " d"] | Literal["state"] | None = None


Rows = Sequence[tuple[int | None, Wanted]]
"""Rows of the logits, with what is wanted at each; `None` is the row that the model itself chooses for the label."""


@dataclass(frozen=True)
class Answer:
    """One value to explain: a row of the logits, a label or several labels with weights, and how they are called."""

    target: Target
    name: str
    position: int


class Question(ABC):
    """What is asked of one pass: which values, and what must be heard of the model to know them."""

    @abstractmethod
    def listener(
        self, lengths: Sequence[int], encoder_lengths: Sequence[int] | None, dtype: torch.dtype
    ) -> HeadListener | None:
        """Who listens to the model's head, if it is asked."""

    @abstractmethod
    def head_of(self, states: Float[Tensor, "token d"]) -> HeadTrace:
        """A head of the question's own, where the model's is not asked."""

    @property
    @abstractmethod
    def reads_tokens(self) -> bool:
        """Whether every value is read off a token of its own, and not off the whole input."""

    @abstractmethod
    def answers(self, logits: Float[Tensor, "row label"]) -> list[Answer]:
        """The values to explain."""


@dataclass(frozen=True)
class LogitQuestion(Question):
    """Logits of the model's own head, or differences of two."""

    analyzer: Analyzer
    rows: Rows

    def listener(
        self, lengths: Sequence[int], encoder_lengths: Sequence[int] | None, dtype: torch.dtype
    ) -> HeadListener:
        model, family = self.analyzer.model, self.analyzer.family
        return HeadListener(model, family, lengths, dtype=dtype, encoder_lengths=encoder_lengths)

    @property
    def reads_tokens(self) -> bool:
        task = head_of(self.analyzer.model).task
        return task in LANGUAGE_MODELLING or task in _ROW_PER_TOKEN

    def head_of(self, states: Float[Tensor, "token d"]) -> HeadTrace:
        raise ValueError("a question about logits has no head of its own")

    def answers(self, logits: Float[Tensor, "row label"]) -> list[Answer]:
        return [_answer(self.analyzer, row, wanted, logits) for row, wanted in self.rows]


@dataclass(frozen=True)
class DirectionQuestion(Question):
    """The last state of a token along a direction of the user's own, or along itself: for models without a head."""

    position: int
    direction: Float[Tensor, " d"] | None

    def listener(self, lengths: Sequence[int], encoder_lengths: Sequence[int] | None, dtype: torch.dtype) -> None:
        return None

    @property
    def reads_tokens(self) -> bool:
        return True

    def head_of(self, states: Float[Tensor, "token d"]) -> HeadTrace:
        own = states[self.position]
        direction = own / own.square().sum() if self.direction is None else self.direction.to(own)
        if direction.shape != own.shape:
            raise InputError(f"The direction has shape {tuple(direction.shape)}, but a state has {tuple(own.shape)}.")
        weight = Linear(direction[None])
        return HeadTrace(states, (weight,), states @ weight.weight.T)

    def answers(self, logits: Float[Tensor, "row label"]) -> list[Answer]:
        name = "the state itself" if self.direction is None else "the direction"
        return [Answer(Target(self.position, {0: 1.0}), name, self.position)]


def read_question(analyzer: Analyzer, sequence: TokenSequence, wanted: Wanted) -> tuple[TokenSequence, Question]:
    """The sequence that the model is made to read, and what is asked of its logits, or of its last states."""
    if wanted.direction is not None:
        return _along_direction(analyzer, sequence, wanted)
    longer, rows = _read(analyzer, sequence, wanted)
    return longer, LogitQuestion(analyzer, rows)


def _along_direction(
    analyzer: Analyzer, sequence: TokenSequence, wanted: Wanted
) -> tuple[TokenSequence, DirectionQuestion]:
    has_encoder, text = analyzer.family.encoder is not None, wanted.target
    if wanted.against is not None or wanted.continue_for is not None or (text is not None and not has_encoder):
        raise InputError("A direction takes the place of a target: give one of them.")
    if has_encoder:
        if not isinstance(text, str):
            raise InputError("Give the text that the decoder reads (target=...), along whose last states to look.")
        options = (analyzer.model, analyzer.tokenizer, analyzer.longest)
        (sequence,) = with_targets([sequence], text, *options, truncate=False)
    vector = None if isinstance(wanted.direction, str) else wanted.direction
    return sequence, DirectionQuestion(position_of(wanted.at, len(sequence.target or sequence)), vector)


def _read(analyzer: Analyzer, sequence: TokenSequence, wanted: Wanted) -> tuple[TokenSequence, Rows]:
    """The sequence that the model is made to read, and the rows of its logits with what is wanted at each.

    A continuation of several tokens is read after the text, and every one of its tokens is wanted at its own row.
    """
    head = head_of(analyzer.model)
    if wanted.continue_for is not None:
        wanted = _continuing(analyzer, head, sequence, wanted)
    match head.task:
        case "causal-lm":
            return _continued(analyzer, sequence, wanted)
        case "seq2seq-lm":
            return _decoded(analyzer, sequence, wanted)
        case "masked-lm":
            return sequence, [(_masked_row(analyzer, sequence, wanted.at), _one_token(analyzer, wanted))]
        case _:
            return _for_classifier(analyzer, sequence), [(_row(head, sequence, wanted.at), wanted)]


def _answer(analyzer: Analyzer, row: int | None, wanted: Wanted, logits: Float[Tensor, "row label"]) -> Answer:
    count = logits.shape[-1]
    if row is None:
        row = int(logits[:, _label(analyzer, wanted.target or 0, count)].argmax())
    label = int(logits[row].argmax()) if wanted.target is None else _label(analyzer, wanted.target, count)
    name, weights = label_name(analyzer, label), {label: 1.0}
    if wanted.against is not None:
        other = _label(analyzer, wanted.against, count)
        if other == label:
            raise InputError(f"Target and contrast are the same label, {name!r}: their difference is always zero.")
        weights[other] = -1.0
        name = f"{name} - {label_name(analyzer, other)}"
    return Answer(Target(row, weights), name, row)


def label_name(analyzer: Analyzer, label: int) -> str:
    """A label as people read it: the text of a token, or the name of a class."""
    names = labels_of(analyzer.model)
    if names is not None:
        return names[label] if label < len(names) else str(label)
    if analyzer.tokenizer is None:
        return str(label)
    return cast(str, analyzer.tokenizer.decode([label]))


def _label(analyzer: Analyzer, wanted: LabelName, count: int) -> int:
    names = labels_of(analyzer.model)
    if isinstance(wanted, int):
        if not 0 <= wanted < count:
            raise SelectionError(f"There is no label {wanted}: {analyzer.name} has {count}, from 0 to {count - 1}.")
        return wanted
    if names is None:
        (token,) = tokens_of(analyzer, wanted)
        return token
    folded = {name.casefold(): label for label, name in enumerate(names)}
    label = folded.get(wanted.casefold())
    if label is None:
        raise SelectionError(f"There is no label {wanted!r}. The labels of {analyzer.name}: {listing(names)}.")
    return label


# ---- tokens ------------------------------------------------------------------------------------------------------------


def tokens_of(analyzer: Analyzer, text: str) -> list[int]:
    """The token ids of a word or a continuation, as they stand in the middle of a text."""
    tokenizer = analyzer.tokenizer
    if tokenizer is None:
        raise InputError(
            f"The target {text!r} is a text, but the model was loaded without a tokenizer: give the token's id."
        )
    if not text:
        raise InputError("The target is empty. Name a word, or leave it out for what the model predicts.")
    known = tokenizer.get_vocab()
    ids = [known[text]] if text in known else cast("list[int]", tokenizer(text, add_special_tokens=False)["input_ids"])
    if not ids or tokenizer.unk_token_id in ids:
        raise InputError(
            f"The target {text!r} is not in the vocabulary of {analyzer.name}: its tokenizer has no token for it."
        )
    return ids


def _one_token(analyzer: Analyzer, wanted: Wanted) -> Wanted:
    """Refuse words of several tokens where the model predicts one."""
    for word in (wanted.target, wanted.against):
        if isinstance(word, str) and len(ids := tokens_of(analyzer, word)) > 1:
            pieces = [label_name(analyzer, number) for number in ids]
            raise InputError(
                f"The target {word!r} is {len(ids)} tokens here ({listing(pieces)}), but one token is predicted at a mask. "
                f"Name one of them, or another word."
            )
    return wanted


def _continued(analyzer: Analyzer, sequence: TokenSequence, wanted: Wanted) -> tuple[TokenSequence, Rows]:
    """A causal model: what comes after the text, or after the token `at`."""
    last = position_of(wanted.at, len(sequence))
    if isinstance(wanted, _Continuing):
        ids = wanted.ids
    elif isinstance(wanted.target, str):
        ids = tokens_of(analyzer, wanted.target)
    else:
        return sequence, [(last, _first_tokens(analyzer, wanted))]
    if wanted.against is not None:
        common, pair = _difference(analyzer, ids, wanted.against)
        return _extended(analyzer, sequence, last, common), [(last + len(common), replace(wanted, **pair))]
    longer = _extended(analyzer, sequence, last, ids[:-1])
    return longer, [(last + place, Wanted(number)) for place, number in enumerate(ids)]


@dataclass(frozen=True)
class _Continuing(Wanted):
    """The tokens that the model itself continues with."""

    ids: list[int] = field(default_factory=list[int])


def _continuing(analyzer: Analyzer, head: Head, sequence: TokenSequence, wanted: Wanted) -> _Continuing:
    """What a causal model says next, the most probable token at each step, up to the end of the text."""
    count = wanted.continue_for
    if head.task != "causal-lm":
        raise InputError(f"continue_for is for models that continue a text: {analyzer.name} does {head.task}.")
    if wanted.target is not None or wanted.against is not None:
        raise InputError("continue_for takes the place of a target: give one of them.")
    if count is None or count < 1:
        raise InputError(f"A text is continued for at least one token, not for {count}.")
    last = position_of(wanted.at, len(sequence))
    ids = torch.tensor([sequence.features["input_ids"][: last + 1]], device=analyzer.model.device)
    generate = cast(Any, analyzer.model).generate
    options = {"do_sample": False, "num_beams": 1, "max_new_tokens": count, "pad_token_id": 0}
    output = generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options)
    return _Continuing(at=wanted.at, ids=output[0, last + 1 :].tolist())


def _first_tokens(analyzer: Analyzer, wanted: Wanted) -> Wanted:
    """A contrast to the model's own prediction is the first token of the word."""
    if isinstance(wanted.against, str):
        return replace(wanted, against=tokens_of(analyzer, wanted.against)[0])
    return wanted


def _difference(analyzer: Analyzer, ids: list[int], against: LabelName) -> tuple[list[int], dict[str, int]]:
    """The tokens that two words begin with alike, and the first in which they differ."""
    others = [against] if isinstance(against, int) else tokens_of(analyzer, against)
    for place, (one, other) in enumerate(zip(ids, others, strict=False)):
        if one != other:
            return ids[:place], {"target": one, "against": other}
    raise InputError(
        f"Target and contrast begin with the same tokens and one of them ends there: there is no token in which "
        f"{against!r} differs."
    )


def _extended(analyzer: Analyzer, sequence: TokenSequence, last: int, ids: list[int]) -> TokenSequence:
    """The sequence up to a token, and some tokens after it."""
    if not ids and last == len(sequence) - 1:
        return sequence
    features: dict[str, Any] = {"input_ids": [[*sequence.features["input_ids"][: last + 1], *ids]]}
    (longer,), _ = read_inputs(features, analyzer.tokenizer, analyzer.longest, words=False, truncate=False)
    words = [*sequence.words[: last + 1], *longer.words[last + 1 :]]
    word_ids = None
    if sequence.word_ids is not None:
        kept = sequence.word_ids[: last + 1]
        word_ids = [*kept, *(1 + max(kept) + number for number in range(len(ids)))]
    special = [*sequence.special[: last + 1], *longer.special[last + 1 :]]
    return replace(longer, words=words, word_ids=word_ids, special=special)


def _decoded(analyzer: Analyzer, sequence: TokenSequence, wanted: Wanted) -> tuple[TokenSequence, Rows]:
    """An encoder-decoder: the text that its decoder is made to give out, token by token, or what it gives out by itself."""
    text = wanted.target if isinstance(wanted.target, str) else None
    options = (analyzer.model, analyzer.tokenizer, analyzer.longest)
    (paired,) = with_targets([sequence], text, *options, truncate=False)
    assert paired.target is not None
    output = paired.target.features["input_ids"][1:]
    if wanted.at is None and wanted.against is None and not isinstance(wanted.target, int):
        rows = [(row, Wanted(number)) for row, number in enumerate(output)]
        return paired, [*rows, (len(output), Wanted())]
    row = position_of(wanted.at, len(paired.target), default=0)
    named = wanted.target if isinstance(wanted.target, int) else ([*output, None][row])
    return paired, [(row, replace(_first_tokens(analyzer, wanted), target=named))]


def _for_classifier(analyzer: Analyzer, sequence: TokenSequence) -> TokenSequence:
    """What a classifier reads; the decoder of an encoder-decoder reads the same text, shifted by one."""
    if analyzer.family.encoder is None or sequence.target is not None:
        return sequence
    return replace(sequence, target=decoder_side(sequence, analyzer.model, analyzer.tokenizer))


def _masked_row(analyzer: Analyzer, sequence: TokenSequence, at: int | None) -> int:
    """The masked token, of which there must be one, or the token asked for."""
    if at is not None:
        return position_of(at, len(sequence))
    mask = getattr(analyzer.tokenizer, "mask_token_id", None)
    rows = [row for row, number in enumerate(sequence.features["input_ids"]) if number == mask]
    if len(rows) != 1:
        word = getattr(analyzer.tokenizer, "mask_token", "[MASK]")
        raise InputError(
            f"{analyzer.name} fills in masked tokens, and the text has {len(rows)} of them. Write {word} once where it "
            f"should predict, or say at which token (at=...)."
        )
    return rows[0]


def _row(head: Head, sequence: TokenSequence, at: int | None) -> int | None:
    """The row of a classifier: its only one, that of a token, or, of a question's answer, the one it chooses."""
    if head.task not in _ROW_PER_TOKEN:
        if at is not None:
            raise SelectionError("This model gives one answer for the whole input: leave out the position (at).")
        return 0
    if at is not None:
        return position_of(at, len(sequence))
    if head.task == "question-answering":
        return None
    raise InputError(f"This model gives an answer for every token: say for which one (at=0 to {len(sequence) - 1}).")


def position_of(at: int | None, length: int, default: int = -1) -> int:
    """A position among the tokens, negative from the end."""
    position = default if at is None else at
    if not -length <= position < length:
        raise SelectionError(
            f"There is no token {position}: the input has {length}, 0 to {length - 1} (or -{length} to -1)."
        )
    return position % length
