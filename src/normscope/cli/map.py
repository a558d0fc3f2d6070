"""`normscope map` and `normscope growth`: attribution maps of a text, on the terminal or in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from normscope.cli import options
from normscope.cli.checks import (
    ALL,
    check_approximation,
    check_growth,
    check_head,
    check_map_file,
    check_model,
    check_text,
    scope_names,
)
from normscope.cli.commands import add_command
from normscope.cli.console import (
    analyse,
    load_analyzer,
    result_console,
    say,
    say_approximate,
    say_written,
    units_of,
    working,
)
from normscope.cli.expansion import expanded
from normscope.cli.texts import TEXTS, TextOptions
from normscope.errors import SelectionError
from normscope.models.config import no_encoder
from normscope.models.options import ModelOptions
from normscope.request import AnalysisOptions
from normscope.scopes import ATTENTION_WEIGHTS, Scope, basis, resolve, with_derived

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer
    from normscope.results.analysis import Analysis

MAP_EXAMPLES = (
    'normscope map "The opera singer caught a soap bubble."',
    'normscope map "The opera singer caught a soap bubble." --scope AttnResLnFf --layer 3 --out map.svg',
    'normscope map "A first text." --pair "A second one." --scope Attn --head 4 --layer 2 --normalise row',
    'normscope map "The horse raced past the barn fell." --scope all --out maps.parquet',
    'normscope map "Unbelievable!" --words --no-special --model ./my-model',
)

GROWTH_EXAMPLES = (
    'normscope growth "The opera singer caught a soap bubble." --layer 3 --out growth.png',
    'normscope growth "Unbelievable!" --words --normalise column --out growth.pdf',
)


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    of_map = options.of_analysis(*options.CONVENTIONS, "approximate", "products")
    of_growth = options.of_analysis(*options.CONVENTIONS)
    add_command(app, "map", expanded(map_command, reading=TEXTS, computed=of_map, model=options.MODEL), *MAP_EXAMPLES)
    growth = expanded(growth_command, reading=TEXTS, computed=of_growth, model=options.MODEL)
    add_command(app, "growth", growth, *GROWTH_EXAMPLES)


def map_command(
    text: options.TextArgument,
    scope: options.Scope = None,
    layer: options.Layer = None,
    head: options.Head = None,
    normalise: options.Normalise = "none",
    words: options.Words = False,
    no_special: options.NoSpecial = False,
    encoder: options.Encoder = False,
    out: options.Out = None,
    *,
    reading: TextOptions,
    computed: AnalysisOptions,
    model: ModelOptions,
) -> None:
    """Show the attribution map of a text, or write it to a file.

    Rows are queries (whose state it is), columns are keys (the tokens that it consists of). Only what is requested is
    computed. On the terminal the default is the last layer, in a file all layers. With --out the map is written as a picture
    (svg, png, pdf), a table (csv, parquet, json) or netCDF (nc).
    """
    texts, _ = reading.read(text)
    check_text(texts.text, texts.pair)
    check_map_file(out, scope, normalise)
    check_head(head, scope)
    check_approximation(computed)
    check_model(model, scopes=scope_names(scope), layer=layer, encoder=encoder, decoder_text=texts.decoder_text)
    analyzer = load_analyzer(model)
    scopes = _scopes(analyzer, scope, head, encoder=encoder)
    layers = layer if layer is not None or out is not None else analyzer.layers[-1]
    request: AnalysisOptions = {
        **computed,
        "decoder_text": texts.decoder_text,
        "scopes": _computed(scopes, encoder=encoder),
        "layers": layers,
        "heads": head is not None,
    }
    analysis = analyse(analyzer, texts.inputs(analyzer), request)
    say_approximate(analysis)
    analysis = units_of(analysis, words=words, no_special=no_special, encoder=encoder)
    if out is None:
        if layer is None:
            say(f"Layer {layers}, the last; choose another with --layer.")
        _show(analysis, scopes[0], analysis.layers[0], head, normalise)
    else:
        from normscope.output.export import export_map

        with working(f"Writing {out}"):
            export_map(analysis, out, scopes, head=head, normalise=normalise)
        say_written(out)


def growth_command(
    text: options.TextArgument,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The picture to write: svg, png or pdf.", show_default=False)
    ],
    layer: options.Layer = None,
    normalise: options.Normalise = "row",
    words: options.Words = False,
    no_special: options.NoSpecial = False,
    encoder: options.Encoder = False,
    *,
    reading: TextOptions,
    computed: AnalysisOptions,
    model: ModelOptions,
) -> None:
    """Draw how the map of one layer grows, component by component.

    The picture is a strip of maps, one for each scope, by default of the last layer.
    """
    texts, _ = reading.read(text)
    check_text(texts.text, texts.pair)
    check_growth(out, normalise)
    check_model(model, layer=layer, encoder=encoder, decoder_text=texts.decoder_text)
    analyzer = load_analyzer(model)
    if layer is None:
        layer = analyzer.layers[-1]
        say(f"Layer {layer}, the last; choose another with --layer.")
    request: AnalysisOptions = {**computed, "decoder_text": texts.decoder_text, "layers": layer}
    analysis = analyse(analyzer, texts.inputs(analyzer), request)
    analysis = units_of(analysis, words=words, no_special=no_special, encoder=encoder)
    with working(f"Drawing {out}"):
        from normscope.output.export import write_figure
        from normscope.plots import plot_growth

        write_figure(plot_growth(analysis, layer, normalise=normalise), out)
    say_written(out)


def _scopes(analyzer: Analyzer, scope: str | None, head: int | None, *, encoder: bool) -> list[Scope]:
    """The scopes meant by `--scope`: by default the whole layer, or with a head the last where heads are separate."""
    chain = analyzer.encoder_scopes if encoder else analyzer.scopes
    if encoder and not chain:
        raise SelectionError(no_encoder(analyzer.name))
    if scope == ALL:
        return chain
    if scope is None:
        return [Scope("Attn")] if head is not None else chain[-1:]
    return [resolve(scope, with_derived(chain))]


def _computed(scopes: list[Scope], *, encoder: bool) -> list[Scope]:
    """The scopes to compute for those to show: those they derive from, and the cheapest of a decoder that is not shown."""
    computed = [basis(scope) for scope in scopes]
    return [*computed, ATTENTION_WEIGHTS] if encoder else computed


def _show(analysis: Analysis, scope: str, layer: int, head: int | None, normalise: str) -> None:
    from normscope.output.terminal import map_table
    from normscope.results.select import select_map

    console = result_console()
    selection = select_map(analysis, scope, layer, head=head, normalised=normalise).without_missing_keys()
    console.print(map_table(selection, layer, console.width))
