"""`normscope explore` and `normscope serve`: the explorer as a file, and as a local web app."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from normscope.cli import options
from normscope.cli.commands import add_command
from normscope.cli.expansion import expanded
from normscope.cli.session import load_analyzer, read_text, say, say_approximate, say_written, working
from normscope.errors import InputError, NormscopeError
from normscope.model_options import ModelOptions

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer
    from normscope.call_options import AnalysisOptions

_SIDE = "Side by side"

EXPLORE_EXAMPLES = (
    'normscope explore "The opera singer caught a soap bubble." --out bubble.html',
    'normscope explore "The opera singer caught a soap bubble." --heads --compare "The soap bubble caught an opera singer."',
)

SERVE_EXAMPLES = (
    "normscope serve",
    "normscope serve --model ./my-model --model ./my-other-model --port 9000",
)


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    add_command(app, "explore", expanded(explore, model=options.MODEL), *EXPLORE_EXAMPLES)
    add_command(app, "serve", expanded(serve, loading=options.LOADING), *SERVE_EXAMPLES)


def explore(
    text: options.TextArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path("explorer.html"),
    pair: options.Pair = None,
    target: options.Target = None,
    layer: options.Layer = None,
    heads: Annotated[bool, typer.Option("--heads", help="Also the maps of single heads.")] = False,
    compare: Annotated[
        str | None,
        typer.Option("--compare", help="A second text to show beside it.", show_default=False, rich_help_panel=_SIDE),
    ] = None,
    compare_model: Annotated[
        str | None,
        typer.Option(
            "--compare-model",
            help="A second model to show beside it, with its own tokenizer.",
            show_default=False,
            rich_help_panel=_SIDE,
        ),
    ] = None,
    precision: Annotated[
        str, typer.Option("--precision", help="Values quantised for 'display', or 'full' float32 (a larger file).")
    ] = "display",
    truncate: options.Truncate = False,
    value_bias: options.ValueBias = "token",
    approximate: options.Approximate = None,
    *,
    model: ModelOptions,
) -> None:
    """Write one HTML file in which to explore the maps of a text.

    It works from disk and loads nothing. Step through the chain of a layer and watch each component rewrite the map;
    click tokens; compare; export.
    """
    from normscope.export import ending

    ending(out, ("html", "htm"))
    page_precision = _precision(precision)
    first = load_analyzer(model)
    asked: AnalysisOptions = {
        "target": target,
        "layers": layer,
        "heads": heads,
        "truncate": truncate,
        "value_bias": value_bias,
        "approximate": approximate,
    }
    analyses = [first.analyze(read_text(text, pair), **asked)]
    if compare is not None or compare_model is not None:
        second = first
        if compare_model is not None:
            second = load_analyzer(replace(model, model=compare_model, tokenizer=None, revision=None))
        other = read_text(text, pair) if compare is None else compare
        analyses.append(second.analyze(other, **asked))

    for analysis in analyses:
        say_approximate(analysis)
    from normscope.explorer.page import write_page

    with working(f"Writing {out}"):
        write_page(*analyses, path=out, precision=page_precision)
    say_written(out)


def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="A folder or hub name; may be given several times. Default: the embedded all-MiniLM-L6-v2.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on. Any but this machine's own needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="The port; 0 takes any free one.")] = 8311,
    most_tokens: Annotated[int, typer.Option("--most-tokens", min=1, help="The longest text, in tokens.")] = 512,
    most_kept: Annotated[
        int,
        typer.Option("--most-kept", min=0, help="Finished analyses to keep in memory, in MB; the last always stays."),
    ] = 512,
    *,
    loading: ModelOptions,
) -> None:
    """Serve the explorer as a local web app: type a text, watch its maps.

    Only this machine can reach it by default.
    """
    try:
        from normscope.explorer.server import Limits
        from normscope.explorer.serving import serve as run
    except ModuleNotFoundError as error:
        raise NormscopeError(
            f"The web app needs {error.name}, which is not installed: pip install 'normscope[server]'."
        ) from error
    analyzers: dict[str, Analyzer] = {}
    for name in model or [None]:
        analyzer = load_analyzer(replace(loading, model=name))
        same = sum(known.name == analyzer.name for known in analyzers.values())
        analyzers[f"{analyzer.name} ({same + 1})" if same else analyzer.name] = analyzer
    limits = Limits(tokens=most_tokens, kept=most_kept * 2**20)
    run(analyzers, host=host, port=port, limits=limits, say=say)


def _precision(name: str) -> Literal["display", "full"]:
    if name == "display" or name == "full":  # noqa: PLR1714  (so that the type is known)
        return name
    raise InputError(f"The precision of a page is 'display' or 'full', not {name!r}.")
