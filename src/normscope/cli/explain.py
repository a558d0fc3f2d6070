"""`normscope explain` and `normscope methods`: why a model makes a prediction, and the methods of attribution."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

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
    load_analyzer,
    named,
    result_console,
    say,
    say_written,
    working,
)
from normscope.cli.expansion import Expansion, expanded
from normscope.cli.explained_corpus import TEXTS, WORK, CorpusWork, explain_a_corpus, refuse_without_corpus
from normscope.cli.texts import PAIRS, TextOptions, renamed_option
from normscope.errors import InputError
from normscope.methods import METHODS
from normscope.models.options import ModelOptions
from normscope.options import MOST_DIGITS
from normscope.paths import PAGE, RESULTS, ending
from normscope.request import ExplainOptions, ExplainRequest

if TYPE_CHECKING:
    from rich.table import Table

    from normscope.analyzer import Analyzer
    from normscope.methods import Gives, Method
    from normscope.results.explanation import Explanation
    from normscope.results.verification import Verification

_ASKED = "What is explained"
_TOP = 15
_HOW, _SHOWN = "How", "What is shown"

EXAMPLES = (
    'normscope explain "Anna and Peter met. Anna gave the book to" --target " Peter" --against " Anna" --model ./my-gpt',
    "normscope explain report.txt --model smollm2 --units sentence --top 5",
    'normscope explain "What a lovely surprise!" --model ./my-classifier --method leave-one-out --out page.html',
    "normscope explain --corpus reviews.parquet --target-column label --model ./my-classifier --out explanations.parquet",
)

_TITLES: dict[Gives, str] = {
    "attribution": "Attributions of a prediction: normscope explain, Analyzer.explain(method=...)",
    "layer maps": "Maps of every layer: Analyzer.analyze(method=...); explain takes the row of their rollout",
}

METHODS_EXAMPLES = (
    "normscope methods",
    "normscope methods gradient",
)


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    request = Expansion(ExplainRequest, dict)
    explain = expanded(
        explain_command, reading=PAIRS, request=request, work=WORK, corpus_texts=TEXTS, model=options.MODEL
    )
    add_command(app, "explain", explain, *EXAMPLES)
    add_command(app, "methods", methods_command, *METHODS_EXAMPLES)


def explain_command(
    text: options.TextOrCorpus = None,
    *,
    reading: TextOptions,
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
    units: Annotated[
        Literal["token", "word", "sentence", "turn"],
        typer.Option("--units", help="The units that share values are summed over.", rich_help_panel=_SHOWN),
    ] = "token",
    top: Annotated[
        int,
        typer.Option(
            "--top", help="On the terminal, list this many of the strongest tokens.", rich_help_panel=_SHOWN, min=1
        ),
    ] = _TOP,
    flow: Annotated[
        float | None,
        typer.Option(
            "--flow",
            help="In a picture, draw the edges that carry this share (such as 0.9) of the flow through the layers.",
            show_default=False,
            rich_help_panel=_SHOWN,
        ),
    ] = None,
    verify: Annotated[
        int | None,
        typer.Option(
            "--verify",
            help="Also cut this many of the strongest edges in the real model, and compare with what is predicted.",
            show_default=False,
            rich_help_panel=_SHOWN,
            min=1,
        ),
    ] = None,
    out: options.Out = None,
    work: CorpusWork,
    corpus_texts: dict[str, Any],
    model: ModelOptions,
) -> None:
    """Show why the model predicts this: what each token contributes to a logit.

    The logit is that of a word or label, and by default it is decomposed exactly, for given attention weights, deviations
    of norms and slopes of activations. With --out it is written as a picture (svg, png, pdf), as a page (html: the
    explorer, in which to follow what flows through the layers), a table (csv, parquet, json) or netCDF (nc).

    With --corpus every text of a corpus is explained, into one table with a row for each token, word or sentence.
    """
    method: str = request.get("method", ExplainRequest.method)
    check_method(method, option or [], heads=request.get("heads", False), edges=bool(request.get("edges")))
    check_question(request, state=state)
    if work.corpus is not None:
        others = {"TEXT": text, "pair": reading.pair, "flow": flow, "verify": verify, "top": top != _TOP}
        asked = {**request, "at": _position(request.get("at"))} if "at" in request else request
        unit = "word" if words and units == "token" else units
        explain_a_corpus(
            *(work, corpus_texts, asked, others, out, model),
            units=unit,
            state=state,
            chat=reading.chat,
            method=lambda: _method(method, option or []),
        )
        return
    if text is None:
        raise InputError("Give a text to explain, or a corpus (--corpus).")
    refuse_without_corpus(work, corpus_texts)
    texts, (decoder_text,) = reading.read(text, request.get("decoder_text"))
    check_text(texts.text, texts.pair)
    check_explanation_file(out, flow)
    memory = read_bytes(request.get("max_memory"))
    check_model(model, decoder_text=decoder_text)
    analyzer = load_analyzer(model)
    target = request.get("target")
    if state and analyzer.family.encoder is not None:
        target, decoder_text = None, renamed_option("--target with --state", target, "--decoder-text", decoder_text)
    labels = {"target": _label(analyzer, target), "against": _label(analyzer, request.get("against"))}
    direction = {"direction": "state"} if state else {}
    labels["at"] = _position(request.get("at"))
    computed = {
        **labels,
        **direction,
        **({} if flow is None else {"edges": True}),
        "decoder_text": decoder_text,
        "method": _method(method, option or []),
        "max_memory": memory,
    }
    with working("Explaining", "layers") as on_progress:
        keywords = cast(ExplainOptions, {**request, **computed, "on_progress": on_progress})
        explanation = analyzer.explain(texts.inputs(analyzer), **keywords)
    if explanation.note:
        say(explanation.note, "yellow")
    chosen = "word" if words and units == "token" else units
    verified = None if verify is None else _verified(explanation, verify)
    if out is not None and ending(out, RESULTS) == PAGE:
        _write_page(explanation, out, chosen)
    else:
        show_or_write(_in_units(explanation, chosen), out, flow, top)
    if verified is not None:
        from normscope.output.explanation_terminal import verification_view

        result_console().print(verification_view(verified))


def _verified(explanation: Explanation, count: int) -> Verification:
    """Print the effects of edges that were cut in the model."""
    with working("Cutting edges", "passes") as on_progress:
        return explanation.verify(count, on_progress=on_progress)


def methods_command(name: options.NamePart = None) -> None:
    """List the methods: what each measures, what it costs, and where it comes from."""
    declarations = [METHODS.declaration(listed) for listed in named(name, METHODS, "method")]
    for gives, title in _TITLES.items():
        methods = [method for method in declarations if method.gives == gives]
        if methods:
            result_console().print(_methods_table(title, methods))


def _methods_table(title: str, methods: Sequence[type[Method]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title, style="bold"), title_justify="left", box=None, padding=(0, 2, 1, 0), pad_edge=False)
    table.add_column("method", no_wrap=True, style="bold")
    for heading in ("what a number means", "cost", "multiplications", "paper"):
        table.add_column(heading)
    for method in methods:
        options = ", ".join(f"{option}={value!r}" for option, value in method.defaults().items())
        signed = "signed" if method.signed else "not signed"
        details = [method.quantity, signed, *([f"options: {options}"] if options else [])]
        facts = (f"{method.summary} ({'; '.join(details)})", method.cost, method.operations, method.paper)
        table.add_row(method.name, *map(Text, facts))
    return table


def _method(name: str, given: list[str]) -> Method:
    """The method of a name with its options."""
    from normscope.methods import attribution, read_method

    return attribution(read_method(name, given))


def _position(at: str | None) -> str | int | None:
    """A position where a number was given, else the token itself."""
    return int(at) if at is not None and at.removeprefix("-").isdecimal() and len(at) <= MOST_DIGITS else at


def _label(analyzer: Analyzer, name: str | None) -> str | int | None:
    """A number if it can only be one."""
    from normscope.explain.wanted import label_or_number

    return None if name is None else label_or_number(analyzer, name)


def _in_units(explanation: Explanation, unit: str) -> Explanation:
    match unit:
        case "sentence":
            return explanation.sentences()
        case "word":
            return explanation.words()
        case "turn":
            return explanation.turns()
        case _:
            return explanation


def _write_page(explanation: Explanation, out: Path, unit: str) -> None:
    """Write the explorer, which opens with the flow and has every unit to choose from."""
    with working(f"Writing {out}"):
        explanation.save(out, start={"units": unit})
    say_written(out)


def show_or_write(explanation: Explanation, out: Path | None, flow: float | None, top: int = _TOP) -> None:
    """Show an explanation on the terminal, or write it to a file."""
    if out is None:
        from normscope.output.explanation_terminal import explanation_view

        result_console().print(explanation_view(explanation, top))
    else:
        from normscope.output.explanation_export import export_explanation

        with working(f"Writing {out}"):
            export_explanation(explanation, out, flow=flow)
        say_written(out)
