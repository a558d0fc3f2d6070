"""How tokens are written where a person reads them: spaces visible, nothing that breaks a line, nothing too long.

Files keep tokens exactly as the tokenizer has them; only pictures and tables use these labels.
"""

from __future__ import annotations

from collections.abc import Iterable

_SPACE = "\u2423"
_VISIBLE = {
    "\u0120": _SPACE,  # a space in byte-level tokenizers
    "\u2581": _SPACE,  # a space in SentencePiece
    "\u010a": "\u21b5",  # a line break in byte-level tokenizers
    " ": _SPACE,
    "\n": "\u21b5",
    "\r": "\u21b5",
    "\t": "\u21e5",
}


def label(token: str, longest: int = 18) -> str:
    """A token as one short line of text."""
    text = "".join(_VISIBLE.get(character, character if character.isprintable() else "\ufffd") for character in token)
    if len(text) > longest:
        text = text[: longest - 1] + "\u2026"
    return text or _SPACE


def labels(tokens: Iterable[object]) -> list[str]:
    """The labels of tokens."""
    return [label(str(token)) for token in tokens]
