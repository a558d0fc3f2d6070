"""Chats wherever a text is taken: the messages of a chat, laid out by the chat template, as a token sequence with its turns.

`prompt` lays them out and finds every message again; here each token learns which turn it belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from normscope.errors import InputError
from normscope.inputs.prompt import Message, chat_prompt, read_messages
from normscope.inputs.sequence import NO_WORD, NOWHERE, TokenSequence
from normscope.inputs.text import AS_TEXTS, Input, Reading, check_length, read_inputs, word_ids_of, word_strings
from normscope.inputs.units import NO_SPAN, span_of_tokens

Chat = Sequence[Message]
"""The messages of a chat, each with a `role` and a `content`."""

TEMPLATE = ""
"""The turn of tokens that the template adds."""


def read_texts_or_chats(
    inputs: Input | Chat | Sequence[Chat],
    tokenizer: PreTrainedTokenizerBase | None,
    longest: int | None,
    reading: Reading = AS_TEXTS,
) -> tuple[list[TokenSequence], bool]:
    """The sequences of texts, encodings or chats, and whether it was a single one."""
    if is_chat(inputs):
        return [chat_sequence(cast(Chat, inputs), tokenizer, longest, reading)], True
    if isinstance(inputs, list | tuple) and any(map(is_chat, cast("Sequence[object]", inputs))):
        chats = cast("Sequence[Any]", inputs)
        wrong = next((place for place, each in enumerate(chats) if not is_chat(each)), None)
        if wrong is not None:
            raise InputError(
                f"Item {wrong} of the list is a {type(chats[wrong]).__name__}, and others are chats: give chats alone."
            )
        return [chat_sequence(each, tokenizer, longest, reading) for each in chats], False
    return read_inputs(cast(Input, inputs), tokenizer, longest, reading)


def is_chat(value: object) -> bool:
    """Whether something is meant as the messages of a chat."""
    if not isinstance(value, list | tuple) or not value:
        return False
    return all(isinstance(each, Mapping) and "role" in each for each in cast("Sequence[object]", value))


def chat_sequence(
    messages: Chat, tokenizer: PreTrainedTokenizerBase | None, longest: int | None, reading: Reading = AS_TEXTS
) -> TokenSequence:
    """A chat as the model reads it, up to where it answers, or goes on with the last message if that is the assistant's."""
    if tokenizer is None:
        raise InputError("The model was loaded without a tokenizer, which lays out the messages of a chat: name one.")
    prompt = chat_prompt(tokenizer, read_messages(messages))
    owners = span_of_tokens(prompt.text, prompt.offsets, [(each.start, each.end) for each in prompt.segments]).tolist()
    turns = [TEMPLATE if owner == NO_SPAN else prompt.segments[owner].name for owner in owners]
    framing = set(tokenizer.all_special_ids)
    special = [turn == TEMPLATE and number in framing for turn, number in zip(turns, prompt.ids, strict=True)]
    encoding = tokenizer(prompt.text, add_special_tokens=False, verbose=False)
    words = [NO_WORD if frames else word for frames, word in zip(special, word_ids_of(encoding) or [], strict=True)]
    (sequence,), _ = read_inputs({"input_ids": [prompt.ids]}, tokenizer, None)
    sequence = replace(
        sequence,
        special=special,
        word_ids=words,
        words=word_strings(prompt.ids, words, tokenizer),
        text=prompt.text,
        turns=turns,
        offsets=[NOWHERE if frames else span for frames, span in zip(special, prompt.offsets, strict=True)],
    )
    if reading.truncate and longest is not None and len(sequence) > longest:
        raise InputError(
            f"The chat has {len(sequence)} tokens, but the model takes at most {longest}, and a chat that is cut has no end "
            f"to answer at: leave out messages."
        )
    check_length(sequence, longest)
    return sequence
