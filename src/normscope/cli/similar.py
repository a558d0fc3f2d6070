"""`normscope similar` and `normscope search`: why two texts are similar, and which passages of a corpus are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from normscope.cli import options
from normscope.cli.checks import check_model, check_text
from normscope.cli.commands import add_command
from normscope.cli.console import given_texts, load_analyzer, result_console, say, say_written, working
from normscope.cli.expansion import Expansion, expanded
from normscope.corpora import Corpus
from normscope.errors import FileError, InputError
from normscope.models.options import ModelOptions
from normscope.paths import FIGURES, NETCDF, RESULTS, ending
from normscope.request import SimilarityOptions, SimilarityRequest

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer
    from normscope.results.similarity import Similarity

_SHOWN = "What is shown"

EXAMPLES = (
    'normscope similar "A man is playing a guitar on stage." "Someone performs live music with a guitar."',
    'normscope similar "What is ionisation?" passage.txt --model ./my-encoder --retrieval --units word --out why.html',
)

SEARCH_EXAMPLES = (
    'normscope search "music on a stage" --corpus passages.txt',
    'normscope search "music on a stage" --corpus wiki.parquet --field text --top 10 --out hits.html',
)

Units = Annotated[
    Literal["token", "word"], typer.Option("--units", help="Show tokens, or words.", rich_help_panel=_SHOWN)
]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    similar = Expansion(SimilarityRequest, dict)
    search = Expansion(SimilarityRequest, dict, without=("truncate",))
    corpus = Expansion(Corpus, dict, "The corpus", only=("format", "unit", "field", "limit"))
    add_command(app, "similar", expanded(similar_command, request=similar, model=options.MODEL), *EXAMPLES)
    searching = expanded(search_command, request=search, reading=corpus, model=options.MODEL)
    add_command(app, "search", searching, *SEARCH_EXAMPLES)


def similar_command(
    first: Annotated[
        str, typer.Argument(metavar="FIRST", help="A text, a text file, or - for standard input.", show_default=False)
    ],
    second: Annotated[str, typer.Argument(metavar="SECOND", help="Another text.", show_default=False)],
    *,
    request: dict[str, object],
    units: Units = "token",
    out: options.Out = None,
    as_text: options.AsText = False,
    model: ModelOptions,
) -> None:
    """Show why two texts are similar: what each pair of tokens contributes to the similarity of their embeddings.

    Pairs, margins and a constant add up to the cosine that the model gives, exactly, for given attention weights, deviations
    of norms and slopes of activations. With --out they are written as a picture (svg, png, pdf), a page (html), a table
    (csv, parquet, json) or netCDF (nc). The score of a model that reads both texts together is explained instead.
    """
    one, (other,) = given_texts(first, second, as_text=as_text)
    for text in (one, other):
        check_text(text)
    if out is not None:
        ending(out, RESULTS)
    check_model(model)
    analyzer = load_analyzer(model)
    if _explained_together(analyzer, request, (one, str(other)), units, out):
        return
    with working("Comparing", "texts") as on_progress:
        keywords = cast(SimilarityOptions, {**request, "on_progress": on_progress})
        similarity = analyzer.similarity(one, str(other), **keywords)
    _show_or_write([similarity], units, out)


def search_command(
    query: Annotated[
        str,
        typer.Argument(metavar="QUERY", help="The query: a text, or - for standard input.", show_default=False),
    ],
    *,
    corpus: Annotated[
        Path,
        typer.Option(
            "--corpus", "-c", help="The passages: a text file with one on each line, or a table.", show_default=False
        ),
    ],
    top: Annotated[int, typer.Option("--top", help="The number of passages to explain.", rich_help_panel=_SHOWN)] = 5,
    request: dict[str, Any],
    reading: dict[str, Any],
    units: Units = "token",
    out: options.Out = None,
    as_text: options.AsText = False,
    model: ModelOptions,
) -> None:
    """Rank the passages of a corpus by their similarity to a query, and show why each of the best is found.

    Passages are read and embedded in batches, so a corpus may be large; those that are longer than the model takes are
    cut, as sentence-transformers does. With --out the hits are written as a page (html) or a table (csv, parquet, json).
    """
    (text, _) = given_texts(query, as_text=as_text)
    check_text(text)
    if top < 1:
        raise InputError(f"At least one passage is looked for, not {top} (--top).")
    if out is not None and (kind := ending(out, RESULTS)) in (*FIGURES, NETCDF) and top > 1:
        raise FileError(
            f"A file that ends in .{kind} holds one similarity: write html, csv, parquet or json, or pass --top 1."
        )
    check_model(model)
    passages = _Passages(Corpus(str(corpus), **reading))
    analyzer = load_analyzer(model)
    with working("Searching", "passages") as on_progress:
        keywords = cast(SimilarityOptions, {**request, "truncate": True, "on_progress": on_progress})
        hits = analyzer.search(text, passages, top=top, **keywords)
    passages.say_left_out()
    _show_or_write(hits, units, out)


class _Passages:
    """The texts of a corpus, one after the other, and the rows that were left out."""

    def __init__(self, corpus: Corpus) -> None:
        from normscope.corpora import Problems

        self.corpus, self.problems = corpus, Problems("skip")
        next(iter(corpus.records(Problems("skip"))), None)  # unreadable files are reported before a model is loaded

    def __iter__(self) -> Iterator[str]:
        for record in self.corpus.records(self.problems):
            if isinstance(record.text, str):
                yield record.text

    def say_left_out(self) -> None:
        """Report rows that could not be read."""
        bad = {kind: count for kind, count in self.problems.counts.items() if not kind.startswith("empty")}
        if bad:
            say(f"Left out of the corpus: {', '.join(f'{count} x {kind}' for kind, count in bad.items())}.", "yellow")


def _explained_together(
    analyzer: Analyzer, request: dict[str, Any], texts: tuple[str, str], units: str, out: Path | None
) -> bool:
    """The score of a model that reads both texts together, explained; whether the model is such a one."""
    from normscope.similarity.encoders import is_cross_encoder

    if request.get("pooling") is not None or not is_cross_encoder(analyzer):
        return False
    from normscope.cli.explain import show_or_write

    say(f"{analyzer.name} reads both texts together and scores the pair: the score is explained.")
    with working("Explaining", "layers") as on_progress:
        explanation = analyzer.explain(texts, truncate=request.get("truncate", False), on_progress=on_progress)
    show_or_write(explanation.words() if units == "word" else explanation, out, None)
    return True


def _show_or_write(similarities: Sequence[Similarity], units: str, out: Path | None) -> None:
    shown = [each.words() for each in similarities] if units == "word" else similarities
    if out is None:
        from normscope.output.similarity_terminal import show_similarities

        show_similarities(shown, result_console())
        return
    from normscope.output.similarity_export import export_similarities

    with working(f"Writing {out}"):
        export_similarities(shown, out)
    say_written(out)
