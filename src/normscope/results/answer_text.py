"""Where things stand in the text of an explained answer: documents, question, turns, tokens, and parts of the answer.

Reads the coordinates of an answer's dataset; knows no shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from normscope.errors import SelectionError, listing
from normscope.inputs.units import NO_SPAN, CharacterSpan, span_of_tokens
from normscope.options import whole_number

AnswerPart = str | slice | int | tuple[int, int]
"""A part of an answer: its text, a slice or number of tokens, or the characters at which it starts and ends."""

SOURCES = ("document", "turn")
"""Segments that an answer may come from."""

PROMPT = "prompt"
"""The name of all that the model read before its answer."""

_LEFT_OUT = {
    "document": "rest of the context",
    "turn": "rest of the chat",
    "question": "question",
    "answer": "answer so far",
}
_TEMPLATE = "template"


@dataclass(frozen=True)
class Source:
    """A document, a turn or another segment of the text."""

    kind: str
    name: str
    start: int
    end: int


class AnswerText:
    """The text of one answer with its prompt, and what is known of its characters."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self.dataset = dataset
        self.text = str(dataset.attrs["text"])
        kinds, titles, starts, ends = (dataset[f"segment_{name}"].values for name in ("group", "name", "start", "end"))
        self.segments = [
            Source(str(kind), str(name), int(start), int(end))
            for kind, name, start, end in zip(kinds, titles, starts, ends, strict=True)
        ]
        self.answer_start = self.segments[-1].start

    @property
    def answer_bounds(self) -> CharacterSpan:
        """Where the answer starts and ends, without the white space around it."""
        inside = self.text[self.answer_start :]
        start = self.answer_start + len(inside) - len(inside.lstrip())
        return start, start + len(inside.strip())

    def offsets(self, dimension: str = "token") -> list[CharacterSpan]:
        """The characters of all tokens, or of all outputs."""
        starts, ends = (self.dataset[f"{dimension}_{name}"].values.tolist() for name in ("start", "end"))
        return list(zip(starts, ends, strict=True))

    # ---- documents and turns -------------------------------------------------------------------------------------------

    def sources(self, kind: str | None = None) -> list[Source]:
        """Documents and turns, or one of the two; without a context, the question. Raises if there are none."""
        found = [each for each in self.segments if each.kind in (SOURCES if kind is None else (kind,))]
        if kind is None and not found:
            found = [each for each in self.segments if each.kind == "question"]
        if not found:
            given = {"document": "a context", "turn": "messages"}.get(kind or "", "a context or messages")
            raise SelectionError(
                f"This answer was explained without {given}, so there is no {kind or 'sentence'} in it."
            )
        return found

    def bounds_of(self, name: str | None) -> CharacterSpan:
        """Where the document or turn of a name starts and ends (default: the only one)."""
        if name == PROMPT:
            return 0, self.answer_start
        sources = self.sources()
        matching = [each for each in sources if name is None or each.name == name]
        if len(matching) != 1:
            said = "Say which one is meant (of=...)" if name is None else f"There is no document or turn {name!r}"
            raise SelectionError(f"{said}: {listing(repr(each.name) for each in sources)}, or {PROMPT!r}.")
        return matching[0].start, matching[0].end

    def source_at(self, place: int) -> str:
        """The name of the document, turn or question that a character is in."""
        found = (each.name for each in self.segments if each.kind != "answer" and each.start <= place < each.end)
        return next(found, "")

    def token_spans(self) -> Iterator[CharacterSpan]:
        """The characters of the tokens of documents and turns; several tokens that stand for one character are one span."""
        offsets = self.offsets()
        places = span_of_tokens(self.text, offsets, [(each.start, each.end) for each in self.sources()])
        last = 0
        for (start, end), place in zip(offsets, places, strict=True):
            if place != NO_SPAN and last <= start < end:
                last = end
                yield start, end

    def left_out(self, places: np.ndarray) -> dict[str, np.ndarray]:
        """Tokens that are in no span, by what they are: question, template, the answer itself, the rest of the context."""
        owners = span_of_tokens(self.text, self.offsets(), [(each.start, each.end) for each in self.segments])
        written = self.dataset["token_output"].values >= 0
        kinds = np.array([each.kind for each in self.segments] + [_TEMPLATE], dtype=object)[owners]
        kinds[written] = "answer"
        found = {
            title: (kinds == kind) & (places == NO_SPAN) for kind, title in (*_LEFT_OUT.items(), (_TEMPLATE, _TEMPLATE))
        }
        return {title: members for title, members in found.items() if members.any()}

    # ---- parts of the answer -------------------------------------------------------------------------------------------

    def outputs_of(self, part: AnswerPart, occurrence: int = 0) -> list[int]:
        """The indices of the tokens of a part of the answer."""
        count = self.dataset.sizes["output"]
        match part:
            case slice():
                chosen = list(range(count))[part]
            case str():
                chosen = self._outputs_at(*self._found(part, occurrence))
            case (start, end):
                chosen = self._outputs_at(*(whole_number(each, "The start or end of a part") for each in (start, end)))
            case _:
                place = whole_number(part, "The number of a token of the answer")
                chosen = [range(count)[place]] if -count <= place < count else []
        if not chosen:
            raise SelectionError(f"The part {part!r:.60} of the answer has no token: it has {count}, 0 to {count - 1}.")
        return chosen

    def text_of(self, outputs: Sequence[int]) -> str:
        """The text of some tokens of the answer, with a mark where others are between them."""
        offsets, runs = self.offsets("output"), list[str]()
        for number, place in enumerate(outputs):
            start, end = offsets[place]
            joined = number > 0 and outputs[number - 1] == place - 1
            start = max(start, offsets[place - 1][1]) if joined else start  # tokens may share a character
            runs = [*runs[:-1], runs[-1] + self.text[start:end]] if joined else [*runs, self.text[start:end]]
        return " \u2026 ".join(run.strip() for run in runs)

    def _found(self, part: str, occurrence: int) -> CharacterSpan:
        text = self.text[slice(*self.answer_bounds)]
        places = [place for place in range(len(text)) if part and text.startswith(part, place)]
        if not places:
            raise SelectionError(f"{part!r:.60} is not in the answer, which is {text!r:.200}.")
        if not -len(places) <= occurrence < len(places):
            raise SelectionError(
                f"{part!r:.60} is in the answer {len(places)} times: there is no occurrence {occurrence}."
            )
        return places[occurrence], places[occurrence] + len(part)

    def _outputs_at(self, start: int, end: int) -> list[int]:
        if not start < end:
            return []
        base = self.answer_bounds[0]
        places = span_of_tokens(self.text, self.offsets("output"), [(base + start, base + end)])
        return np.flatnonzero(places != NO_SPAN).tolist()
