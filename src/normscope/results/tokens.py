"""How tokens are written where a person reads them: one by one as labels, or joined to running text as pieces.

Files keep tokens exactly as the tokenizer has them; only pictures, tables and pages use these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import NamedTuple

_SPACE = "\u2423"
LINE_BREAK = "\u21b5"
"""How a line break is shown."""

_VISIBLE = {
    "\u0120": _SPACE,  # a space in byte-level tokenizers
    "\u2581": _SPACE,  # a space in SentencePiece
    "\u010a": LINE_BREAK,  # a line break in byte-level tokenizers
    " ": _SPACE,
    "\n": LINE_BREAK,
    "\r": LINE_BREAK,
    "\t": "\u21e5",
}


def label(token: str, longest: int = 18) -> str:
    """A token as one short line of text."""
    text = "".join(_VISIBLE.get(character, character if character.isprintable() else "\ufffd") for character in token)
    if len(text) > longest:
        text = text[: longest - 1] + "\u2026"
    return text or _SPACE


def labels(tokens: Iterable[object]) -> list[str]:
    """The labels of some tokens; those of a byte-level tokenizer are read as the text that they stand for."""
    return [label(name) for name in readable(tokens)]


def readable(tokens: Iterable[object]) -> list[str]:
    """Tokens in full, those of a byte-level tokenizer as the text that they stand for."""
    names = [str(token) for token in tokens]
    return [_decoded(name) for name in names] if _reader(names) is _byte_level else names


def name_of(target: str) -> str:
    """What is explained or predicted, on one line: a space before or after a token, of one or of a difference, is seen."""
    return " - ".join(_edges_seen(token) for token in target.split(" - "))


def _edges_seen(token: str) -> str:
    """A token with its spaces at both ends as marks, and those inside as they are."""
    inside = token.strip()
    before, after = token[: len(token) - len(token.lstrip())], token[len(token.rstrip()) :]
    if not inside:
        return label(token, longest=len(token) + 1)
    return f"{_marks(before)}{' '.join(inside.split())}{_marks(after)}"


def _marks(spaces: str) -> str:
    return "".join(_VISIBLE.get(character, _SPACE) for character in spaces)


# ---- running text --------------------------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """A token as it stands in a text, and whether a space comes before it."""

    text: str
    spaced: bool


def pieces(tokens: Sequence[object], special: Sequence[bool] | None = None) -> list[Piece]:
    """Tokens as running text: the marks of byte-level, SentencePiece and WordPiece tokenizers become spaces and joins."""
    names = [str(token) for token in tokens]
    flags = [False] * len(names) if special is None else list(special)
    plain = [name for name, flag in zip(names, flags, strict=True) if not flag]
    read = _reader(plain)
    spaced = [Piece(name, True) if flag else _visible(read(name)) for name, flag in zip(names, flags, strict=True)]
    return [
        piece._replace(spaced=bool(index) and (piece.spaced or flags[index - 1])) for index, piece in enumerate(spaced)
    ]


def running_text(tokens: Sequence[object]) -> str:
    """Tokens joined to a text."""
    return "".join(f"{' ' if piece.spaced else ''}{piece.text}" for piece in pieces(tokens))


def _visible(piece: Piece) -> Piece:
    """Nothing that breaks a line or cannot be seen."""
    text = "".join(character if character == " " else _VISIBLE.get(character, character) for character in piece.text)
    shown = "".join(character if character.isprintable() else "\ufffd" for character in text)
    return Piece(shown or _SPACE, piece.spaced)


def _reader(names: Sequence[str]) -> Callable[[str], Piece]:
    """How the tokens of one text are read, by the marks that are in them."""
    if any(name.startswith(("\u0120", "\u010a")) for name in names):
        return _byte_level
    if any("\u2581" in name for name in names):
        return _sentence_piece
    if any(name.endswith("</w>") for name in names):
        return lambda name: Piece(name.removesuffix("</w>"), True)
    return _word_piece


def _decoded(name: str) -> str:
    """The text that a byte-level token stands for; a special token stays as it is."""
    known = _bytes_by_character()
    if not all(character in known for character in name):
        return name
    return bytes(known[character] for character in name).decode("utf-8", errors="replace")


def _byte_level(name: str) -> Piece:
    text = _decoded(name)
    return Piece(text[1:] if text.startswith(" ") and len(text) > 1 else text, text.startswith(" "))


def _sentence_piece(name: str) -> Piece:
    text = name.replace("\u2581", " ")
    return Piece(text[1:] if text.startswith(" ") and len(text) > 1 else text, text.startswith(" "))


def _word_piece(name: str) -> Piece:
    joined = name.startswith("##") and len(name) > 2
    return Piece(name[2:] if joined else name, not joined)


@cache
def _bytes_by_character() -> dict[str, int]:
    """The alphabet in which byte-level tokenizers write bytes: printable Latin 1 as itself, the rest from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + index): byte for index, byte in enumerate(others)}
