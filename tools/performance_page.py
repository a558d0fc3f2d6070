"""The tables of measured numbers in the documentation, from the JSON files that the benchmarks write.

    python tools/performance_page.py

A page has a pair of markers for each table, `<!-- benchmark NAME -->` and `<!-- end of benchmark -->`. What stands between
them is written here and nowhere else.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from normscope.results.files import replacing

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = tuple(ROOT / "docs" / f"{name}.md" for name in ("performance", "explain", "similarity"))
FIGURE = ROOT / "docs" / "images" / "bench.png"
_BETWEEN = re.compile(
    r"(?P<start><!-- benchmark (?P<name>[\w-]+) -->\n).*?(?P<end><!-- end of benchmark -->)",
    re.DOTALL,
)


def filled(page: str, results: Path = RESULTS) -> str:
    """A page with its tables as the results have them."""

    def table(marker: re.Match[str]) -> str:
        result = json.loads((results / f"{marker['name']}.json").read_text(encoding="utf-8"))
        return f"{marker['start']}\n{markdown(result)}\n{marker['end']}"

    return _BETWEEN.sub(table, page)


def markdown(result: dict[str, Any]) -> str:
    """The rows of a result as a table, without columns that no row has, and the machine below it."""
    present = {key for row in result["rows"] for key, value in row.items() if value is not None}
    shown = [column for column in result["columns"] if column["key"] in present]
    lines = [[column["heading"] for column in shown], ["---"] * len(shown)]
    lines += [[_cell(row.get(column["key"]), column["form"]) for column in shown] for row in result["rows"]]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{table}\n\n{_machine(result)}\n"


def _cell(value: Any, form: str) -> str:
    return "" if value is None else form.format(value).replace("|", "\\|")


def _machine(result: dict[str, Any]) -> str:
    facts = result["machine"]
    threads = f"{facts['threads']} thread{'s' if facts['threads'] > 1 else ''}"
    grid = " The small grid of `--quick`." if result["quick"] else ""
    return (
        f"Measured on {facts['cores']} cores ({facts['processor']}), {threads}, {facts['gigaflops']:g} Gflop/s, load "
        f"{facts['load']:g}; Python {facts['python']}, torch {facts['torch']}, transformers {facts['transformers']}.{grid}"
    )


def main() -> None:
    for page in PAGES:
        content = filled(page.read_text(encoding="utf-8"))
        with replacing(page) as temporary:
            temporary.write_text(content, encoding="utf-8")
    if (RESULTS / "bench.png").exists():
        shutil.copyfile(RESULTS / "bench.png", FIGURE)


if __name__ == "__main__":
    main()
