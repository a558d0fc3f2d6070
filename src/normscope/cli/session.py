"""What every command does around its own work: load the model without noise, tell the user what was written or went wrong.

Results go to stdout, everything else to stderr. torch is imported only when a model is really loaded.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from normscope.errors import InputError, listing

if TYPE_CHECKING:
    from normscope.analysis import Analysis
    from normscope.analyzer import Analyzer

_DTYPES = ("float64", "float32", "bfloat16", "float16")
_UNLIMITED = 100_000


@dataclass(frozen=True)
class ModelChoice:
    """Which model to load, and how."""

    model: str | None
    dtype: str | None
    allow_pickle: bool
    trust_remote_code: bool

    def __post_init__(self) -> None:
        if self.dtype is not None and self.dtype not in _DTYPES:
            raise InputError(f"There is no dtype {self.dtype!r} here. Known: {listing(_DTYPES)}.")

    def load(self) -> Analyzer:
        """The analyzer, after some seconds in which a terminal shows that something happens."""
        with Console(stderr=True).status("Loading the model"):
            import torch

            from normscope.analyzer import load

            _quiet()
            return load(
                self.model,
                dtype=None if self.dtype is None else getattr(torch, self.dtype),
                allow_pickle=self.allow_pickle,
                trust_remote_code=self.trust_remote_code,
            )


def _quiet() -> None:
    """Progress bars and advice of other libraries off: this process belongs to the command line alone."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.simplefilter("ignore")


def read_text(text: str, pair: str | None) -> str | tuple[str, str]:
    """The input that a text and perhaps a second one stand for."""
    return text if pair is None else (text, pair)


def units_of(analysis: Analysis, *, words: bool, no_special: bool, encoder: bool) -> Analysis:
    """The analysis, or that of the encoder, in the units asked for."""
    if encoder:
        analysis = analysis.encoder
    if words:
        analysis = analysis.words()
    return analysis.without_special_tokens() if no_special else analysis


def result_console() -> Console:
    """Where results go: as wide as the terminal, and without a limit into a pipe or file."""
    console = Console(highlight=False)
    unlimited = not console.is_terminal and "COLUMNS" not in os.environ
    return Console(highlight=False, width=_UNLIMITED) if unlimited else console


def say(message: str) -> None:
    """A remark that is no result."""
    Console(stderr=True, highlight=False).print(Text(message, style="dim"), soft_wrap=True)


def say_written(path: Path) -> None:
    say(f"Wrote {path} ({path.stat().st_size / 1024:.0f} kB).")


def complain(error: Exception) -> None:
    """An error as a user sees it: what went wrong, without a traceback."""
    console = Console(stderr=True, highlight=False)
    console.print(Text.assemble(("Error: ", "bold red"), str(error)), soft_wrap=True)
