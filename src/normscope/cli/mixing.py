"""`normscope mix`: how much of every token's state comes from other tokens, layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from normscope.cli import options
from normscope.cli.checks import ALL, check_mixing_file, check_model, check_text, scope_names
from normscope.cli.commands import add_command
from normscope.cli.console import analysing, load_analyzer, result_console, say_written, working
from normscope.cli.expansion import expanded
from normscope.cli.texts import TEXTS, TextOptions
from normscope.models.options import ModelOptions
from normscope.request import MixingOptions

if TYPE_CHECKING:
    import xarray as xr

EXAMPLES = (
    'normscope mix "The opera singer caught a soap bubble."',
    'normscope mix "The opera singer caught a soap bubble." --scope AttnRes --out mixing.svg',
    'normscope mix "The opera singer caught a soap bubble." --scope all --out mixing.csv',
)


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    computed = options.of_analysis(*options.CONVENTIONS)
    mix = expanded(mix_command, reading=TEXTS, computed=computed, model=options.MODEL)
    add_command(app, "mix", mix, *EXAMPLES)


def mix_command(
    text: options.TextArgument,
    scope: options.Scope = None,
    layer: options.Layer = None,
    no_special: options.NoSpecial = False,
    out: options.Out = None,
    *,
    reading: TextOptions,
    computed: MixingOptions,
    model: ModelOptions,
) -> None:
    """Show mixing ratios: how much of each token's state comes from other tokens.

    0 is a state made of its own token only, 1 one of the others only. No map is computed, so long texts take about as long
    as a few forward passes. With --out the ratios are written as a picture (svg, png, pdf), a table (csv, parquet,
    json) or netCDF (nc).
    """
    texts, _ = reading.read(text)
    check_text(texts.text, texts.pair)
    check_mixing_file(out, scope)
    check_model(model, scopes=scope_names(scope), layer=layer, decoder_text=texts.decoder_text)
    analyzer = load_analyzer(model)
    scopes = None if scope == ALL else [scope or analyzer.scopes[-1]]
    request: MixingOptions = {
        **computed,
        "decoder_text": texts.decoder_text,
        "scopes": scopes,
        "layers": layer,
    }
    with analysing() as on_progress:
        ratios: xr.DataArray = analyzer.mixing_ratios(texts.inputs(analyzer), **{**request, "on_progress": on_progress})
    if no_special:
        ratios = ratios.isel(query=~ratios["query_special"].values)
    if out is not None:
        from normscope.output.export import export_mixing_ratios

        with working(f"Writing {out}"):
            export_mixing_ratios(ratios, out)
        say_written(out)
        return
    from normscope.output.terminal import mixing_table

    for name in ratios["scope"].values:
        result_console().print(mixing_table(ratios.sel(scope=name), str(name)))
