"""From an explained answer to what the front end shows: texts in pieces, and the shares of all items, row by row.

Owns the format of an answer (its other half is `front-end/src/model/answer.ts`). Everything is summed over units here, so
that the page of a long prompt stays small, and texts are cut here, since browsers count characters in another way.

    {
      "facts":   {"model": ..., "objective": ..., ...},      every attribute of the result, without its text
      "unit":    "sentence", "value": 9.19, "error": 1.8e-7, "explained": "Lisbon" or "" for all of the answer,
      "items":   [{"text", "source", "tokens", "ranked"}],   spans in the order of the text, then what was left out
      "sources": [{"kind", "name", "pieces": [{"text", "item"}]}],       documents, turns and question; item -1: in no span
      "answer":  [{"text", "word", "probability", "explained"}],         pieces; word -1: white space
      "words":   8,
      "views":   [{"name": "direct" | "reasoning", "total": [...], "rows": block [word, item] or null}],
      "missing": "why there are no rows", or ""
    }

`total[item]` adds up to `value`. `rows` has the same for each word of the answer by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from normscope.capture import LONG
from normscope.errors import NormscopeError
from normscope.explorer import packing as pieces
from normscope.inputs.units import NO_SPAN, CharacterSpan, span_of_tokens, units_of
from normscope.options import Unit
from normscope.results import answer_schema as names
from normscope.results.answer import Answer
from normscope.results.answer_text import AnswerText
from normscope.results.reasoning import handed_on
from normscope.results.spans import Spans

MOST_OUTPUTS = 64
MOST_TOKENS = LONG - 1
"""Tokens of an answer, and all tokens that the model read, up to which a page computes the table where it was not yet.

Above that an input is streamed, and its table takes as long as the explanation itself, or longer."""

MOST_FULL, MOST_SHARES = 50_000, 1_000_000
"""Shares of words by items up to which a page has them as float32, and up to which it has them at all."""


def answer_payload(answer: Answer, unit: Unit = "sentence") -> dict[str, object]:
    """What the front end needs of an answer. Computes the table of a short one if the model is at hand."""
    text = AnswerText(answer.dataset)
    spans = answer.spans(unit)
    table, missing = _table(answer)
    places, words = _words(text)
    if table is not None and len(words) * (len(spans) + len(spans.left_out)) > MOST_SHARES:
        table, missing = (
            None,
            f"These are too many {unit}s for the shares of single words: save the page in larger units.",
        )
    chosen = answer.dataset[names.SELECTED].values
    return {
        "facts": {name: value for name, value in pieces.facts(answer.dataset).items() if name != "text"},
        "unit": unit,
        "value": answer.value,
        "error": answer.completeness,
        "explained": "" if chosen.all() else answer.explained,
        "items": [
            {"text": each.text, "source": each.source, "tokens": each.tokens, "ranked": each.start is not None}
            for each in (*spans.in_text_order(), *spans.left_out)
        ],
        "sources": _sources(text, spans),
        "answer": _answer(text, answer.probabilities, chosen, places, words),
        "words": len(words),
        "views": _views(answer, _Items(text, spans, _outside(answer).shape[-1]), table, places, len(words)),
        "missing": missing,
    }


def _table(answer: Answer) -> tuple[np.ndarray | None, str]:
    """Shares and, last, what is outside of the tokens, `[output, token + outside]`; or why there are none."""
    if answer.attrs["against"]:
        return None, "A contrast is explained at one token, so that there are no shares of single words."
    short = len(answer.output_tokens) <= MOST_OUTPUTS and len(answer.tokens) <= MOST_TOKENS
    if names.TABLE not in answer.tree.to_dataset() and not short:
        return (
            None,
            "A long text: look at answer.table before you save the page, for the shares of single words.",
        )
    try:
        table = answer.table
    except NormscopeError:
        return (
            None,
            "This answer was saved without its table (table=True), so that there are no shares of single words.",
        )
    apart = [table[name].values for name in (("routed", "bias") if answer.counts_weights else ("bias",))]
    return np.column_stack([np.nan_to_num(table.values.astype(np.float64)), *apart]), ""


def _outside(answer: Answer) -> np.ndarray:
    """What belongs to no token, in the order in which spans have it: what stays with weights, and the biases."""
    return np.array([answer.routed, answer.bias] if answer.counts_weights else [answer.bias])


class _Items:
    """Which tokens belong to which item: spans in the order of the text, what was left out, and what is `outside` of the
    tokens last."""

    def __init__(self, text: AnswerText, spans: Spans, outside: int) -> None:
        ordered = spans.in_text_order()
        found = span_of_tokens(text.text, text.offsets(), [(span.start or 0, span.end or 0) for span in ordered])
        left = text.left_out(found)
        first = len(ordered) + len(left)
        self.of_token = np.append(np.zeros(len(found), int), first + np.arange(outside))
        own = self.of_token[: len(found)]
        own[found != NO_SPAN] = found[found != NO_SPAN]
        for number, members in enumerate(left.values(), len(ordered)):
            own[members] = number
        self.count = first + outside

    def sums(self, shares: np.ndarray) -> np.ndarray:
        """`[row, token + outside]` summed over items: `[row, item]`."""
        return np.stack([np.bincount(self.of_token, row, self.count) for row in shares])


def _views(
    answer: Answer, items: _Items, table: np.ndarray | None, places: np.ndarray, words: int
) -> list[dict[str, object]]:
    """The shares as they are and, where the table is known, with the credit of generated tokens handed on."""
    total = np.append(answer.attribution.values.astype(np.float64), _outside(answer))
    hops = str(answer.attrs.get("hops", ""))
    direct = "reasoning" if hops else "direct"
    if table is None:
        return [{"name": direct, "total": items.sums(total[None])[0].tolist(), "rows": None}]
    rows = np.zeros((words, table.shape[1]))
    np.add.at(rows, places, table)
    count = int(hops) if hops.isdecimal() else None
    outputs = answer.dataset["token_output"].values

    own = len(outputs)
    every = np.concatenate([total[None], rows])
    credit = handed_on(every[:, :own], table[:, :own], outputs, count)
    through = np.concatenate([credit, every[:, own:]], axis=1)
    views = [(direct, total, through[1:] if hops else rows)]
    if not hops and (outputs >= 0).any():
        views.append(("reasoning", through[0], through[1:]))
    return [
        {"name": name, "total": items.sums(sums[None])[0].tolist(), "rows": _packed(items.sums(each))}
        for name, sums, each in views
    ]


def _packed(rows: np.ndarray) -> dict[str, object]:
    """Shares `[word, item]`: as they are, or, if they are many, each within 0.2 %, in half of the space."""
    return pieces.block(rows, "full" if rows.size <= MOST_FULL else "display")


def _words(text: AnswerText) -> tuple[np.ndarray, list[CharacterSpan]]:
    """For every token of the answer its word, and the words. A token that is in none goes with the word before it."""
    start, end = text.answer_bounds
    words = [(start + first, start + last) for first, last in units_of(text.text[start:end], "word", "en")]
    words = words or [(start, max(end, start + 1))]
    places = span_of_tokens(text.text, text.offsets("output"), words)
    for place in range(len(places)):
        if places[place] == NO_SPAN:
            places[place] = places[place - 1] if place else 0
    return places, words


def _answer(
    text: AnswerText, chances: Sequence[float], chosen: np.ndarray, places: np.ndarray, words: Sequence[CharacterSpan]
) -> list[dict[str, Any]]:
    """The answer in pieces. The probability of a word is that of all its tokens, one after another."""
    probability = np.ones(len(words))
    np.multiply.at(probability, places, np.asarray(chances))
    explained = np.zeros(len(words), dtype=bool)
    np.logical_or.at(explained, places, chosen)
    return [
        {"text": part, "word": word}
        | ({} if word < 0 else {"probability": float(probability[word]), "explained": bool(explained[word])})
        for part, word in _cut(text.text, text.answer_bounds, words)
    ]


def _sources(text: AnswerText, spans: Spans) -> list[dict[str, object]]:
    """Documents, turns and question, cut into spans; a question without any is an item as a whole."""
    ordered = spans.in_text_order()
    ends = [(span.start or 0, span.end or 0) for span in ordered]
    left = {span.text: len(ordered) + number for number, span in enumerate(spans.left_out)}
    sources: list[dict[str, object]] = []
    for each in text.segments:
        if each.kind == "answer":
            continue
        parts = _cut(text.text, (each.start, each.end), ends)
        if each.kind == "question" and all(item < 0 for _, item in parts):
            parts = [(text.text[each.start : each.end], left.get("question", -1))]
        shown = [{"text": part, "item": item} for part, item in parts]
        sources.append({"kind": each.kind, "name": each.name, "pieces": shown})
    return sources


def _cut(text: str, bounds: CharacterSpan, spans: Sequence[CharacterSpan]) -> list[tuple[str, int]]:
    """A part of the text in pieces: spans inside it with their numbers, and what is between them with -1."""
    found: list[tuple[str, int]] = []
    place, last = bounds
    for number, (start, end) in enumerate(spans):
        if start < place or end > last:
            continue
        found += [(text[place:start], -1), (text[start:end], number)]
        place = end
    return [(part, number) for part, number in [*found, (text[place:last], -1)] if part]
