"""The command line `normscope`: the entry point, and how errors are reported.

User errors are one message on stderr and exit code 2; an analysis that fails its own proof is exit code 1; an interrupt
is 130. The commands are in modules of their own, which `application` puts together.
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
    "answer": "answer",
    "methods": "explain",
    "similar": "similar",
    "search": "similar",
    "mix": "mixing",
    "estimate": "estimate",
    "check": "models",
    "models": "models",
    "describe": "models",
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
    # Read when tqdm is imported: the reader of GGUF files would show its progress bar.
    os.environ.setdefault("TQDM_DISABLE", "1")
    if given == ["--version"]:  # without importing what reads options
        print(version_line())
        sys.exit(0)
    try:
        _check_decodable(given)
        _check_command(given)
        _check_dashes(given)
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
    """In a locale without Unicode, print other characters as escapes: a token must not end a run."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.encoding.lower().replace("-", "") != "utf8":
            stream.reconfigure(errors="backslashreplace")


def _check_decodable(arguments: list[str]) -> None:
    """Raise for bytes that Python could not decode: lone surrogates cannot be printed, tokenized or stored."""
    for argument in arguments:
        _check_surrogates(argument, f"The argument {argument!a}")
    with suppress(FileNotFoundError):
        _check_surrogates(os.getcwd(), f"The current folder {os.getcwd()!a}")


def _check_surrogates(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} {_why_undecodable(text, error.start)}") from error


def _why_undecodable(text: str, index: int) -> str:
    try:
        os.fsencode(text).decode()
    except UnicodeError:
        return f"is not UTF-8: its character {index} cannot be decoded."
    return _beyond_locale()


def _beyond_locale() -> str:
    return (
        f"has characters that Python cannot read in this locale, whose encoding is {sys.getfilesystemencoding()}: set "
        f"PYTHONUTF8=1, or a UTF-8 locale, such as LC_ALL=C.UTF-8."
    )


def _check_command(arguments: list[str]) -> None:
    name = next(iter(arguments), "-")
    if not name.startswith("-") and name not in COMMANDS:
        raise InputError(unknown(f"There is no command {name!r}", name, "Commands", COMMANDS))


def _check_dashes(arguments: list[str]) -> None:
    """Raise for a text that starts with a dash, which would be reported as an unknown option."""
    for before, argument in pairwise(arguments):
        if before == "--":
            return
        if argument.startswith("-") and " " in argument.partition("=")[0] and not before.startswith("-"):
            raise InputError(
                f"{argument!r} starts with a dash, as options do. If it is a text, put it last, after two dashes: "
                f"normscope {arguments[0]} ... -- {argument!r}"
            )
