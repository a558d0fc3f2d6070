"""Results for a page, those of their stacks that are too long for one in blocks, and windows of these when asked for.

Owns when a stack is too long, and how payloads say so. A page begins with `opening`; a window takes the place of a stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args

from normscope import schema
from normscope.analysis import Analysis
from normscope.errors import InputError
from normscope.explain.explanation import Explanation
from normscope.explorer.payload import analysis_payload, build_payload
from normscope.explorer.pieces import Precision, block
from normscope.explorer.windows import Tell, Windows
from normscope.labels import readable

MOST_CELLS = 64_000_000
"""Cells of all maps up to which a page takes results whole: about 100 MB of it."""

MOST_SERVED_CELLS = 32_000_000
"""The same where someone is there to read windows, so that nobody has to wait for all of it."""

Part = Literal["decoder", "encoder"]
"""A stack of an analysis. The only one of a model without an encoder apart is its decoder."""


class LongResults:
    """Results to look at together, and the windows of those stacks that a page cannot take whole.

    `served` where windows can be asked for.
    """

    def __init__(self, *results: Analysis | Explanation, served: bool = False) -> None:
        self.results = results
        self.analyses = [result for result in results if isinstance(result, Analysis)]
        stacks = {name: stack for name, stack in self._stacks() if schema.MAP in stack.dataset}
        cells = {name: int(stack.dataset[schema.MAP].size) for name, stack in stacks.items()}
        most = MOST_SERVED_CELLS if served else MOST_CELLS
        short = most if sum(cells.values()) <= most else most // len(cells)
        self.windows = {name: Windows(stacks[name].dataset) for name in stacks if cells[name] > short}

    @property
    def any(self) -> bool:
        """Whether anything is too long."""
        return bool(self.windows)

    def opening(self, precision: Precision = "display", tell: Tell | None = None) -> dict[str, Any]:
        """The payload that a page begins with: the results themselves, long stacks in blocks, with their sizes."""
        told = _counted(tell, sum(windows.maps for windows in self.windows.values()))
        shown = [self._shown(place, analysis, told) for place, analysis in enumerate(self.analyses)]
        explanations = [result for result in self.results if isinstance(result, Explanation)]
        payload = build_payload(*shown, *explanations, precision=precision)
        for (place, part), windows in self.windows.items():
            content = payload["analyses"][place]
            tokens = readable(windows.dataset["key_token"].values)
            (content if part == "decoder" else content["encoder"])["windows"] = {**windows.size, "tokens": tokens}
        return payload

    def window(self, part: str, row: int, column: int) -> dict[str, Any]:
        """The window at a place of every analysis that is long there: what takes the place of its stack, or nothing.

        Raises:
            InputError: there is no such part, or none of it is long.
        """
        if part not in get_args(Part) or not any(name == part for _, name in self.windows):
            raise InputError(f"Nothing is shown by windows here that is called {part!r}.")
        parts = [part if analysis.has_encoder else "decoder" for analysis in self.analyses]
        windows = [self.windows.get(name) for name in enumerate(parts)]
        return {"analyses": [None if one is None else _window_payload(one, row, column) for one in windows]}

    def _stacks(self) -> Iterator[tuple[tuple[int, str], Analysis]]:
        for place, analysis in enumerate(self.analyses):
            yield (place, "decoder"), analysis
            if analysis.has_encoder:
                yield (place, "encoder"), analysis.encoder

    def _shown(self, place: int, analysis: Analysis, tell: Tell | None) -> Analysis:
        main, encoder = (self.windows.get((place, part)) for part in get_args(Part))
        dataset = analysis.dataset if main is None else main.whole(tell).dataset
        if not analysis.has_encoder:
            return Analysis(dataset)
        return Analysis(dataset, analysis.encoder if encoder is None else encoder.whole(tell))


def _window_payload(windows: Windows, row: int, column: int) -> dict[str, Any]:
    """The payload of a window, which says where it is, and what the own tokens of its queries have wherever they are."""
    window = windows.window(row, column)
    place = {"row": window.row, "column": window.column, "before": window.before}
    facts = {"windows": {**windows.size, "place": place}, "own": block(window.own, "full")}
    return analysis_payload(window.analysis, "display") | facts


def _counted(tell: Tell | None, total: int) -> Tell | None:
    """What is told of each of several stacks, counted over all of them."""
    if tell is None:
        return None
    done = 0

    def told(_: int, __: int) -> None:
        nonlocal done
        done += 1
        tell(done, total)

    return told
