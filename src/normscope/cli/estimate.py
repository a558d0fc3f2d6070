"""`normscope estimate`: what an analysis will take, before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from normscope.cli import options
from normscope.cli.checks import check_model
from normscope.cli.commands import add_command
from normscope.cli.expansion import expanded
from normscope.cli.session import load_analyzer, result_console
from normscope.errors import InputError
from normscope.model_options import ModelOptions

if TYPE_CHECKING:
    from normscope.planner import Estimate

EXAMPLES = (
    'normscope estimate "The opera singer caught a soap bubble."',
    "normscope estimate --tokens 512 --inputs 1000",
    "normscope estimate --tokens 512 --scope AttnResLn --no-time --json",
)

_COUNTED = "What is counted"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    add_command(app, "estimate", expanded(estimate_command, model=options.MODEL), *EXAMPLES)


def estimate_command(
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The text to analyse.", show_default=False)] = None,
    tokens: Annotated[
        int | None,
        typer.Option("--tokens", "-n", min=1, help="Instead of a text, its number of tokens.", show_default=False),
    ] = None,
    inputs: Annotated[int, typer.Option("--inputs", min=1, help="How many inputs of this length.")] = 1,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", "-s", help="The scopes (default: all).", show_default=False, rich_help_panel=_COUNTED),
    ] = None,
    queries: Annotated[
        int | None,
        typer.Option(
            "--queries", min=1, help="Rows of each map (default: all).", show_default=False, rich_help_panel=_COUNTED
        ),
    ] = None,
    mixing: Annotated[
        bool,
        typer.Option("--mixing", help="Mixing ratios alone, without maps.", rich_help_panel=_COUNTED),
    ] = False,
    no_time: Annotated[bool, typer.Option("--no-time", help="Count only, without a second of measuring.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The numbers as JSON.")] = False,
    *,
    model: ModelOptions,
) -> None:
    """Say what an analysis takes before it starts: operations, memory, time.

    Memory is that beside the model, and the size of the results stands with it. The time comes from measuring this machine
    for about a second.
    """
    if (text is None) == (tokens is None):
        raise InputError("Give a text or a number of tokens (--tokens), one of the two.")
    check_model(model, scopes=scope or ())
    analyzer = load_analyzer(model)
    asked = [text] * inputs if text is not None else [tokens or 0] * inputs
    rows = None if queries is None else list(range(queries))
    counted = analyzer.estimate(asked, scopes=scope, queries=rows, maps=not mixing, timed=not no_time)
    if as_json:
        typer.echo(_json(counted))
        return
    _show(counted)


def _json(counted: Estimate) -> str:
    import json

    steps = {name: work.flops for name, work in counted.work.items()}
    numbers = {"flops": counted.flops, "memory": counted.memory, "result": counted.result, "seconds": counted.seconds}
    return json.dumps({**numbers, "steps": steps}, indent=2)


def _show(counted: Estimate) -> None:
    from normscope.planner.estimate import quantity

    console = result_console()
    table = Table(box=None, pad_edge=False)
    table.add_column("step")
    table.add_column("operations", justify="right")
    table.add_column("share", justify="right")
    for name, work in counted.work.items():
        if work.flops:
            table.add_row(name, quantity(work.flops, "flop"), f"{100 * counted.share[name]:.1f} %")
    console.print(table)
    console.print(str(counted))
