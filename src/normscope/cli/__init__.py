"""The command line `normscope`: the entry point, and what becomes of errors.

User errors are one message on stderr and exit code 2; an analysis that fails its own proof is exit code 1; an interrupt
is 130. The commands themselves are in modules of their kind.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Annotated

import typer

from normscope.cli.commands import PlainGroup
from normscope.cli.session import complain
from normscope.errors import CompletenessError, InputError, NormscopeError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line (default: that of this process) and exit with its code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        _refuse_text_like_an_option(given)
        application(_COMMANDS.get(given[0]) if given else None)(given, prog_name="normscope")
    except CompletenessError as error:
        complain(error)
        sys.exit(1)
    except NormscopeError as error:
        complain(error)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


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


_COMMANDS = {
    "map": "maps",
    "growth": "maps",
    "explain": "explain",
    "methods": "explain",
    "mix": "mixing",
    "estimate": "estimate",
    "check": "models",
    "models": "models",
    "explore": "explorer",
    "serve": "explorer",
    "experiments": "runs",
    "run": "runs",
    "report": "runs",
}
"""Every command, in the order of `--help`, and the module it is in."""


@cache
def application(module: str | None = None) -> typer.Typer:
    """The application with all its commands, or for the sake of a quick start with those of one module."""
    app = typer.Typer(
        name="normscope",
        cls=PlainGroup,
        help="What really flows between tokens inside a Transformer: exact norm-based attribution maps, from attention "
        "weights to the whole layer.",
        epilog="normscope COMMAND --help shows examples. Without --model, the embedded all-MiniLM-L6-v2 is analysed.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_common)
    for name in [module] if module else dict.fromkeys(_COMMANDS.values()):
        import_module(f"normscope.cli.{name}").register(app)
    return app


def _show_version(wanted: bool | None) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"normscope {version('normscope')}")
        raise typer.Exit


def _common(
    version: Annotated[
        bool | None,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = None,
) -> None:
    """Options that come before the command."""
