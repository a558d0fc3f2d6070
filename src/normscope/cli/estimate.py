"""`normscope estimate`: the cost of an analysis, before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from normscope.cli import options
from normscope.cli.checks import check_approximation, check_model, check_text
from normscope.cli.commands import add_command
from normscope.cli.console import load_analyzer, result_console
from normscope.cli.expansion import expanded
from normscope.cli.texts import TEXTS, TextOptions, renamed_option
from normscope.errors import InputError
from normscope.models.options import ModelOptions
from normscope.request import MapSelectionOptions

if TYPE_CHECKING:
    from normscope.estimate import Estimate

EXAMPLES = (
    'normscope estimate "The opera singer caught a soap bubble."',
    "normscope estimate --tokens 512 --inputs 1000",
    "normscope estimate --tokens 512 --scope AttnResLn --no-time --json",
    "normscope estimate --tokens 512 --approximate sketch",
    "normscope estimate --tokens 200 --explain",
)

_COUNTED = "What is counted"
_MOST, _MOST_INPUTS = 10**9, 10**6
"""The largest numbers that are accepted: far above any model, and far below overflow."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    computed = options.of_analysis("truncate", "approximate", "products")
    estimate = expanded(estimate_command, reading=TEXTS, computed=computed, model=options.MODEL)
    add_command(app, "estimate", estimate, *EXAMPLES)


def estimate_command(
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT",
            help="The text to analyse, a text file (.txt, .md, .rst), or - for standard input; for a vision model, the file "
            "of an image.",
            show_default=False,
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(
            "--tokens", "-n", min=1, max=_MOST, help="Instead of a text, its number of tokens.", show_default=False
        ),
    ] = None,
    inputs: Annotated[
        int, typer.Option("--inputs", min=1, max=_MOST_INPUTS, help="How many inputs of this length.")
    ] = 1,
    decoder_tokens: Annotated[
        int | None,
        typer.Option(
            "--decoder-tokens",
            min=1,
            max=_MOST,
            help="For an encoder-decoder model, how many tokens the decoder reads. Default: those of its text "
            "(--decoder-text), or as many as the source has.",
            show_default=False,
        ),
    ] = None,
    target_tokens: Annotated[
        int | None, typer.Option("--target-tokens", min=1, max=_MOST, show_default=False, hidden=True)
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", "-s", help="The scopes (default: all).", show_default=False, rich_help_panel=_COUNTED),
    ] = None,
    queries: Annotated[
        int | None,
        typer.Option(
            "--queries",
            min=1,
            max=_MOST_INPUTS,
            help="Rows of each map (default: all).",
            show_default=False,
            rich_help_panel=_COUNTED,
        ),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option("--layer", "-l", help="One layer, from 1.", show_default=False, rich_help_panel=_COUNTED),
    ] = None,
    heads: Annotated[
        bool, typer.Option("--heads", help="Also the maps of single heads.", rich_help_panel=_COUNTED)
    ] = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="An explanation of a prediction, instead of maps.", rich_help_panel=_COUNTED),
    ] = False,
    values: Annotated[
        int,
        typer.Option(
            "--values",
            min=1,
            max=_MOST,
            help="With --explain, how many tokens are explained.",
            rich_help_panel=_COUNTED,
        ),
    ] = 1,
    mixing: Annotated[
        bool,
        typer.Option("--mixing", help="Mixing ratios alone, without maps.", rich_help_panel=_COUNTED),
    ] = False,
    no_time: Annotated[bool, typer.Option("--no-time", help="Count only, without a second of measuring.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The numbers as JSON.")] = False,
    *,
    reading: TextOptions,
    computed: MapSelectionOptions,
    model: ModelOptions,
) -> None:
    """Estimate the cost of an analysis before it starts: operations, memory, time.

    Memory is in addition to the model's; the size of the results is shown with it. The time comes from measuring this
    machine for about a second.
    """
    if (text is None) == (tokens is None):
        raise InputError("Give a text or a number of tokens (--tokens), one of the two.")
    if text is None and (reading.pair is not None or "truncate" in computed):
        raise InputError("--pair and --truncate are for a text: give one instead of --tokens.")
    decoder_tokens = renamed_option("--target-tokens", target_tokens, "--decoder-tokens", decoder_tokens)
    approximate = computed.keys() & {"approximate", "products"}
    if explain and any((scope, queries, layer, mixing, approximate)):
        raise InputError("--explain goes through all layers: leave out the options of maps.")
    if mixing and any((heads, approximate)):
        raise InputError("Mixing ratios take no maps: leave out --heads, --approximate and --products.")
    check_approximation(computed)
    texts, _ = reading.read(text or "")
    if texts.decoder_text is not None and decoder_tokens is not None:
        raise InputError("Give the decoder's text or its number of tokens (--decoder-tokens), one of the two.")
    if text is not None:
        check_text(texts.text)
    check_model(model, scopes=scope or (), layer=layer, decoder_text=texts.decoder_text)
    analyzer = load_analyzer(model)
    common: dict[str, Any] = {
        "decoder_text": _several(texts.decoder_text if texts.decoder_text is not None else decoder_tokens, inputs),
        "heads": heads,
        "timed": not no_time,
        **computed,
    }
    sources = _several(tokens if text is None else texts.inputs(analyzer), inputs)
    if explain:
        counted = analyzer.estimate_explanation(sources, values=values, **common)
    else:
        rows = None if queries is None else list(range(queries))
        counted = analyzer.estimate(sources, maps=not mixing, scopes=scope, layers=layer, queries=rows, **common)
    if as_json:
        typer.echo(_json(counted))
        return
    _show(counted)


def _several(given: str | tuple[str, str] | list[dict[str, str]] | int | None, count: int) -> Any:
    """The same input `count` times."""
    return None if given is None else [given] * count


def _json(counted: Estimate) -> str:
    import json

    steps = {name: work.flops for name, work in counted.work.items()}
    numbers = {"flops": counted.flops, "memory": counted.memory, "result": counted.result, "seconds": counted.seconds}
    numbers["at_most"] = counted.at_most
    return json.dumps({**numbers, "steps": steps}, indent=2)


def _show(counted: Estimate) -> None:
    from normscope.estimate.estimate import quantity

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
