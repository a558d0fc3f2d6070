"""`normscope report`: one page about runs, and the tables that span their models in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from normscope.cli.checks import check_page
from normscope.cli.commands import add_command
from normscope.cli.console import quiet, result_console, say, say_written
from normscope.paths import refuse_unfinished

if TYPE_CHECKING:
    from rich.table import Table

    from normscope.report import Across

EXAMPLES = (
    "normscope report runs/minilm runs/roberta --out report.html",
    "normscope report runs/* --out models.html",
    "normscope report runs/seed-0 runs/seed-1 runs/seed-2 --together --out seeds.html",
)

_UNLIMITED = 10_000
"""A width that no table has."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    add_command(app, "report", report_command, *EXAMPLES)


def report_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of finished runs.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Default: report.html in the first run's folder.", show_default=False),
    ] = None,
    together: Annotated[
        bool,
        typer.Option("--together", help="Several runs as one: mean and deviation over seeds or models."),
    ] = False,
) -> None:
    """Write one self-contained HTML report of one run, or of several side by side or together.

    For several runs, the tables that span their models are printed, too: a row for each model, and the papers' own below.
    """
    check_page(out)
    for folder in runs:
        refuse_unfinished(folder)
    from normscope.report import tables_across, write_report

    quiet()
    path = write_report(runs, out, together=together)
    for table in tables_across(runs, together=together):
        _print(table)
    say_written(path)


def _print(across: Across) -> None:
    """A table as in the papers, without errors if the terminal is too narrow for them."""
    console = result_console()
    table = _table(across, errors=True)
    unlimited = console.options.update(max_width=_UNLIMITED)
    narrow = console.measure(table, options=unlimited).maximum > console.width
    console.print(across.title, style="bold", markup=False)
    console.print(_table(across, errors=False) if narrow else table)
    for remark in (across.note, "The terminal is too narrow for deviations (±), which the page has." if narrow else ""):
        if remark:
            say(remark)
    console.print()


def _table(across: Across, *, errors: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("model", overflow="fold")
    for column in across.columns:
        table.add_column(column, justify="right", no_wrap=True)
    for row in across.rows:
        seeds = f" ({row.runs} runs)" if row.runs > 1 else ""
        cells = [across.cell(row, column, error=errors) for column in across.columns]
        table.add_row(*map(Text, (row.name + seeds, *cells)), style="dim italic" if row.of_paper else "")
    return table
