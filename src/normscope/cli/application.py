"""The application that reads command lines: the commands of all modules, and the options before a command."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Annotated

import typer

from normscope.cli import COMMANDS, version_line
from normscope.cli.commands import PlainGroup


@cache
def application(module: str | None = None) -> typer.Typer:
    """The application with all its commands, or, for a quick start, with those of one module.

    With one module it has no options except `--version` before the command: typer is slow to set up the others.
    """
    app = typer.Typer(
        name="normscope",
        cls=PlainGroup,
        help="What really flows between tokens inside a Transformer: norm-based attribution maps, from attention weights to "
        "the whole layer, exact for given attention weights, deviations of norms and slopes of activations.",
        epilog="normscope COMMAND --help shows examples. Without --model, the embedded all-MiniLM-L6-v2 is analysed.",
        no_args_is_help=True,
        add_completion=module is None,
        add_help_option=module is None,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_common)
    for name in [module] if module else dict.fromkeys(COMMANDS.values()):
        import_module(f"normscope.cli.{name}").register(app)
    return app


def _show_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(version_line())
        raise typer.Exit
    return wanted


def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Options that come before the command."""
