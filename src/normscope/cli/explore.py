"""`normscope explore` and `normscope serve`: the explorer as a file, and as a local web app."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from normscope.cli import options
from normscope.cli.checks import check_model, check_page, check_results, check_text
from normscope.cli.commands import add_command
from normscope.cli.console import (
    analyse,
    load_analyzer,
    result_file,
    say,
    say_approximate,
    say_written,
    working,
)
from normscope.cli.expansion import expanded
from normscope.cli.texts import TEXTS, TextOptions, Texts
from normscope.errors import InputError, require_extra
from normscope.models.options import ModelOptions
from normscope.request import AnalysisOptions

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer
    from normscope.explorer.packing import Precision
    from normscope.explorer.payload import Shown
    from normscope.results.analysis import Analysis
    from normscope.results.explanation import Explanation

_SIDE = "Side by side"

EXPLORE_EXAMPLES = (
    'normscope explore "The opera singer caught a soap bubble." --out bubble.html',
    'normscope explore "The opera singer caught a soap bubble." --heads --compare "The soap bubble caught an opera singer."',
)

SERVE_EXAMPLES = (
    "normscope serve",
    "normscope serve --model ./my-model --model ./my-other-model --port 9000",
    "normscope serve long.zarr",
    "normscope serve one.zarr other.zarr",
)


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    computed = options.of_analysis(*options.CONVENTIONS, "approximate")
    add_command(
        app, "explore", expanded(explore, reading=TEXTS, computed=computed, model=options.MODEL), *EXPLORE_EXAMPLES
    )
    add_command(app, "serve", expanded(serve, loading=options.LOADING), *SERVE_EXAMPLES)


def explore(
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT",
            help="The text to analyse, a text file (.txt, .md, .rst) or - for standard input (for a vision model, the file "
            "of an image), or a finished result: .nc or .zarr.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path("explorer.html"),
    layer: options.Layer = None,
    heads: Annotated[bool, typer.Option("--heads", help="Also the maps of single heads.")] = False,
    maps_only: Annotated[
        bool,
        typer.Option("--maps-only", help="Leave out what the model predicts, and why: this saves three passes."),
    ] = False,
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare",
            help="A second text to show next to it; with a finished result, another one.",
            show_default=False,
            rich_help_panel=_SIDE,
        ),
    ] = None,
    compare_model: Annotated[
        str | None,
        typer.Option(
            "--compare-model",
            help="A second model to show next to it, with its own tokenizer.",
            show_default=False,
            rich_help_panel=_SIDE,
        ),
    ] = None,
    precision: Annotated[
        str, typer.Option("--precision", help="Values quantised for 'display', or 'full' float32 (a larger file).")
    ] = "display",
    *,
    reading: TextOptions,
    computed: AnalysisOptions,
    model: ModelOptions,
) -> None:
    """Write one HTML file in which to explore the maps of a text.

    It works from disk and loads nothing from the network. Step through the chain of a layer and watch each component
    rewrite the map; click tokens; compare; export. For a model with a head, it also has what the model predicts, and where
    that came from.
    """
    check_page(out)
    page_precision = _precision(precision)
    result = None if reading.as_text else result_file(text)
    if result is not None:
        other = None if compare is None else result_file(compare)
        if reading.any or compare_model is not None or (compare is not None and other is None):
            raise InputError(
                f"{text!r} is a finished result, shown as it is: leave out the options of an analysis. --compare takes "
                f"another finished result here."
            )
        _write(_opened(result, *([] if other is None else [other])), out, page_precision)
        return
    texts, (compare,) = reading.read(text, compare)
    check_text(texts.text, texts.pair)
    other_model = replace(model, model=compare_model, tokenizer=None, revision=None)
    for each in (model, *([] if compare_model is None else [other_model])):
        check_model(each, layer=layer, decoder_text=texts.decoder_text)
    first = load_analyzer(model)
    request: AnalysisOptions = {
        **computed,
        "decoder_text": texts.decoder_text,
        "layers": layer,
        "heads": heads,
    }
    analyses = [analyse(first, texts.inputs(first), request)]
    if compare is not None or compare_model is not None:
        second = first if compare_model is None else load_analyzer(other_model)
        other = texts if compare is None else texts.with_text(compare)
        analyses.append(analyse(second, other.inputs(second), request))
    for analysis in analyses:
        say_approximate(analysis)
    predictions, explanations = ([], []) if maps_only else _prediction(first, texts, analyses)
    _write([*analyses, *explanations], out, page_precision, predictions)


def _prediction(
    analyzer: Analyzer, texts: Texts, analyses: Sequence[Analysis]
) -> tuple[list[dict[str, object]], list[Explanation]]:
    """What the model predicts and why, for a single analysis of a model with a head that fits into a page."""
    from normscope.explorer.predictions import explained_prediction
    from normscope.explorer.requests import Order, task_of
    from normscope.explorer.windows import LongResults

    if len(analyses) > 1 or task_of(analyzer) is None or LongResults(*analyses).any:
        return [], []
    with working("Explaining the prediction", "layers") as on_progress:
        return explained_prediction(Order(analyzer, texts.inputs(analyzer), texts.decoder_text), on_progress)


def _write(
    results: Sequence[Shown], out: Path, precision: Precision, predictions: Sequence[dict[str, object]] = ()
) -> None:
    from normscope.explorer.page import write_page
    from normscope.explorer.windows import LongResults

    with working(f"Writing {out}") as tell:
        write_page(*results, path=out, precision=precision, tell=tell, predictions=predictions)
    say_written(out)
    if LongResults(*results).any:
        say("This result is too long for a page, which shows it in blocks of tokens: `normscope serve` looks inside.")


def serve(
    result: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RESULT",
            help="A finished result to show instead of models, or two side by side: .nc or .zarr.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="A folder, hub name or GGUF file, or smollm2; may be given several times. Default: the embedded "
            "all-MiniLM-L6-v2.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on. Any other than this machine's own needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="The port; 0 chooses a free one.")] = 8311,
    most_tokens: Annotated[int, typer.Option("--most-tokens", min=1, help="The longest text, in tokens.")] = 512,
    most_kept: Annotated[
        int,
        typer.Option("--most-kept", min=0, help="Finished analyses to keep in memory, in MB; the last is always kept."),
    ] = 512,
    *,
    loading: ModelOptions,
) -> None:
    """Serve the explorer as a local web app: enter a text, explore its maps.

    Only this machine can reach it by default.
    """
    wanted = [replace(loading, model=name) for name in model or [None]]
    check_results(result or [])
    for each in [] if result else wanted:
        check_model(each)
    require_extra("server", "The web app", "starlette", "uvicorn")
    from normscope.explorer.results import ResultApp
    from normscope.explorer.server import Limits, WebApp
    from normscope.explorer.serving import serve as run

    if result:
        names = " and ".join(path.name for path in result)
        results = _opened(*result)
        with working(f"Reading {names}") as tell:
            shown = ResultApp(*results, tell=tell)
        run(shown, what=names, host=host, port=port, say=say)
        return
    analyzers: dict[str, Analyzer] = {}
    for each in wanted:
        analyzer = load_analyzer(each)
        same = sum(known.name == analyzer.name for known in analyzers.values())
        analyzers[f"{analyzer.name} ({same + 1})" if same else analyzer.name] = analyzer
    limits = Limits(tokens=most_tokens, kept=most_kept * 2**20)
    run(WebApp(analyzers, limits), what=", ".join(analyzers), host=host, port=port, say=say)


def _opened(*paths: Path) -> list[Shown]:
    with working(f"Opening {' and '.join(path.name for path in paths)}"):
        from normscope.results.opening import open as open_result

        return [open_result(path) for path in paths]


def _precision(name: str) -> Precision:
    if name == "display" or name == "full":  # noqa: PLR1714  (so that the type is known)
        return name
    raise InputError(f"The precision of a page is 'display' or 'full', not {name!r}.")
