"""The texts that a command reads: the options for them, which are the same for every command, and their meaning."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar, cast

from normscope.cli.console import given_texts, read_text, say
from normscope.cli.expansion import Expansion
from normscope.errors import FileError, InputError
from normscope.options import Documentation

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Texts:
    """What a command reads, after files and standard input were read."""

    text: str
    pair: str | None
    decoder_text: str | None
    as_text: bool = False
    messages: list[dict[str, str]] | None = None

    def with_text(self, text: str) -> Texts:
        """Another text, read in the same way."""
        messages = None if self.messages is None else _said_by_user(text)
        return replace(self, text=text, pair=None, messages=messages)

    def inputs(self, analyzer: Analyzer) -> str | tuple[str, str] | list[dict[str, str]]:
        """What the model is given: the text, the pair, or the messages of a chat."""
        if self.messages is not None:
            return self.messages
        return read_text(analyzer, self.text, self.pair, as_text=self.as_text)


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How a command reads its text: with a second one, with one for the decoder, and whether as a file's name."""

    pair: Annotated[str | None, Documentation("A second text, for models that read pairs.")] = None
    decoder_text: Annotated[
        str | None,
        Documentation(
            "For an encoder-decoder model, the text that the decoder reads. Default: what the model generates."
        ),
    ] = None
    target: Annotated[str | None, Documentation("The old name of --decoder-text.", hidden=True)] = None
    chat: Annotated[
        bool,
        Documentation(
            "Lay the text out by the model's chat template: as the message of a user, or, if it is a .json file, as the "
            "messages in it, each with a role and a content."
        ),
    ] = False
    as_text: Annotated[
        bool, Documentation("Texts are taken as they are, also '-' and what looks like a file's name.")
    ] = False

    @property
    def any(self) -> bool:
        """Whether there is a second text of any kind."""
        return any((self.pair, self.decoder_text, self.target, self.chat))

    def read(self, text: str, *others: str | None) -> tuple[Texts, list[str | None]]:
        """The texts that arguments stand for, and those that other arguments of the command do."""
        decoder_text = renamed_option("--target", self.target, "--decoder-text", self.decoder_text)
        messages = self._messages(text) if self.chat else None
        if messages is not None:  # they may name no file
            text = "\n".join(str(message.get("content", "")) for message in messages)
            _, (decoder_text, *rest) = given_texts("", decoder_text, *others, as_text=self.as_text)
            return Texts(text, None, decoder_text, self.as_text, messages), rest
        text, (pair, decoder_text, *rest) = given_texts(text, self.pair, decoder_text, *others, as_text=self.as_text)
        return Texts(text, pair, decoder_text, self.as_text), rest

    def _messages(self, text: str) -> list[dict[str, str]]:
        """The messages that a text stands for."""
        if self.pair is not None:
            raise InputError("A chat is one text: leave out --pair, or --chat.")
        if Path(text).suffix.lower() == ".json" and not self.as_text:
            return messages_in(Path(text))
        (content, _) = given_texts(text, as_text=self.as_text)
        return _said_by_user(content)


def _said_by_user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def messages_in(path: Path) -> list[dict[str, str]]:
    """The messages of a chat in a JSON file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise FileError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise FileError(f"{str(path)!r} is not JSON: {error}.") from error
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in cast("list[object]", found)):
        raise InputError(f"{str(path)!r} has to hold a list of messages, each with a role and a content.")
    return cast("list[dict[str, str]]", found)


TEXTS = Expansion(TextOptions, TextOptions)
"""The options of a command that reads a text: its parameter is a `TextOptions`."""

ALONE = Expansion(TextOptions, TextOptions, only=("as_text",))
"""The same for a command that reads one text and nothing with it."""

PAIRS = Expansion(TextOptions, TextOptions, without=("decoder_text", "target"))
"""The same for `explain`, whose request has a `decoder_text` and a `target` of its own."""


def renamed_option(old: str, old_value: _Value | None, new: str, new_value: _Value | None) -> _Value | None:
    """The value of an option that may still be given by its old name, with a deprecation message."""
    if old_value is None:
        return new_value
    if new_value is not None:
        raise InputError(f"{old} is the old name of {new}: give one of them.")
    say(f"{old} is deprecated and will be removed in the next minor version: use {new}.", "yellow")
    return old_value
