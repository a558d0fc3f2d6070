"""Spans of a text with their shares of a value: what any units of a text sum up to, ranked, and what was left out.

Shares of tokens add up, so that those of spans do, exactly. Every token is counted once: with the span that most of its
characters are in (white space aside), or with what was left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args, overload

import numpy as np

from normscope.errors import InputError, listing
from normscope.results.views import view

if TYPE_CHECKING:
    import pandas as pd

Rank = Literal["sum", "mean", "positive"]
"""Spans are ranked by their share, by the mean share of their tokens, or by the positive shares of their tokens alone."""


@dataclass(frozen=True)
class Span:
    """A stretch of text, how many tokens are counted with it, and its signed share of the value.

    `start` and `end` are characters of `Answer.prompt`; what is no stretch of text, such as the bias, has none. `source` is
    the document or turn that it is in.
    """

    text: str
    share: float
    tokens: int
    start: int | None = None
    end: int | None = None
    source: str = ""
    positive: float = 0.0
    """The sum of its tokens' positive shares: what speaks for the value, whatever in it speaks against."""

    @property
    def mean(self) -> float:
        """The mean share of its tokens; 0 without any."""
        return self.share / self.tokens if self.tokens else 0.0


class Spans(Sequence[Span]):
    """Spans from the largest share to the smallest. With `left_out` their shares add up to `value`.

    Examples:
        >>> from normscope.results.spans import Span, Spans
        >>> spans = Spans([Span("Marta lives in Lisbon.", 2.5, 6)], [Span("question", 0.5, 5)], value=3.0, unit="sentence")
        >>> spans[0].text, spans.total
        ('Marta lives in Lisbon.', 3.0)
    """

    def __init__(
        self, spans: Sequence[Span], left_out: Sequence[Span], *, value: float, unit: str, rank: Rank = "sum"
    ) -> None:
        if rank not in get_args(Rank):
            raise InputError(f"Spans are ranked by {listing(get_args(Rank))}, not by {rank!r}.")
        by = "share" if rank == "sum" else rank
        self._spans = sorted(spans, key=lambda span: getattr(span, by), reverse=True)
        self.left_out = tuple(left_out)
        self.value, self.unit, self.rank = value, unit, rank

    @property
    def total(self) -> float:
        """The sum of all shares, left out or not: the value, up to rounding."""
        return float(np.sum([span.share for span in (*self._spans, *self.left_out)]))

    @property
    def shares(self) -> list[float]:
        """The shares, in the order of the ranking."""
        return [span.share for span in self._spans]

    def top(self, count: int = 5) -> list[Span]:
        """The first spans of the ranking.

        Examples:
            >>> spans.top(1)[0].share
            2.5
        """
        return self._spans[:count]

    def in_text_order(self) -> list[Span]:
        """The spans in the order of the text.

        Examples:
            >>> len(spans.in_text_order())
            1
        """
        return sorted(self._spans, key=lambda span: span.start or 0)

    def to_pandas(self) -> pd.DataFrame:
        """One row for every span and for everything that was left out; the column `share` adds up to the value.

        Examples:
            >>> float(spans.to_pandas()["share"].sum())
            3.0
        """
        import pandas as pd  # noqa: PLC0415  (slow to import, and only needed here)

        return pd.DataFrame(self.rows())

    def rows(self) -> list[dict[str, object]]:
        """The same as plain values; what was left out has no rank.

        Examples:
            >>> [row["kind"] for row in spans.rows()]
            ['sentence', 'left out']
        """
        ranked = [(rank, self.unit, span) for rank, span in enumerate(self._spans, 1)]
        others = [(None, "left out", span) for span in self.left_out]
        return [
            {
                "rank": rank,
                "kind": kind,
                "text": span.text,
                "source": span.source,
                "share": span.share,
                "mean": span.mean,
                "positive": span.positive,
                "tokens": span.tokens,
                "start": span.start,
                "end": span.end,
            }
            for rank, kind, span in (*ranked, *others)
        ]

    def show(self, count: int = 10) -> None:
        """Print the first spans with their shares, and what was left out.

        Examples:
            >>> spans.show()  # doctest: +ELLIPSIS
             share ...
        """
        view("output.answer_terminal:show_spans")(self, count)

    @overload
    def __getitem__(self, index: int) -> Span: ...
    @overload
    def __getitem__(self, index: slice) -> list[Span]: ...
    def __getitem__(self, index: int | slice) -> Span | list[Span]:
        return self._spans[index]

    def __len__(self) -> int:
        return len(self._spans)

    def __iter__(self) -> Iterator[Span]:
        return iter(self._spans)

    def __repr__(self) -> str:
        left = listing(span.text for span in self.left_out)
        return f"Spans({len(self)} of unit {self.unit!r}, value={self.value:.4f}, left out: {left})"
