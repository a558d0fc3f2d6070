"""What all commands share: loading the model quietly, progress, messages, and texts from files.

Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from normscope.errors import FileError, InputError, listing, unknown
from normscope.models.options import ModelOptions
from normscope.paths import FIGURES, IMAGES, NETCDF, PAGE, SOUNDS, TABLES

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer
    from normscope.request import AnalysisOptions
    from normscope.results.analysis import Analysis

_UNLIMITED = 100_000
_SECONDS_BEFORE_A_LINE, _SECONDS_BETWEEN_LINES = 2, 10


def load_analyzer(options: ModelOptions) -> Analyzer:
    """The analyzer of a model. A terminal shows that it is being loaded."""
    options.refuse_unusable()
    with working("Loading the model"):
        from normscope import Analyzer  # imported as users do, which is faster

        quiet()
        return Analyzer.from_options(options)


@contextmanager
def working(message: str, things: str = "maps") -> Generator[Callable[[int, int], None]]:
    """Show a message during some work; yields a callback for progress (number done, total number).

    A terminal shows it at once. Otherwise a line is written after a while, and again at intervals.
    """
    console = Console(stderr=True, highlight=False)
    if console.is_terminal:
        with console.status(message) as status:
            yield lambda done, total: status.update(f"{message}: {done} of {total} {things}")
        return
    timer = threading.Timer(_SECONDS_BEFORE_A_LINE, lambda: say(f"{message}\u2026"))
    timer.start()
    last = time.monotonic()

    def on_progress(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS_BETWEEN_LINES and done < total:
            last = time.monotonic()
            say(f"{message}: {done} of {total} {things}")

    try:
        yield on_progress
    finally:
        timer.cancel()


def analysing() -> AbstractContextManager[Callable[[int, int], None]]:
    """Show that a text is being analysed, layer by layer."""
    return working("Analysing", "layers")


def quiet() -> None:
    """Turn off progress bars and warnings of other libraries: this process only runs the command."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    warnings.filterwarnings("always", "No font here has")
    warnings.filterwarnings("always", "The architecture .* is not registered")
    warnings.showwarning = _warn


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    say(f"Warning: {message}")


def read_text(analyzer: Analyzer, text: str, pair: str | None, *, as_text: bool = False) -> str | tuple[str, str]:
    """The input that a text and perhaps a second one make up for a model."""
    if not as_text and analyzer.family.reads == "text" and is_image(text):
        raise InputError(f"{text!r} is the file of an image, and {analyzer.name} reads text.")
    if not as_text and analyzer.family.reads != "audio" and is_sound(text):
        raise InputError(f"{text!r} is the file of a sound, and {analyzer.name} reads {analyzer.family.reads}s.")
    return text if pair is None else (text, pair)


def analyse(
    analyzer: Analyzer, inputs: str | tuple[str, str] | list[dict[str, str]], request: AnalysisOptions
) -> Analysis:
    """The analysis of a text, with its progress on the terminal."""
    with analysing() as on_progress:
        return analyzer.analyze(inputs, **{**request, "on_progress": on_progress})


def units_of(analysis: Analysis, *, words: bool, no_special: bool, encoder: bool) -> Analysis:
    """The analysis, or that of the encoder, in the requested units."""
    if encoder:
        analysis = analysis.encoder
    if words:
        analysis = analysis.words()
    return analysis.without_special_tokens() if no_special else analysis


def say_approximate(analysis: Analysis) -> None:
    """Report how maps were approximated, so that they are not mistaken for exact ones."""
    if analysis.approximation_note:
        say(analysis.approximation_note)


def named(part: str | None, known: Iterable[str], what: str) -> list[str]:
    """The names that contain `part`, or all; raises if no name does."""
    names = list(known)
    matching = [name for name in names if part is None or part.lower() in name.lower()]
    if not matching:
        raise InputError(unknown(f"No {what} has {part!r} in its name", part or "", f"{what.capitalize()}s", names))
    return matching


def result_console() -> Console:
    """The console for results: as wide as the terminal, and without a limit in a pipe or file."""
    console = Console(highlight=False)
    unlimited = not console.is_terminal and "COLUMNS" not in os.environ
    return Console(highlight=False, width=_UNLIMITED) if unlimited else console


def say(message: str, style: str = "dim") -> None:
    """Print a remark, to standard error."""
    Console(stderr=True, highlight=False).print(Text(message, style=style), soft_wrap=True)


def say_written(path: Path) -> None:
    say(f"Wrote {path} ({path.stat().st_size / 1024:.0f} kB).")


def complain(error: Exception) -> None:
    """Print an error for a user: what went wrong and where to read more, without a traceback."""
    console = Console(stderr=True, highlight=False)
    console.print(Text.assemble(("Error: ", "bold red"), str(error)), soft_wrap=True)
    for note in getattr(error, "__notes__", ()):
        console.print(Text(note, style="dim"), soft_wrap=True)


# ---- What a text on the command line stands for: itself, standard input, or the content of a file.
#
# One rule for all commands. `-` is standard input. A single word with the ending of a file is a file: a text file is
# read, and one that is missing, or is not a text, is an error. With --as-text it is the text itself.

STANDARD_INPUT = "-"
TEXTS = ("txt", "text", "md", "rst")
RESULTS = (NETCDF, "zarr")
_OTHERS = (*TABLES, *FIGURES, PAGE, "htm", "jsonl", "tsv", "docx", "odt", "gz", "zip", "safetensors")

_ESCAPE = "If it is the text itself, use --as-text."


def given_texts(text: str, *others: str | None, as_text: bool) -> tuple[str, list[str | None]]:
    """The texts that the arguments of a command stand for; `None` stays `None`."""
    if as_text:
        return text, list(others)
    if [text, *others].count(STANDARD_INPUT) > 1:
        raise InputError("Only one text can come from standard input (-).")
    return _text(text), [None if other is None else _text(other) for other in others]


def result_file(argument: str) -> Path | None:
    """The file or folder of a finished result, if an argument names one; raises if it does not exist."""
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


def is_sound(argument: str) -> bool:
    """Whether an argument names a sound."""
    return _ending(argument) in SOUNDS


def _text(argument: str) -> str:
    if argument == STANDARD_INPUT:
        return _standard_input()
    ending = _ending(argument)
    if ending in TEXTS:
        return _read(argument)
    if ending in (*IMAGES, *SOUNDS) and _exists(argument):  # a model of images or sounds reads it
        return argument
    if ending in RESULTS and _exists(argument):
        raise InputError(
            f"{argument!r} is a finished result, and this command analyses a text: normscope explore shows it. {_ESCAPE}"
        )
    if ending in (*IMAGES, *SOUNDS, *RESULTS, *_OTHERS):
        found = "it is not a text file" if _exists(argument) else "there is no such file"
        raise FileError(
            f"{argument!r} is the name of a file, and {found}. Text files end in {listing(TEXTS)}; '-' is standard input. "
            f"{_ESCAPE}"
        )
    return argument


def _ending(argument: str) -> str:
    """The ending of a word that could be the name of a file; empty for a text of several words."""
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
        raise FileError(f"{name} is not UTF-8 text: byte {error.start} cannot be read.") from error
