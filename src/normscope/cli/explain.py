"""`normscope explain` and `normscope methods`: what made a model say this, and the ways to tell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from normscope.cli import options
from normscope.cli.checks import (
    check_explanation_file,
    check_method,
    check_model,
    check_question,
    check_text,
    read_bytes,
)
from normscope.cli.commands import add_command
from normscope.cli.console import (
    given_texts,
    load_analyzer,
    named,
    read_text,
    result_console,
    say,
    say_written,
    working,
)
from normscope.cli.expansion import Expansion, expanded
from normscope.methods import METHODS, method
from normscope.models.options import ModelOptions
from normscope.request import ExplainOptions, ExplainRequest

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer
    from normscope.methods import Method
    from normscope.results.explanation import Explanation

_ASKED = "What is explained"
_MOST_DIGITS = 18
_HOW = "How"

EXAMPLES = (
    'normscope explain "Anna and Peter met. Anna gave the book to" --target " Peter" --against " Anna" --model ./my-gpt',
    'normscope explain "What a lovely surprise!" --model ./my-classifier --method leave-one-out --out page.html',
)

METHODS_EXAMPLES = (
    "normscope methods",
    "normscope methods gradient",
)


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    request = Expansion(ExplainRequest, dict)
    add_command(app, "explain", expanded(explain_command, request=request, model=options.MODEL), *EXAMPLES)
    add_command(app, "methods", methods_command, *METHODS_EXAMPLES)


def explain_command(
    text: options.TextArgument,
    *,
    pair: options.Pair = None,
    request: dict[str, Any],
    state: Annotated[
        bool,
        typer.Option(
            "--state",
            help="Explain the last state of a token itself: for models without a head.",
            rich_help_panel=_ASKED,
        ),
    ] = False,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME=VALUE",
            help="An option of the method, such as steps=100. May be given several times.",
            show_default=False,
            rich_help_panel=_HOW,
        ),
    ] = None,
    words: options.Words = False,
    flow: Annotated[
        float | None,
        typer.Option(
            "--flow",
            help="In a picture, draw the edges that carry this share (such as 0.9) of the flow through the layers.",
            show_default=False,
            rich_help_panel="What is shown",
        ),
    ] = None,
    out: options.Out = None,
    as_text: options.AsText = False,
    model: ModelOptions,
) -> None:
    """Show what made the model say this: what each token puts into a logit.

    The logit is that of a word or label, and by default it is taken apart exactly, for given attention weights, deviations
    of norms and slopes of activations. With --out it is written as a
    picture (svg, png, pdf), a page (html), a table (csv, parquet, json) or netCDF (nc).
    """
    text, (pair,) = given_texts(text, pair, as_text=as_text)
    check_text(text, pair)
    method: str = request.get("method", ExplainRequest.method)
    check_method(method, option or [], heads=request.get("heads", False))
    check_question(request, state=state)
    check_explanation_file(out, flow)
    memory = read_bytes(request.get("max_memory"))
    check_model(model)
    analyzer = load_analyzer(model)
    labels = {name: _label(analyzer, request.get(name)) for name in ("target", "against")}
    direction = {"direction": "state"} if state else {}
    computed = {**labels, **direction, "method": _method(method, option or []), "max_memory": memory}
    with working("Explaining", "layers") as on_progress:
        keywords = cast(ExplainOptions, {**request, **computed, "on_progress": on_progress})
        explanation = analyzer.explain(read_text(analyzer, text, pair, as_text=as_text), **keywords)
    if explanation.note:
        say(explanation.note, "yellow")
    if words:
        explanation = explanation.words()
    give_out(explanation, out, flow)


def methods_command(name: options.NamePart = None) -> None:
    """List the methods: what each measures, what it costs, and where it comes from."""
    names = named(name, METHODS, "method")
    from normscope.methods.table import methods_table

    result_console().print(methods_table([method(each) for each in names]))


def _method(name: str, given: list[str]) -> Method:
    """The method of a name with its options."""
    from normscope.methods import attribution, read_method

    return attribution(read_method(name, given))


def _label(analyzer: Analyzer, name: str | None) -> str | int | None:
    """A number where it can only be one: a label that is not called so, or a token of a model without a tokenizer."""
    if name is None or not name.isdecimal() or len(name) > _MOST_DIGITS:
        return name
    from normscope.families.heads import labels_of

    if analyzer.tokenizer is None:
        return int(name)
    names = labels_of(analyzer.model)
    return name if names is None or name in names else int(name)


def give_out(explanation: Explanation, out: Path | None, flow: float | None) -> None:
    """Show an explanation on the terminal, or write it to a file."""
    if out is None:
        from normscope.output.explanation_terminal import explanation_view

        result_console().print(explanation_view(explanation))
    else:
        from normscope.output.explanation_export import export_explanation

        with working(f"Writing {out}"):
            export_explanation(explanation, out, flow=flow)
        say_written(out)
