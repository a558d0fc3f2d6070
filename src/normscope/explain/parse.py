"""From what a user says (a word, a label, a position, a continuation) to the question that a model is asked.

Owns the words of a question and every error about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from normscope.errors import InputError, SelectionError, listing
from normscope.explain.question import (
    ROW_PER_TOKEN,
    DirectionQuestion,
    LabelName,
    LogitQuestion,
    Question,
    Rows,
    Wanted,
    label_name,
    tokens_of,
)
from normscope.families.heads import head_of
from normscope.families.heads.spec import Head
from normscope.inputs import (
    NOWHERE,
    TokenSequence,
    decoder_side,
    most_probable,
    own_shift,
    read_ids,
    read_inputs,
    read_target,
    with_targets,
)
from normscope.models.config import no_decoder
from normscope.models.model import Model
from normscope.options import position_of
from normscope.results.find import find_token

_LONGEST_CONTINUED = 4096
"""The longest text for models that do not specify one."""


def read_question(model: Model, sequence: TokenSequence, wanted: Wanted) -> tuple[TokenSequence, Question]:
    """The sequence that the model is made to read, and what is requested of its logits, or of its last states."""
    if wanted.direction is not None:
        return _along_direction(model, sequence, wanted)
    longer, rows = _read(model, sequence, wanted)
    return longer, LogitQuestion(model, rows, wanted)


def _along_direction(model: Model, sequence: TokenSequence, wanted: Wanted) -> tuple[TokenSequence, DirectionQuestion]:
    has_encoder, text = model.family.encoder is not None, wanted.decoder_text
    if wanted.objective not in (None, "logit"):
        raise InputError(f"A direction is no logit: leave out the objective {wanted.objective!r}.")
    if wanted.target is not None or wanted.against is not None or wanted.continue_for is not None:
        raise InputError("A direction takes the place of a target: give one of them.")
    if text is not None and not has_encoder:
        raise InputError(no_decoder(model.name))
    if has_encoder:
        if text is None:
            raise InputError(
                "Give the text that the decoder reads (decoder_text=...), along whose last states to look."
            )
        sequence = _with_text(model, sequence, text)
    vector = None if isinstance(wanted.direction, str) else wanted.direction
    return sequence, DirectionQuestion(_position(wanted.at, sequence.target or sequence), vector)


def _read(model: Model, sequence: TokenSequence, wanted: Wanted) -> tuple[TokenSequence, Rows]:
    """The sequence that the model is made to read, and the rows of its logits with what is wanted at each.

    A continuation of several tokens is read after the text, and every one of its tokens is wanted at its own row.
    """
    head = head_of(model.module)
    if wanted.decoder_text is not None and head.task != "seq2seq-lm":
        raise InputError(
            f"decoder_text is what the decoder of a model reads that outputs a text: {model.name} does {head.task}."
        )
    if wanted.continue_for is not None:
        wanted = _continuing(model, head, sequence, wanted)
    match head.task:
        case "causal-lm":
            return _continued(model, sequence, wanted)
        case "seq2seq-lm":
            return _decoded(model, sequence, wanted)
        case "masked-lm":
            return sequence, [(_masked_row(model, sequence, wanted.at), _one_token(model, wanted))]
        case _:
            if wanted.target is not None and not isinstance(wanted.target, str | int):
                raise InputError(f"The target of a classifier is one label, not {wanted.target!r}.")
            return _for_classifier(model, sequence), [(_row(head, sequence, wanted.at), wanted)]


def _one_token(model: Model, wanted: Wanted) -> Wanted:
    """Refuse words of several tokens where the model predicts one."""
    for word in (wanted.target, wanted.against):
        if word is not None and not isinstance(word, int) and len(ids := tokens_of(model, word)) > 1:
            pieces = [label_name(model, number) for number in ids]
            raise InputError(
                f"The target {word!r} is {len(ids)} tokens here ({listing(pieces)}), but one token is predicted at a mask. "
                f"Name one of them, or another word."
            )
    return wanted


def _of_token(wanted: Wanted, number: int) -> Wanted:
    """What is wanted of one token of a continuation."""
    return Wanted(number, objective=wanted.objective)


def _continued(model: Model, sequence: TokenSequence, wanted: Wanted) -> tuple[TokenSequence, Rows]:
    """A causal model: what comes after the text, or after the token `at`."""
    last = _position(wanted.at, sequence)
    if wanted.target is None or isinstance(wanted.target, int):
        return sequence, [(last, _first_tokens(model, wanted))]
    ids = tokens_of(model, wanted.target)
    if wanted.against is not None:
        common, pair = _difference(model, ids, wanted.against)
        return _extended(model, sequence, last, common), [(last + len(common), replace(wanted, **pair))]
    longer = _extended(model, sequence, last, ids[:-1])
    return longer, [(last + place, _of_token(wanted, number)) for place, number in enumerate(ids)]


def _continuing(model: Model, head: Head, sequence: TokenSequence, wanted: Wanted) -> Wanted:
    """The continuation by a causal model, the most probable token at each step, up to the end of the text."""
    count = wanted.continue_for
    if head.task != "causal-lm":
        raise InputError(f"continue_for is for models that continue a text: {model.name} does {head.task}.")
    if wanted.target is not None or wanted.against is not None:
        raise InputError("continue_for takes the place of a target: give one of them.")
    if count is None or count < 1:
        raise InputError(f"A text is continued for at least one token, not for {count}.")
    if "position_ids" in sequence.features:
        raise InputError("continue_for continues a text: leave out the encoding's position_ids.")
    last = _position(wanted.at, sequence)
    most = longest_continued(model)
    if last + count > most:
        raise InputError(
            f"The text has {last + 1} tokens, and {model.name} takes at most {most}: it cannot be continued "
            f"for {count} tokens, but for {max(0, most - last)} at most."
        )
    ids = sequence.features["input_ids"][: last + 1]
    return Wanted(most_probable(model.module, ids, count), at=wanted.at, objective=wanted.objective)


def longest_continued(model: Model) -> int:
    """How long a text may become; for a model without a limit, the length that its configuration was made for."""
    if model.longest is not None:
        return model.longest
    return getattr(model.config.get_text_config(), "max_position_embeddings", None) or _LONGEST_CONTINUED


def _first_tokens(model: Model, wanted: Wanted) -> Wanted:
    """A contrast to the model's own prediction is the first token of the word."""
    if isinstance(wanted.against, str):
        return replace(wanted, against=tokens_of(model, wanted.against)[0])
    return wanted


def _difference(model: Model, ids: list[int], against: LabelName) -> tuple[list[int], dict[str, int]]:
    """The tokens that two words begin with alike, and the first in which they differ."""
    others = [against] if isinstance(against, int) else tokens_of(model, against)
    for place, (one, other) in enumerate(zip(ids, others, strict=False)):
        if one != other:
            return ids[:place], {"target": one, "against": other}
    raise InputError(
        f"Target and contrast begin with the same tokens and one of them ends there: there is no token in which "
        f"{against!r} differs."
    )


def _extended(model: Model, sequence: TokenSequence, last: int, ids: list[int]) -> TokenSequence:
    """The sequence up to a token, and some tokens after it."""
    if not ids and last == len(sequence) - 1:
        return sequence
    features = {name: [_grown(name, values[: last + 1], ids)] for name, values in sequence.features.items()}
    (longer,), _ = read_inputs(features, model.tokenizer, model.longest)
    words = [*sequence.words[: last + 1], *longer.words[last + 1 :]]
    word_ids = None
    if sequence.word_ids is not None:
        kept = sequence.word_ids[: last + 1]
        word_ids = [*kept, *(1 + max(kept) + number for number in range(len(ids)))]
    special = [*sequence.special[: last + 1], *longer.special[last + 1 :]]
    offsets = None if sequence.offsets is None else [*sequence.offsets[: last + 1], *[NOWHERE] * len(ids)]
    turns = None if sequence.turns is None else [*sequence.turns[: last + 1], *["answer"] * len(ids)]
    return replace(longer, words=words, word_ids=word_ids, special=special, offsets=offsets, turns=turns)


def _grown(name: str, values: list[int], ids: list[int]) -> list[int]:
    """A feature of a text that goes on: its ids, the next positions, the same segment."""
    match name:
        case "input_ids":
            return [*values, *ids]
        case "position_ids":
            return [*values, *(values[-1] + 1 + place for place in range(len(ids)))]
        case _:
            return [*values, *values[-1:] * len(ids)]


def _decoded(model: Model, sequence: TokenSequence, wanted: Wanted) -> tuple[TokenSequence, Rows]:
    """An encoder-decoder: the text that its decoder is made to output, token by token, or what it outputs by itself."""
    if wanted.decoder_text is not None:
        return _after_text(model, sequence, wanted, wanted.decoder_text)
    paired = _with_text(model, sequence, None if isinstance(wanted.target, int) else wanted.target)
    read, output = _rows_of(paired)
    if wanted.at is None and wanted.against is None and not isinstance(wanted.target, int):
        return paired, [(row, _of_token(wanted, number)) for row, number in enumerate(output)]
    row = _position(wanted.at, read, default=0)
    named = wanted.target if isinstance(wanted.target, int) else next(iter(output[row:]), None)
    return paired, [(row, replace(_first_tokens(model, wanted), target=named))]


def _rows_of(paired: TokenSequence) -> tuple[TokenSequence, list[int]]:
    """What the rows of a decoder read, and what they output, as far as it is given."""
    assert paired.target is not None and paired.target.output_ids is not None
    return paired.target, paired.target.output_ids


def _after_text(
    model: Model, sequence: TokenSequence, wanted: Wanted, text: str | Sequence[int]
) -> tuple[TokenSequence, Rows]:
    """An encoder-decoder whose decoder reads a text: what comes after that, or after its token `at`."""
    paired = _with_text(model, sequence, text) if isinstance(text, str) else _reading(model, sequence, text)
    assert paired.target is not None
    row = _position(wanted.at, paired.target)
    if wanted.target is None or isinstance(wanted.target, int):
        return paired, [(row, _first_tokens(model, wanted))]
    before, ids = paired.target.features["input_ids"][1 : row + 1], tokens_of(model, wanted.target)
    if wanted.against is None:
        rows = [(row + place, _of_token(wanted, number)) for place, number in enumerate(ids)]
        return (paired if len(ids) == 1 else _reading(model, sequence, [*before, *ids[:-1]])), rows
    common, pair = _difference(model, ids, wanted.against)
    longer = _reading(model, sequence, [*before, *common]) if common else paired
    return longer, [(row + len(common), replace(wanted, **pair))]


def _with_text(model: Model, sequence: TokenSequence, text: str | Sequence[int] | None) -> TokenSequence:
    """The sequence with what the decoder of an encoder-decoder outputs: a text, token ids, or what it generates."""
    options = (model.module, model.tokenizer, model.longest)
    if text is None or isinstance(text, str):
        (paired,) = with_targets([sequence], text, *options)
        return paired
    return replace(sequence, target=read_target(read_ids(tokens_of(model, text), model.tokenizer), *options))


def _reading(model: Model, sequence: TokenSequence, ids: Sequence[int]) -> TokenSequence:
    """The sequence with a decoder that reads just these tokens after its start."""
    options = (model.module, model.tokenizer, model.longest)
    output = read_ids(tokens_of(model, ids) if ids else [], model.tokenizer)
    return replace(sequence, target=read_target(output, *options, closed=False))


def _for_classifier(model: Model, sequence: TokenSequence) -> TokenSequence:
    """What a classifier reads; the decoder of an encoder-decoder reads the same text, shifted by one."""
    if model.family.encoder is None or sequence.target is not None:
        return sequence
    start = own_shift(sequence, model.module)
    return replace(sequence, target=decoder_side(sequence, model.module, model.tokenizer, start))


def _masked_row(model: Model, sequence: TokenSequence, at: int | str | None) -> int:
    """The masked token, of which there must be one, or the token requested."""
    if at is not None:
        return _position(at, sequence)
    mask = getattr(model.tokenizer, "mask_token_id", None)
    rows = [row for row, number in enumerate(sequence.features["input_ids"]) if number == mask]
    if len(rows) != 1:
        word = getattr(model.tokenizer, "mask_token", "[MASK]")
        raise InputError(
            f"{model.name} fills in masked tokens, and the text has {len(rows)} of them. Write {word} once where it "
            f"should predict, or say at which token (at=...)."
        )
    return rows[0]


def _row(head: Head, sequence: TokenSequence, at: int | str | None) -> int | None:
    """The row of a classifier: its only one, that of a token, or, for question answering, the one it chooses."""
    if head.task not in ROW_PER_TOKEN:
        if at is not None:
            raise SelectionError("This model gives one answer for the whole input: leave out the position (at).")
        return 0
    if at is not None:
        return _position(at, sequence)
    if head.task == "question-answering":
        return None
    raise InputError(f"This model gives an answer for every token: say for which one (at=0 to {len(sequence) - 1}).")


def _position(at: int | str | None, read: TokenSequence, default: int = -1) -> int:
    """The position requested, by its number or by its token, or the default one."""
    if isinstance(at, str):
        return find_token(at, read.tokens, words=read.words)
    return position_of(default if at is None else at, len(read))
