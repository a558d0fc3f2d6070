"""The command line `normscope`: the entry point, and what becomes of errors.

User errors are one message on stderr and exit code 2; an analysis that fails its own proof is exit code 1; an interrupt
is 130. The commands themselves are in modules of their kind, which `application` puts together.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from itertools import pairwise

from normscope.errors import CompletenessError, InputError, NormscopeError, unknown

COMMANDS = {
    "map": "map",
    "growth": "map",
    "explain": "explain",
    "methods": "explain",
    "similar": "similar",
    "search": "similar",
    "mix": "mixing",
    "estimate": "estimate",
    "check": "models",
    "models": "models",
    "convert": "models",
    "explore": "explore",
    "serve": "explore",
    "experiments": "run",
    "run": "run",
    "report": "report",
}
"""Every command, in the order of `--help`, and the module it is in."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line (default: that of this process) and exit with its code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    _print_anything()
    os.environ.setdefault(
        "TQDM_DISABLE", "1"
    )  # read when tqdm is imported: the reader of GGUF files would show its bar
    if given == ["--version"]:  # without all that options take to be read
        print(version_line())
        sys.exit(0)
    try:
        _refuse_undecodable(given)
        _refuse_unknown_command(given)
        _refuse_text_like_an_option(given)
        _run(given)
    except CompletenessError as error:
        _complain(error)
        sys.exit(1)
    except NormscopeError as error:
        _complain(error)
        sys.exit(2)
    except UnicodeEncodeError as error:
        if sys.getfilesystemencoding() == "utf-8":
            raise
        _complain(InputError(f"{error.object!a:.200} {_beyond_locale()}"))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def version_line() -> str:
    """What `--version` shows."""
    from importlib.metadata import version

    return f"normscope {version('normscope')}"


def _run(arguments: list[str]) -> None:
    from normscope.cli.application import application

    application(COMMANDS.get(arguments[0]) if arguments else None)(arguments, prog_name="normscope")


def _complain(error: NormscopeError) -> None:
    from normscope.cli.console import complain

    complain(error)


def _print_anything() -> None:
    """In a locale without Unicode, print what it lacks as escapes: a token must not end a run."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.encoding.lower().replace("-", "") != "utf8":
            stream.reconfigure(errors="backslashreplace")


def _refuse_undecodable(arguments: list[str]) -> None:
    """Bytes that Python could not decode come as halves of characters, which nothing can print, tokenize or store."""
    for argument in arguments:
        _refuse_halves(argument, f"The argument {argument!a}")
    with suppress(FileNotFoundError):
        _refuse_halves(os.getcwd(), f"The current folder {os.getcwd()!a}")


def _refuse_halves(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} {_why_undecodable(text, error.start)}") from error


def _why_undecodable(text: str, place: int) -> str:
    try:
        os.fsencode(text).decode()
    except UnicodeError:
        return f"is not in UTF-8: its character {place} is none."
    return _beyond_locale()


def _beyond_locale() -> str:
    return (
        f"has characters that Python cannot read in this locale, whose encoding is {sys.getfilesystemencoding()}: set "
        f"PYTHONUTF8=1, or a locale of UTF-8, such as LC_ALL=C.UTF-8."
    )


def _refuse_unknown_command(arguments: list[str]) -> None:
    name = next(iter(arguments), "-")
    if not name.startswith("-") and name not in COMMANDS:
        raise InputError(unknown(f"There is no command {name!r}", name, "Commands", COMMANDS))


def _refuse_text_like_an_option(arguments: list[str]) -> None:
    """A text that starts with a dash would be taken for an option, and refused as an unknown one."""
    for before, argument in pairwise(arguments):
        if before == "--":
            return
        if argument.startswith("-") and " " in argument.partition("=")[0] and not before.startswith("-"):
            raise InputError(
                f"{argument!r} starts with a dash, as options do. If it is a text, put it last, after two dashes: "
                f"normscope {arguments[0]} ... -- {argument!r}"
            )
