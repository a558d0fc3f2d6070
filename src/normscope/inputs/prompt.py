"""Prompts: documents and a question, or the messages of a chat, as the model reads them, and the position of each in
the text.

The text is laid out by the tokenizer's chat template, or plainly where it has none. Whatever the template adds or
trims, every document, question and turn is found again: the template is also rendered with markers in place of the
messages, and the text around the markers shows where the messages are. Texts that occur twice, or that look like the
template, are no problem.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from normscope.errors import InputError, listing
from normscope.inputs.text import encodable

SegmentKind = Literal["document", "question", "turn", "answer"]
"""The kind of a segment of the text; everything else belongs to the template."""

Context = str | Sequence[str] | Mapping[str, str]
"""One document, several, or several by name."""

Message = Mapping[str, str]
"""One turn of a chat: its `role` and its `content`."""

ASSISTANT = "assistant"
"""The role of the model itself."""

CHAT_LAYOUT = "{context}\n\n{question}"
PLAIN_LAYOUT = "Context:\n{context}\n\nQuestion: {question}\nAnswer:"
"""How documents and question make up a message, or the whole prompt of a model without a chat template.

The plain one begins with a word of its own: many models park attention on the first token, whatever it is.
"""

_CONTEXT, _QUESTION, _BETWEEN = "{context}", "{question}", "\n\n"
_MARK = "\ue000{}\ue001"


@dataclass(frozen=True)
class Segment:
    """The position of a document, a question, a turn or the answer in the text."""

    kind: SegmentKind
    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Prompt:
    """The input of a model before its answer: the text, its tokens with their characters, and the segments in it."""

    text: str
    ids: list[int]
    offsets: list[tuple[int, int]]
    segments: list[Segment]
    chat: bool


# ---- documents and a question ------------------------------------------------------------------------------------------


def read_context(context: Context) -> dict[str, str]:
    """Documents by name; those without one are counted. Raises if one is empty."""
    if isinstance(context, str):
        documents: dict[str, str] = {"document": context}
    elif isinstance(context, Mapping):
        documents = {str(name): text for name, text in context.items()}
    elif isinstance(context, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        documents = {f"document {number}": text for number, text in enumerate(context, 1)}
    else:
        raise InputError(f"A context is a text, a list of texts or texts by name, not {context!r:.60}.")
    if not documents:
        raise InputError("The context has no document. Give at least one, or a question without a context.")
    for name, text in documents.items():
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"The {name} of the context is no text: {text!r:.60}.")
        if not encodable(text).strip():
            raise InputError(f"The {name} of the context is empty. Leave it out, or give its text.")
    return documents


def context_prompt(
    tokenizer: PreTrainedTokenizerBase | None,
    documents: Mapping[str, str],
    question: str | None,
    layout: str | None = None,
    *,
    chat: bool | None = None,
) -> Prompt:
    """The prompt of documents and a question, by the chat template if there is one (or if `chat` says so)."""
    reader = _reader(tokenizer)
    in_chat = _has_template(reader) if chat is None else chat
    if in_chat and not _has_template(reader):
        raise InputError("The tokenizer has no chat template: leave out chat=True, or give messages as plain text.")
    pieces = _laid_out(documents, question, layout, CHAT_LAYOUT if in_chat else PLAIN_LAYOUT)
    content = "".join(text for _, _, text in pieces)
    segments, start = list[Segment](), 0
    for kind, name, text in pieces:
        if kind is not None:
            segments.append(Segment(kind, name, start, start + len(text)))
        start += len(text)
    if not in_chat:
        return _tokenized(reader, content, segments, chat=False)
    text, ((start, end),) = _rendered(reader, ["user"], [content])
    lead = len(content) - len(content.lstrip()) if text[start:end] != content else 0
    return _tokenized(reader, text, [_moved(each, start - lead, start, end) for each in segments], chat=True)


def _laid_out(
    documents: Mapping[str, str], question: str | None, layout: str | None, default: str
) -> list[tuple[SegmentKind | None, str, str]]:
    """The pieces of the content in order: kind, name and text."""
    if question is not None and not encodable(question).strip():
        raise InputError("The question is empty. Ask something, or leave it out.")
    if layout is None:
        layout = default if documents and question is not None else _CONTEXT if documents else _QUESTION
    needed = {_CONTEXT: bool(documents), _QUESTION: question is not None}
    for name, is_needed in needed.items():
        if layout.count(name) != int(is_needed):
            says = "once, and nowhere else" if is_needed else "not at all, since there is none"
            raise InputError(f"The layout {layout!r:.80} has to have {name} in it {says}.")
    pieces: list[tuple[SegmentKind | None, str, str]] = []
    for number, (name, text) in enumerate(documents.items()):
        pieces += [(None, "", _BETWEEN)] if number else []
        pieces.append(("document", name, text))
    asked: list[tuple[SegmentKind | None, str, str]] = [("question", "question", question or "")]
    parts = {_CONTEXT: pieces, _QUESTION: asked}
    laid: list[tuple[SegmentKind | None, str, str]] = []
    rest = layout
    while rest:
        found = min((name for name in parts if name in rest), key=rest.index, default=None)
        before, _, rest = rest.partition(found) if found is not None else (rest, "", "")
        laid += [(None, "", before)] if before else []
        laid += [] if found is None else parts[found]
    return laid


def _moved(segment: Segment, by: int, first: int, last: int) -> Segment:
    """A segment of a message at its position in the whole text, where the template may have trimmed its ends."""
    start, end = (min(max(place + by, first), last) for place in (segment.start, segment.end))
    return Segment(segment.kind, segment.name, start, end)


# ---- messages ----------------------------------------------------------------------------------------------------------


def read_messages(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Roles and contents of the turns of a chat. Raises if they are none."""
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence) or not messages:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"Messages are a list of turns, each with a role and a content, not {messages!r:.60}.")
    turns: list[tuple[str, str]] = []
    for number, message in enumerate(messages, 1):
        found = [message.get(name) for name in ("role", "content")] if isinstance(message, Mapping) else [None, None]  # pyright: ignore[reportUnnecessaryIsInstance]
        role, content = found
        if not isinstance(role, str) or not isinstance(content, str):
            raise InputError(
                f"Message {number} has to have a role and a content that are texts, such as "
                f"{{'role': 'user', 'content': 'Hello'}}, and is {message!r:.80}."
            )
        if not encodable(content).strip():
            raise InputError(f"Message {number} (of the {role}) is empty. Leave it out.")
        turns.append((role, content))
    return turns


def chat_prompt(tokenizer: PreTrainedTokenizerBase | None, turns: Sequence[tuple[str, str]]) -> Prompt:
    """The prompt of a chat; its turns are segments, called by their number and role.

    It ends where the assistant begins to answer, or, if the last turn is the assistant's, with that turn, left open.
    """
    reader = _reader(tokenizer)
    if not _has_template(reader):
        raise InputError(
            "Messages are laid out by a chat template, and this tokenizer has none. Give a plain text (or a context and a "
            "question), or load a tokenizer of a chat model."
        )
    roles = [role for role, _ in turns]
    begun = roles[-1] == ASSISTANT
    text, places = _rendered(reader, roles, [content for _, content in turns], answers=not begun)
    if begun:
        text = text[: places[-1][1]]
    segments = [
        Segment("turn", f"{number} {role}", *place)
        for number, ((role, _), place) in enumerate(zip(turns, places, strict=True), 1)
    ]
    return _tokenized(reader, text, segments, chat=True)


def _rendered(
    tokenizer: PreTrainedTokenizerBase, roles: Sequence[str], contents: Sequence[str], *, answers: bool = True
) -> tuple[str, list[tuple[int, int]]]:
    """The text of a chat by its template, and where every message stands in it. The assistant `answers` next, or not."""

    def render(texts: Sequence[str]) -> str:
        chat = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
        try:
            return cast(str, tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=answers))
        except (TemplateError, ValueError, TypeError) as error:
            raise InputError(f"The chat template refuses these messages ({listing(roles)}): {error}") from error

    text = render(contents)
    return text, _located(text, contents, _around(render, len(contents)))


def _around(render: Callable[[Sequence[str]], str], count: int) -> list[str]:
    """What the template puts before, between and after messages, found with marks in their place."""
    marks = [_MARK.format(number) for number in range(count)]
    rest, around = render(marks), list[str]()
    for number, mark in enumerate(marks, 1):
        before, found, rest = rest.partition(mark)
        if not found or mark in rest:
            raise InputError(
                f"The chat template does not put message {number} into the text once, so it cannot be found."
            )
        around.append(before)
    return [*around, rest]


def _located(text: str, contents: Sequence[str], around: Sequence[str]) -> list[tuple[int, int]]:
    """Where every message stands: between what the template has around them, as it was written, trimmed, or changed."""
    places, cursor = list[tuple[int, int]](), 0
    for content, before, after in zip(contents, around, around[1:], strict=False):
        start = cursor + len(before)
        variants = (content, content.strip(), content.lstrip(), content.rstrip())
        end = next((start + len(each) for each in variants if text.startswith(each + after, start)), None)
        if end is None:
            end = text.find(after, start) if after else len(text)
        if end < start or not text.startswith(before, cursor):
            raise InputError(
                f"The chat template changes the message {content!r:.60}, so it cannot be found in the text."
            )
        places.append((start, end))
        cursor = end
    return places


# ---- tokens ------------------------------------------------------------------------------------------------------------


def _reader(tokenizer: PreTrainedTokenizerBase | None) -> PreTrainedTokenizerBase:
    """A tokenizer that reports which characters its tokens stand for."""
    if tokenizer is None:
        raise InputError("The model was loaded without a tokenizer, which reads documents and questions: name one.")
    if not tokenizer.is_fast:
        raise InputError(
            f"{type(tokenizer).__name__} does not report which characters its tokens stand for, so that no sentence can be "
            f"found in them. Load a fast tokenizer."
        )
    return tokenizer


def _has_template(tokenizer: PreTrainedTokenizerBase) -> bool:
    return getattr(tokenizer, "chat_template", None) is not None


def _tokenized(tokenizer: PreTrainedTokenizerBase, text: str, segments: list[Segment], *, chat: bool) -> Prompt:
    """A chat template has special tokens of its own; a plain text gets those that its tokenizer adds."""
    encoding: Any = tokenizer(text, add_special_tokens=not chat, return_offsets_mapping=True, verbose=False)
    offsets = [(int(start), int(end)) for start, end in encoding["offset_mapping"]]
    return Prompt(text, list(encoding["input_ids"]), offsets, segments, chat)
