"""What a text on the command line stands for: itself, standard input, or the content of a file.

One rule for all commands. `-` is standard input. A single word that ends as files do is a file: a text file is read, and one
that is not there, or that holds no text, is refused. With --as-text it is the text itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

from normscope.endings import FIGURES, NETCDF, PAGE, TABLES
from normscope.errors import FileError, InputError, listing

STANDARD_INPUT = "-"
TEXTS = ("txt", "text", "md", "rst")
RESULTS = (NETCDF, "zarr")
IMAGES = ("png", "jpg", "jpeg", "gif", "bmp", "webp", "tif", "tiff")
_OTHERS = (*TABLES, *FIGURES, PAGE, "htm", "jsonl", "tsv", "docx", "odt", "gz", "zip", "safetensors")

_ESCAPE = "If it is the text itself, say --as-text."


def given_texts(text: str, *others: str | None, as_text: bool) -> tuple[str, list[str | None]]:
    """The texts that arguments of one command stand for; others that are left out stay so."""
    if as_text:
        return text, list(others)
    if [text, *others].count(STANDARD_INPUT) > 1:
        raise InputError("Only one text can come from standard input (-).")
    return _text(text), [None if other is None else _text(other) for other in others]


def result_file(argument: str) -> Path | None:
    """The file or folder of a finished result, if that is what an argument names; refuses one that is not there."""
    if _ending(argument) not in RESULTS:
        return None
    if not _exists(argument):
        raise FileError(
            f"There is no result {argument!r}. Give the .nc or .zarr that an analysis was saved to. {_ESCAPE}"
        )
    return Path(argument)


def is_image(argument: str) -> bool:
    """Whether an argument names an image."""
    return _ending(argument) in IMAGES


def _text(argument: str) -> str:
    if argument == STANDARD_INPUT:
        return _standard_input()
    ending = _ending(argument)
    if ending in TEXTS:
        return _read(argument)
    if ending in IMAGES and _exists(argument):  # a vision model reads it
        return argument
    if ending in RESULTS and _exists(argument):
        raise InputError(
            f"{argument!r} is a finished result, and here a text is analysed: normscope explore looks at it. {_ESCAPE}"
        )
    if ending in (*IMAGES, *RESULTS, *_OTHERS):
        found = "it is no text file" if _exists(argument) else "there is no such file"
        raise FileError(
            f"{argument!r} is the name of a file, and {found}. Text files end in {listing(TEXTS)}; '-' is standard input. "
            f"{_ESCAPE}"
        )
    return argument


def _ending(argument: str) -> str:
    """The ending of a word that could be a file's name; nothing of a text of several words."""
    single = len(argument.split()) == 1 and argument == argument.strip()
    return Path(argument).suffix.lower().removeprefix(".") if single else ""


def _exists(argument: str) -> bool:
    try:
        return Path(argument).exists()
    except OSError:  # longer than any name
        return False


def _read(argument: str) -> str:
    if not _exists(argument):
        raise FileError(f"There is no text file {argument!r}. {_ESCAPE}")
    try:
        return _decoded(Path(argument).read_bytes(), repr(argument))
    except OSError as error:
        raise FileError(f"{argument!r} cannot be read: {error.strerror or error}.") from error


def _standard_input() -> str:
    if sys.stdin is None:
        raise InputError("There is no standard input to read a text from (-).")
    return _decoded(sys.stdin.buffer.read(), "Standard input")


def _decoded(content: bytes, name: str) -> str:
    """The text, without the line end that files and pipes have after the last line."""
    try:
        return content.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise FileError(f"{name} is no text in UTF-8: byte {error.start} cannot be read.") from error
