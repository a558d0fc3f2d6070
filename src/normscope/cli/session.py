"""What every command does around its own work: load the model without noise, tell the user what was written or went wrong.

Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from normscope.cli.texts import is_image
from normscope.errors import InputError, unknown
from normscope.model_options import ModelOptions

if TYPE_CHECKING:
    from normscope.analysis import Analysis
    from normscope.analyzer import Analyzer

_UNLIMITED = 100_000
_SECONDS_BEFORE_A_LINE, _SECONDS_BETWEEN_LINES = 2, 10


def load_analyzer(options: ModelOptions) -> Analyzer:
    """The analyzer of a model. A terminal shows that it is being loaded."""
    options.refuse_unusable()
    with working("Loading the model"):
        quiet()
        return options.load()


@contextmanager
def working(message: str, things: str = "maps") -> Generator[Callable[[int, int], None]]:
    """Say what is being done, as long as it takes; what this gives can be told how many things of how many are done.

    A terminal shows it at once. Elsewhere a line is written when it has taken a while, and again now and then.
    """
    console = Console(stderr=True, highlight=False)
    if console.is_terminal:
        with console.status(message) as status:
            yield lambda done, total: status.update(f"{message}: {done} of {total} {things}")
        return
    timer = threading.Timer(_SECONDS_BEFORE_A_LINE, lambda: say(f"{message}\u2026"))
    timer.start()
    last = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS_BETWEEN_LINES and done < total:
            last = time.monotonic()
            say(f"{message}: {done} of {total} {things}")

    try:
        yield tell
    finally:
        timer.cancel()


def analysing() -> AbstractContextManager[Callable[[int, int], None]]:
    """Say that a text is being analysed, layer by layer."""
    return working("Analysing", "layers")


def quiet() -> None:
    """Switch off progress bars and advice of other libraries: this process belongs to the command line alone."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    warnings.filterwarnings("always", "No font here has")
    warnings.showwarning = _warn


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    say(f"Warning: {message}")


def read_text(analyzer: Analyzer, text: str, pair: str | None, *, as_text: bool = False) -> str | tuple[str, str]:
    """The input that a text and perhaps a second one make up for a model."""
    if not as_text and analyzer.family.reads == "text" and is_image(text):
        raise InputError(f"{text!r} is the file of an image, and {analyzer.name} reads text.")
    return text if pair is None else (text, pair)


def units_of(analysis: Analysis, *, words: bool, no_special: bool, encoder: bool) -> Analysis:
    """The analysis, or that of the encoder, in the units asked for."""
    if encoder:
        analysis = analysis.encoder
    if words:
        analysis = analysis.words()
    return analysis.without_special_tokens() if no_special else analysis


def say_approximate(analysis: Analysis) -> None:
    """Nobody should take approximate maps for exact ones."""
    if analysis.approximation_note:
        say(analysis.approximation_note)


def named(part: str | None, known: Iterable[str], what: str) -> list[str]:
    """The names that have a part in them, all without one; refuses a part that no name has."""
    names = list(known)
    matching = [name for name in names if part is None or part.lower() in name.lower()]
    if not matching:
        raise InputError(unknown(f"No {what} has {part!r} in its name", part or "", f"{what.capitalize()}s", names))
    return matching


def result_console() -> Console:
    """Where results go: as wide as the terminal, and without a limit into a pipe or file."""
    console = Console(highlight=False)
    unlimited = not console.is_terminal and "COLUMNS" not in os.environ
    return Console(highlight=False, width=_UNLIMITED) if unlimited else console


def say(message: str, style: str = "dim") -> None:
    """A remark that is no result."""
    Console(stderr=True, highlight=False).print(Text(message, style=style), soft_wrap=True)


def say_written(path: Path) -> None:
    say(f"Wrote {path} ({path.stat().st_size / 1024:.0f} kB).")


def complain(error: Exception) -> None:
    """An error as a user sees it: what went wrong and where there is more, without a traceback."""
    console = Console(stderr=True, highlight=False)
    console.print(Text.assemble(("Error: ", "bold red"), str(error)), soft_wrap=True)
    for note in getattr(error, "__notes__", ()):
        console.print(Text(note, style="dim"), soft_wrap=True)
