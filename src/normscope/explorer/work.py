"""The work behind a request, done in the queue's thread: texts are analysed and become what the front end reads.

The only place that knows how an analysis tells its progress and is stopped between layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from normscope.analysis import Analysis
from normscope.analyzer import Analyzer
from normscope.errors import InputError
from normscope.explorer.payload import payload_json

__all__ = ["Cancelled", "Order", "Result", "analyse"]


class Cancelled(Exception):
    """The analysis was given up because nobody wants it any more."""


@dataclass(frozen=True)
class Order:
    """One analysis of a request."""

    analyzer: Analyzer
    text: str


@dataclass(frozen=True)
class Result:
    """What a job made: the analyses, and the same as the front end reads them."""

    analyses: list[Analysis]
    payload: bytes

    @property
    def size(self) -> int:
        """Bytes that it takes to keep this."""
        return sum(map(_size, self.analyses)) + len(self.payload)


def analyse(
    orders: Sequence[Order],
    *,
    heads: bool,
    most_tokens: int,
    tell: Callable[[int, int], None],
    cancelled: Callable[[], bool],
) -> Result:
    """Analyse the texts one after the other, telling how many layers are done, of how many in all.

    Raises:
        InputError: a text is too long, or cannot be analysed.
        Cancelled: nobody wants the result any more.
    """
    analyses: list[Analysis] = []
    for place, order in enumerate(orders):
        _refuse_long(order, most_tokens)

        def told(done: int, total: int, place: int = place) -> None:
            if cancelled():
                raise Cancelled
            tell(place * total + done, len(orders) * total)

        analyses.append(order.analyzer.analyze(order.text, heads=heads, progress=False, tell=told))
    return Result(analyses, payload_json(*analyses).encode("ascii"))


def _refuse_long(order: Order, most_tokens: int) -> None:
    tokenizer = cast(Any, order.analyzer.tokenizer)
    count = len(tokenizer(order.text, verbose=False)["input_ids"])
    if count > most_tokens:
        raise InputError(f"The text has {count} tokens, and this server takes at most {most_tokens}.")


def _size(analysis: Analysis) -> int:
    own = int(analysis.dataset.nbytes)
    return own + _size(analysis.encoder) if analysis.has_encoder else own
