"""The command line: `normscope map`, `mix`, `growth`, `check` and `models`.

Owns the entry point and what becomes of errors: what a user can mend is one message on stderr and exit code 2; an analysis
that fails its own proof is exit code 1. The commands are in the modules beside this one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from normscope.cli import maps, mixing, models
from normscope.cli.session import complain
from normscope.errors import CompletenessError, NormscopeError

app = typer.Typer(
    name="normscope",
    help="What really flows between tokens inside a Transformer: exact norm-based attribution maps, from attention weights "
    "to the whole layer.",
    epilog="normscope map --help shows examples. Without --model, the embedded all-MiniLM-L6-v2 is analysed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("map", epilog=maps.MAP_EXAMPLES)(maps.map_command)
app.command("growth", epilog=maps.GROWTH_EXAMPLES)(maps.growth_command)
app.command("mix", epilog=mixing.EXAMPLES)(mixing.mix_command)
app.command("check", epilog=models.CHECK_EXAMPLES)(models.check_command)
app.command("models")(models.models_command)


def _show_version(wanted: bool | None) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"normscope {version('normscope')}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool | None,
        typer.Option("--version", metavar="", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = None,
) -> None:
    """Options that come before the command."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line (default: that of this process) and exit with its code."""
    try:
        app(None if arguments is None else list(arguments), prog_name="normscope")
    except CompletenessError as error:
        complain(error)
        sys.exit(1)
    except NormscopeError as error:
        complain(error)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
