"""An explained answer on a terminal: the answer, the spans with the largest shares as bars, and what was left out.

Makes rich renderables; only `show_spans` prints. Texts are inserted verbatim: nothing in them is markup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from normscope.options import Unit
from normscope.results.spans import Span, Spans

if TYPE_CHECKING:
    from normscope.results.answer import Answer

_BAR = 24
_LONGEST = 88
_FOR, _AGAINST = "#b35806", "#542788"
"""Shares for the answer and against it, as the ends of the palette have them."""

_MEANINGS = {
    "logit": "the logits of its tokens",
    "alternatives": "the logits of its tokens above those of the alternatives",
    "centred": "the logits of its tokens above their mean",
    "contrast": "the logits of its tokens above those of the next best",
}


def show_spans(spans: Spans, count: int = 10) -> None:
    """Print spans with their shares."""
    Console(highlight=False).print(spans_table(spans, count))


def answer_view(answer: Answer, unit: Unit = "sentence", count: int = 10) -> Group:
    """The answer, what of it is explained, its spans, and how they add up."""
    shown: list[RenderableType] = [Text(answer.text, style="bold"), Text(heading(answer), style="dim"), Text("")]
    shown += [Text(note, style="yellow") for note in notes(answer)]
    spans = answer.spans(unit)
    shown.append(spans_table(spans, count))
    shown.append(Text(f"conservation error {answer.completeness:.1e}", style="dim"))
    return Group(*shown)


def heading(answer: Answer) -> str:
    """What is explained, by which objective, and whether credit was passed on through the generated text."""
    explained = "" if answer.explained == answer.text else f"{answer.explained!r}: "
    against = answer.attrs["against"]
    other = f"the logit of its token above that of the other answer ({against!r})"
    what = other if against else _MEANINGS[answer.objective]
    hops = str(answer.attrs.get("hops", ""))
    through = "" if not hops else ", through the generated text" + ("" if hops == "all" else f" ({hops} hops)")
    return f"{explained}{what}, {answer.value:+.2f} together{through}"


def notes(answer: Answer) -> list[str]:
    """Notes for the reader, in sentences."""
    found: list[str] = []
    if not answer.attrs.get("finished", 1):
        found.append("The answer did not come to its end: allow it more tokens (max_new_tokens, --max-new-tokens).")
    return found


def spans_table(spans: Spans, count: int = 10) -> Table:
    """The first spans of the ranking, the sum of the others, and what was left out; together they add up to the value."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, width=_BAR)
    table.add_column(spans.unit, overflow="fold")
    several = len({span.source for span in spans}) > 1 and spans.unit not in ("document", "turn")
    largest = max((abs(span.share) for span in (*spans, *spans.left_out)), default=0.0)
    for span in spans.top(count):
        text = Text(shortened(span.text))
        table.add_row(
            _number(span.share), _bar(span.share, largest), text.append(f"  {span.source}", "dim") if several else text
        )
    rest = spans[count:]
    if rest:
        share = sum(span.share for span in rest)
        table.add_row(_number(share), _bar(share, largest), Text(f"{len(rest)} more", style="dim"))
    table.add_row("", "", "")
    for span in spans.left_out:
        table.add_row(_number(span.share), _bar(span.share, largest), Text(_left_out(span), style="dim"))
    table.add_row(
        Text(f"{spans.total:+.3f}", style="bold"), "", Text("sum of all, the model's own value", style="bold")
    )
    return table


def shortened(text: str, longest: int = _LONGEST) -> str:
    """A span on one line."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "\u2026"


def _left_out(span: Span) -> str:
    return f"{span.text} ({span.tokens} tokens)" if span.tokens else span.text


def _number(share: float) -> Text:
    return Text(f"{share:+.3f}", style=_FOR if share > 0 else _AGAINST)


def _bar(share: float, largest: float) -> Text:
    length = round(_BAR * abs(share) / largest) if largest else 0
    return Text("\u2588" * length, style=_FOR if share > 0 else _AGAINST)
