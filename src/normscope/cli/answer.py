"""`normscope answer`: which sentence, document or turn an answer came from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from normscope.cli import options
from normscope.cli.checks import check_answer_request, check_model, read_bytes
from normscope.cli.commands import add_command
from normscope.cli.console import given_texts, load_analyzer, result_console, say, say_written, working
from normscope.cli.expansion import Expansion, expanded
from normscope.cli.texts import ALONE, TextOptions, messages_in
from normscope.models.options import ModelOptions
from normscope.options import Unit
from normscope.request import AnswerOptions, AnswerRequest

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer
    from normscope.results.answer import Answer

_ANSWERED, _SHOWN = "What is answered", "What is shown"
_LONG = 1024

EXAMPLES = (
    'normscope answer --context notes.txt --context more.md --question "Where does Marta live?" --model ./my-chat-model',
    'normscope answer --context notes.txt -q "Where does Marta live?" --of "Lisbon" --model ./my-chat-model --out why.csv',
)


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    request = Expansion(AnswerRequest, dict)
    add_command(app, "answer", expanded(answer_command, request=request, reading=ALONE, model=options.MODEL), *EXAMPLES)


def answer_command(
    *,
    context: Annotated[
        list[str] | None,
        typer.Option(
            "--context",
            "-c",
            help="A document: a text file (.txt, .md, .rst), a text, or - for standard input. May be given several times.",
            show_default=False,
            rich_help_panel=_ANSWERED,
        ),
    ] = None,
    messages: Annotated[
        Path | None,
        typer.Option(
            "--messages",
            help="The turns of a chat, instead of documents and a question: a JSON file with a list of roles and contents.",
            show_default=False,
            rich_help_panel=_ANSWERED,
        ),
    ] = None,
    request: dict[str, Any],
    of: Annotated[
        str | None,
        typer.Option(
            "--of",
            help="Explain a part of the answer: its text.",
            show_default=False,
            rich_help_panel="What is explained",
        ),
    ] = None,
    hops: Annotated[
        str | None,
        typer.Option(
            "--hops",
            help="Pass the credit of generated tokens on to the tokens behind them: this many times, or 'all'.",
            show_default=False,
            rich_help_panel="What is explained",
        ),
    ] = None,
    units: Annotated[
        str,
        typer.Option(
            "--units",
            "-u",
            help="Sum over each token, word, line, sentence, paragraph, document or turn.",
            rich_help_panel=_SHOWN,
        ),
    ] = "sentence",
    top: Annotated[int, typer.Option("--top", help="The number of units to show.", rich_help_panel=_SHOWN)] = 10,
    out: options.Out = None,
    reading: TextOptions,
    model: ModelOptions,
) -> None:
    """Show which sentences, documents or turns an answer came from.

    The model answers a question about documents, and its answer is decomposed: what each sentence contributes to the logits
    of its tokens, exactly, for given attention weights, deviations of norms and slopes of activations. With --out it is
    written as a page (html), a picture (svg, png, pdf), a table (csv, parquet, json), netCDF (nc) or a Zarr folder (zarr),
    which has the table of every token of the answer by itself, computed and written block by block.
    """
    check_answer_request(request, context, messages, units=units, hops=hops, top=top, out=out)
    documents = _documents(context or [], as_text=reading.as_text)
    turns = None if messages is None else messages_in(messages)
    memory = read_bytes(request.get("max_memory"))
    check_model(model)
    analyzer = load_analyzer(model)
    keywords: dict[str, Any] = {**request, "context": documents or None, "messages": turns, "max_memory": memory}
    answer = _answered(analyzer, cast(AnswerOptions, keywords))
    if of is not None:
        with working("Explaining the part"):
            answer = answer.of(of)
    if hops is not None:
        with working("Following the generated text"):
            answer = answer.through_reasoning(None if hops == "all" else int(hops))
    _show_or_write(answer, cast(Unit, units), top, out)


def _answered(analyzer: Analyzer, keywords: AnswerOptions) -> Answer:
    """The explained answer. Progress is first its tokens, then the layers."""
    say_long(analyzer, AnswerRequest(**keywords))
    most = keywords.get("max_new_tokens", AnswerRequest.max_new_tokens)
    with ExitStack() as stack:
        stages = _Stages(stack)

        def on_text(_: str) -> None:
            stages.advance("Answering", "tokens", most)

        def on_progress(done: int, total: int) -> None:
            stages.advance("Explaining", "layers", total, done)

        return analyzer.explain_answer(**{**keywords, "on_text": on_text, "on_progress": on_progress})


class _Stages:
    """Shows what is being done, one message after another, each until the next begins."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack, self.message, self.count = stack, "", 0
        self.report: Callable[[int, int], None] | None = None

    def advance(self, message: str, things: str, total: int, done: int | None = None) -> None:
        if self.report is None or message != self.message:
            self.stack.pop_all().close()
            self.report = self.stack.enter_context(working(message, things))
            self.message, self.count = message, 0
        self.count = self.count + 1 if done is None else done
        self.report(self.count, total)


def say_long(analyzer: Analyzer, request: AnswerRequest) -> None:
    """Report the expected cost of a long prompt in advance."""
    from normscope.methods.answers import read_prompt

    prompt, _ = read_prompt(analyzer, request)
    if len(prompt.ids) >= _LONG:
        most = request.max_new_tokens if request.answer is None else 0
        say(f"The prompt is long. Explaining it takes about: {analyzer.estimate_answer(len(prompt.ids) + most)}")


def _documents(arguments: list[str], *, as_text: bool) -> dict[str, str]:
    """Documents by name: that of the file, or the number of the text."""
    if not arguments:
        return {}
    first, others = given_texts(arguments[0], *arguments[1:], as_text=as_text)
    texts = [first, *(cast("list[str]", others))]
    documents: dict[str, str] = {}
    for number, (argument, text) in enumerate(zip(arguments, texts, strict=True), 1):
        name = f"document {number}" if argument in (text, "-") else Path(argument).name
        documents[name if name not in documents else f"{name} ({number})"] = text
    return documents


def _show_or_write(answer: Answer, unit: Unit, top: int, out: Path | None) -> None:
    if out is None:
        from normscope.output.answer_terminal import answer_view

        result_console().print(answer_view(answer, unit, top))
        return
    with working(f"Writing {out}"):
        answer.save(out, unit=unit)
    say_written(out)
