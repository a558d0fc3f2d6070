"""The methods as a table for a terminal: what each measures, what it costs, and where it comes from."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from normscope.methods.base import Gives, Method

_TITLES: dict[Gives, str] = {
    "attribution": "Attributions of a prediction: normscope explain, Analyzer.explain(method=...)",
    "layer maps": "Maps of every layer: Analyzer.analyze(method=...); explain takes the row of their rollout",
}


def methods_table(methods: Sequence[Method]) -> Group:
    """The methods, by what they give."""
    tables = [
        _table(title, [each for each in methods if each.gives == gives])
        for gives, title in _TITLES.items()
        if any(each.gives == gives for each in methods)
    ]
    return Group(*tables)


def _table(title: str, methods: Sequence[Method]) -> Table:
    table = Table(title=Text(title, style="bold"), title_justify="left", box=None, padding=(0, 2, 1, 0), pad_edge=False)
    table.add_column("method", no_wrap=True, style="bold")
    for heading in ("what a number means", "cost", "multiplications", "paper"):
        table.add_column(heading)
    for each in methods:
        options = ", ".join(f"{name}={value!r}" for name, value in each.options.items())
        sign = "signed" if each.signed else "not signed"
        about = f"{each.summary} ({each.quantity}; {sign}" + (f"; options: {options})" if options else ")")
        table.add_row(each.name, *(Text(text) for text in (about, each.cost, each.operations, each.paper)))
    return table
