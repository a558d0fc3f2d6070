"""The methods as a table for a terminal: what each measures, what it costs, and where it comes from."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from normscope.methods import METHODS
from normscope.methods.base import Gives, Method

_TITLES: dict[Gives, str] = {
    "attribution": "Attributions of a prediction: normscope explain, Analyzer.explain(method=...)",
    "layer maps": "Maps of every layer: Analyzer.analyze(method=...); explain takes the row of their rollout",
}


def methods_table(names: Sequence[str]) -> Group:
    """The methods of these names, by what they give. The declarations are enough: the classes need torch."""
    declarations = [METHODS.declaration(name) for name in names]
    by_title = {title: [method for method in declarations if method.gives == gives] for gives, title in _TITLES.items()}
    return Group(*(_table(title, methods) for title, methods in by_title.items() if methods))


def _table(title: str, methods: Sequence[type[Method]]) -> Table:
    table = Table(title=Text(title, style="bold"), title_justify="left", box=None, padding=(0, 2, 1, 0), pad_edge=False)
    table.add_column("method", no_wrap=True, style="bold")
    for heading in ("what a number means", "cost", "multiplications", "paper"):
        table.add_column(heading)
    for method in methods:
        options = ", ".join(f"{option}={value!r}" for option, value in method.defaults().items())
        signed = "signed" if method.signed else "not signed"
        details = [method.quantity, signed, *([f"options: {options}"] if options else [])]
        facts = (f"{method.summary} ({'; '.join(details)})", method.cost, method.operations, method.paper)
        table.add_row(method.name, *map(Text, facts))
    return table
