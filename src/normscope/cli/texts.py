"""The texts that a command reads: the options for them, which are the same for every command, and their meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

from normscope.cli.console import given_texts, read_text, say
from normscope.cli.expansion import Expansion
from normscope.errors import InputError
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

    def inputs(self, analyzer: Analyzer) -> str | tuple[str, str]:
        """What the model is given: the text, or the pair."""
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
    as_text: Annotated[
        bool, Documentation("Texts are taken as they are, also '-' and what looks like a file's name.")
    ] = False

    @property
    def any(self) -> bool:
        """Whether there is a second text of any kind."""
        return any((self.pair, self.decoder_text, self.target))

    def read(self, text: str, *others: str | None) -> tuple[Texts, list[str | None]]:
        """The texts that arguments stand for, and those that other arguments of the command do."""
        decoder_text = renamed_option("--target", self.target, "--decoder-text", self.decoder_text)
        text, (pair, decoder_text, *rest) = given_texts(text, self.pair, decoder_text, *others, as_text=self.as_text)
        return Texts(text, pair, decoder_text, self.as_text), rest


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
