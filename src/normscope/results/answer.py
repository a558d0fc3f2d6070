"""The result of explaining an answer: the share of every token, sentence, document or turn of its prompt.

A view on a dataset with a written schema, as `Explanation` is. What was not computed with it, such as the table of all
tokens of the answer, is computed when it is first looked at, as long as the model is at hand; a file has what was saved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from normscope.errors import InputError, SelectionError, listing
from normscope.explain.answering import AnswerEngine
from normscope.inputs.units import NO_SPAN, span_of_tokens, units_of
from normscope.options import UNITS, Unit, also_spelled, whole_number
from normscope.results import answer_schema as names
from normscope.results.answer_text import SOURCES, AnswerPart, AnswerText
from normscope.results.base import Result
from normscope.results.reasoning import handed_on
from normscope.results.spans import Rank, Span, Spans
from normscope.results.views import view

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

BIAS = "biases"
"""What belongs to no token, as a list of shares calls it."""

ROUTED = "routing"
"""What stays with attention weights, as a list of shares calls it."""


_CELLS_AT_ONCE = 2**22
"""Cells of a known table that are handed out together."""


class _Numbers:
    """The computed numbers of one answer, shared by the explanations of its parts: the dataset, and the engine for more."""

    def __init__(self, dataset: xr.Dataset, engine: AnswerEngine | None) -> None:
        self.dataset, self.engine = dataset, engine

    def table(self) -> xr.Dataset:
        """The dataset with its table, which is computed once."""
        if names.TABLE not in self.dataset:
            rows = xr.concat(list(self.blocks()), "output")
            self.dataset = self.dataset.assign({str(name): rows[name].variable for name in rows.data_vars})
        return self.dataset

    def blocks(self) -> Iterator[xr.Dataset]:
        """The table by blocks of rows, which are computed, or loaded from a file, as they are asked for."""
        if names.TABLE in self.dataset:
            known = [name for name in names.TABLES if name in self.dataset]
            outputs, tokens = self.dataset[names.TABLE].shape
            for rows in np.array_split(np.arange(outputs), max(1, outputs * tokens // _CELLS_AT_ONCE)):
                yield self.dataset[known].isel(output=rows).reset_coords(drop=True).load()
            return
        engine, first = self.at_hand("The table of all tokens of the answer"), 0
        for pulled in engine.rows():
            yield names.table_rows(self.dataset, pulled, first, engine.objective)
            first += len(pulled.values)

    def at_hand(self, what: str) -> AnswerEngine:
        if self.engine is None:
            raise SelectionError(f"{what} is not in this file. Explain the answer with table=True, and save it again.")
        return self.engine


class Answer(Result):
    """Which sentence, document or turn an answer came from: signed shares, which with the bias add up to its value.

    Made by `Analyzer.explain_answer`, or read from a file by `normscope.open`.

    Examples:
        >>> import normscope as ns
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> config = GPT2Config(n_layer=2, n_embd=12, n_head=2, vocab_size=30522)
        >>> model = ns.load(GPT2LMHeadModel(config), analyzer.tokenizer)  # a random one; load one that can answer
        >>> documents = ["Marta lives in Lisbon. She likes tea.", "Noor was born in Oslo."]
        >>> answer = model.explain_answer(context=documents, question="Where does Marta live?", answer="in lisbon")
        >>> answer.text, len(answer.spans())
        ('in lisbon', 3)
        >>> abs(answer.spans().total - answer.value) < 1e-4
        True
        >>> answer.table.dims
        ('output', 'token')
    """

    def __init__(self, dataset: xr.Dataset, engine: AnswerEngine | None = None, *, shared: Any = None) -> None:
        super().__init__(dataset)
        self._numbers: _Numbers = _Numbers(dataset, engine) if shared is None else shared

    # ---- what there is -------------------------------------------------------------------------------------------------

    @property
    def tree(self) -> xr.DataTree:
        """The dataset as the root of a tree, with the table if it was computed."""
        shared = self._numbers.dataset
        tables = {name: shared[name] for name in shared.data_vars if str(name).startswith(names.TABLE)}
        return xr.DataTree(self._dataset.assign(tables))

    @property
    def objective(self) -> str:
        """What is explained of every token: a `contrast`, its `alternatives`, its `centred` or its plain `logit`."""
        return str(self._dataset.attrs["objective"])

    @property
    def text(self) -> str:
        """The answer, without the white space around it."""
        return self._text.text[slice(*self._text.answer_bounds)]

    @property
    def explained(self) -> str:
        """The part of the answer that is explained: all of it, or what `of` names."""
        return self._text.text_of(np.flatnonzero(self._dataset[names.SELECTED].values).tolist())

    @property
    def prompt(self) -> str:
        """All that the model read before it answered, template included."""
        return self._text.text[: self._text.answer_start]

    @property
    def tokens(self) -> list[str]:
        """All tokens that the model read: those of the prompt, then those of the answer except the last."""
        return [str(token) for token in self._dataset["token_token"].values]

    @property
    def output_tokens(self) -> list[str]:
        """The tokens of the answer."""
        return [str(token) for token in self._dataset["output_token"].values]

    @property
    def value(self) -> float:
        """What is explained: the sum of the objective over the tokens of the part, by the model's own logits."""
        return float(self._dataset[names.VALUE])

    @property
    def bias(self) -> float:
        """What belongs to no token: the biases of all layers and of the head."""
        return float(self._dataset[names.BIAS])

    @property
    def counts_weights(self) -> bool:
        """Whether attention weights have an account of their own, next to tokens and biases.

        Examples:
            >>> answer.counts_weights
            False
        """
        return names.ROUTED in self._dataset and self.attrs.get("weights", "constant") != "constant"

    @property
    def routed(self) -> float:
        """The share that stays with attention weights. Zero if these are constants.

        Examples:
            >>> answer.routed
            0.0
        """
        return float(self._dataset[names.ROUTED]) if names.ROUTED in self._dataset else 0.0

    @property
    def attribution(self) -> xr.DataArray:
        """`[token]`, signed: what every token puts in. With `bias` and `routed` it adds up to `value`."""
        return self._dataset[names.ATTRIBUTION]

    @property
    def completeness(self) -> float:
        """The largest relative error of conservation over all layers."""
        return float(self._dataset[names.ERROR])

    @property
    def table(self) -> xr.DataArray:
        """`[output, token]`, signed: every token of the answer explained by itself; missing where a token comes later.

        With the coordinates `bias` and `routed` a row adds up to the coordinate `value`. Computed when first looked at.
        """
        dataset = self._numbers.table()
        rows = {"value": names.TABLE_VALUE, "bias": names.TABLE_BIAS, "error": names.TABLE_ERROR}
        rows |= {"routed": names.TABLE_ROUTED} if names.TABLE_ROUTED in dataset else {}
        return dataset[names.TABLE].assign_coords(
            {name: ("output", dataset[each].values) for name, each in rows.items()}
        )

    def table_blocks(self) -> Iterator[xr.Dataset]:
        """The rows of the table block by block, for tables that do not fit into memory: with each row's value and bias.

        They are computed one block after the other, and none is kept. `save("answer.zarr")` writes them to disk.

        Examples:
            >>> sum(block.sizes["output"] for block in answer.table_blocks()) == len(answer.output_tokens)
            True
        """
        return self._numbers.blocks()

    @property
    def probabilities(self) -> list[float]:
        """The probability of every token of the answer."""
        return [float(value) for value in self._dataset["output_probability"].values]

    # ---- units ---------------------------------------------------------------------------------------------------------

    def spans(self, unit: Unit = "sentence", *, rank: Rank = "sum", language: str = "en") -> Spans:
        """The units of the context, ranked by their signed shares, and what was left out: together they are the value.

        Args:
            unit: sum over sentences (default), tokens, words, lines, paragraphs, documents or turns.
            rank: by the share of a unit, by the mean share of its tokens, or by their positive shares alone.
            language: the language of the text, for its abbreviations: a code such as `"de"`.

        Examples:
            >>> [span.text for span in answer.spans().in_text_order()]
            ['Marta lives in Lisbon.', 'She likes tea.', 'Noor was born in Oslo.']
            >>> [span.text for span in answer.spans().left_out]
            ['question', 'answer so far', 'template', 'biases']
        """
        if unit not in UNITS:
            raise InputError(f"Shares are summed over one of {listing(UNITS)}, not over {unit!r:.40}.")
        text, sources = self._text, self._text.sources(unit if unit in SOURCES else None)
        if unit in SOURCES:
            return self._spans([(each.start, each.end, each.name) for each in sources], unit, rank)
        if unit == "token":
            return self._spans([(start, end, None) for start, end in text.token_spans()], unit, rank)
        found = [
            (each.start + first, each.start + last, None)
            for each in sources
            for first, last in units_of(text.text[each.start : each.end], unit, language)
        ]
        return self._spans(found, unit, rank)

    def documents(self, *, rank: Rank = "sum") -> Spans:
        """The documents of the context, ranked.

        Examples:
            >>> sorted(span.text for span in answer.documents())
            ['document 1', 'document 2']
        """
        return self.spans("document", rank=rank)

    def turns(self, *, rank: Rank = "sum") -> Spans:
        """The turns of the chat, ranked.

        Examples:
            >>> try:
            ...     answer.turns()
            ... except ns.SelectionError as error:
            ...     print(str(error).splitlines()[0])
            This answer was explained without messages, so there is no turn in it.
        """
        return self.spans("turn", rank=rank)

    def words(self, *, rank: Rank = "sum") -> Spans:
        """The words of the context, ranked.

        Examples:
            >>> len(answer.words())
            12
        """
        return self.spans("word", rank=rank)

    def by(
        self, spans: Sequence[tuple[int, int] | tuple[int, int, str]], *, of: str | None = None, rank: Rank = "sum"
    ) -> Spans:
        """Spans of your own, ranked: each `(start, end)` or `(start, end, name)`, in characters.

        They are counted from the start of the document or turn that `of` names (default: the only one); `of="prompt"` is
        the whole prompt.

        Examples:
            >>> spans = answer.by([(0, 5, "who"), (15, 21)], of="document 1")
            >>> sorted(span.text for span in spans)
            ['Lisbon', 'who']
        """
        base, limit = self._text.bounds_of(of)
        found: list[tuple[int, int, str | None]] = []
        for each in spans:
            start, end = (whole_number(place, "The start or end of a span") for place in each[:2])
            if not 0 <= start < end <= limit - base:
                raise SelectionError(f"There is no span {start} to {end} in a text of {limit - base} characters.")
            found.append((base + start, base + end, str(each[2]) if len(each) > 2 else None))
        return self._spans(found, "span", rank)

    @also_spelled(count="k")
    def top(self, k: int = 5, unit: Unit = "sentence") -> list[Span]:
        """The `k` units with the largest shares.

        Examples:
            >>> len(answer.top(2))
            2
        """
        return self.spans(unit).top(k)

    def _spans(self, found: Sequence[tuple[int, int, str | None]], unit: str, rank: Rank) -> Spans:
        """Shares of spans of the prompt (start, end, and a name if they have one), and of everything else."""
        text, shares = self._text, self.attribution.values.astype(np.float64)
        places = span_of_tokens(text.text, text.offsets(), [(start, end) for start, end, _ in found])
        inside = places != NO_SPAN
        sums, positive, tokens = (
            np.bincount(places[inside], weights, len(found))
            for weights in (shares[inside], np.maximum(shares[inside], 0), None)
        )
        spans = [
            Span(
                text=text.text[start:end] if name is None else name,
                share=float(sums[number]),
                tokens=int(tokens[number]),
                start=start,
                end=end,
                source=text.source_at(start),
                positive=float(positive[number]),
            )
            for number, (start, end, name) in enumerate(found)
        ]
        left = [
            Span(title, float(shares[members].sum()), int(members.sum()))
            for title, members in text.left_out(places).items()
        ]
        kept = [Span(ROUTED, self.routed, 0)] if self.counts_weights else []
        return Spans(spans, [*left, *kept, Span(BIAS, self.bias, 0)], value=self.value, unit=unit, rank=rank)

    # ---- parts ---------------------------------------------------------------------------------------------------------

    def of(self, part: AnswerPart, *, against: str | Sequence[int] | None = None, occurrence: int = 0) -> Answer:
        """The same for a part of the answer: the sum over its tokens.

        Args:
            part: a text that the answer has in it, a slice (or number) of its tokens, or `(start, end)` in characters.
            against: another text that could stand in its place: the first token in which the two differ is explained, by
                the difference of their logits.
            occurrence: which one, if the answer has the text several times; negative from the end.

        Examples:
            >>> part = answer.of("lisbon")
            >>> part.explained, abs(part.spans().total - part.value) < 1e-4
            ('lisbon', True)
            >>> answer.of("lisbon", against="oslo").objective
            'contrast'
        """
        chosen = self._text.outputs_of(part, occurrence)
        if against is not None:
            engine = self._numbers.at_hand("A contrast")
            place, pulled = engine.contrast(chosen, against)
            said = against if isinstance(against, str) else str(list(against))
            dataset = names.with_span(self._dataset, pulled, [place], objective="contrast", against=said, hops="")
            return Answer(dataset, shared=self._numbers)
        if names.TABLE in self._numbers.dataset:
            return Answer(self._from_table(chosen), shared=self._numbers)
        engine = self._numbers.at_hand("A part of the answer")
        plain = {"objective": engine.objective, "against": "", "hops": ""}
        dataset = names.with_span(self._dataset, engine.spans([chosen]), chosen, **plain)
        return Answer(dataset, shared=self._numbers)

    def _from_table(self, chosen: Sequence[int]) -> xr.Dataset:
        """The sum of rows of the table: no pass through the model is needed."""
        rows = self._numbers.dataset.isel(output=list(chosen))
        flags = np.zeros(self._dataset.sizes["output"], dtype=bool)
        flags[list(chosen)] = True
        sums = {
            names.ATTRIBUTION: ("token", np.nansum(rows[names.TABLE].values, axis=0), self.attribution.attrs),
            names.VALUE: ((), float(rows[names.TABLE_VALUE].sum())),
            names.BIAS: ((), float(rows[names.TABLE_BIAS].sum())),
            names.ROUTED: ((), float(rows[names.TABLE_ROUTED].sum()) if names.TABLE_ROUTED in rows else 0.0),
            names.ERROR: ((), float(rows[names.TABLE_ERROR].max())),
        }
        plain = {"objective": str(rows[names.TABLE].attrs["objective"]), "against": "", "hops": ""}
        return self._dataset.assign(sums).assign_coords({names.SELECTED: ("output", flags)}).assign_attrs(plain)

    def through_reasoning(self, hops: int | None = None) -> Answer:
        """The answer with credit passed on through the generated text: from tokens that the model wrote to the tokens
        behind them.

        Of every generated token, what it put in goes to the tokens that speak for it at its own position, in proportion,
        and on from there, until all is on the prompt, or for a number of hops. The sum stays what it was. Needs the table.

        Examples:
            >>> through = answer.through_reasoning()
            >>> abs(float(through.attribution.sum() - answer.attribution.sum())) < 1e-4
            True
        """
        count = None if hops is None else whole_number(hops, "The number of hops")
        table = self._numbers.table()
        credit = handed_on(self.attribution.values, table[names.TABLE].values, table["token_output"].values, count)
        attribution = self.attribution.copy(data=credit.astype(self.attribution.dtype))
        dataset = self._dataset.assign({names.ATTRIBUTION: attribution})
        return Answer(dataset.assign_attrs(hops="all" if count is None else str(count)), shared=self._numbers)

    # ---- out of here ---------------------------------------------------------------------------------------------------

    def to_pandas(self, unit: Unit = "sentence") -> pd.DataFrame:
        """The spans of a unit and what was left out as a table; its column `share` adds up to the value.

        Examples:
            >>> list(answer.to_pandas().columns)[:5]
            ['rank', 'kind', 'text', 'source', 'share']
        """
        return self.spans(unit).to_pandas()

    def show(self, **options: object) -> None:
        """Show the answer: in a notebook as its page, elsewhere as text with the largest shares and what was left out.

        The options `unit` (default: sentences) and `count` (10) choose the spans; with them it is text in a notebook, too.

        Examples:
            >>> answer.show(unit="document")  # doctest: +ELLIPSIS
            in lisbon
            ...
        """
        super().show(**options)

    def plot(self, **options: object) -> Figure:
        """The context coloured by the shares of its sentences; options are those of `plots.plot_answer`.

        Examples:
            >>> answer.plot().savefig("answer.svg")
        """
        return view("plots:plot_answer")(self, **options)

    def save(self, path: str | Path, **options: object) -> Path:
        """Write to a file in the format that its ending names: nc, zarr, html, json, csv, parquet, svg, png or pdf.

        A Zarr folder has the table, too, which is computed and written block by block if it was not yet (extra `zarr`). A
        netCDF file (nc, or no ending) holds everything that was computed, and `normscope.open` reads it back. Tables and
        pages hold the spans of a `unit` (default: sentences). A page has the shares of single words of the answer if it is
        short, or if its table was computed.

        Examples:
            >>> path = answer.save("answer.nc")
            >>> ns.open(path).text
            'in lisbon'
        """
        return view("output.answer_export:export_answer")(self, path, **options)

    def __repr__(self) -> str:
        made = f"objective={self.objective!r}, model={self.attrs['model']!r}"
        error = f"conservation error {self.completeness:.1e}"
        return f"Answer({self.explained!r:.60}: {len(self.tokens)} tokens, {made}, {error})"

    @cached_property
    def _text(self) -> AnswerText:
        return AnswerText(self._dataset)
