"""All benchmarks: one table and one JSON file for each section, with the facts of the machine, and one figure.

    python benchmarks/bench.py [--quick] [--section NAME ...] [--evidence FOLDER] [--out FOLDER]

Times are seconds of CPU with one thread unless a table says otherwise, and ratios are of times measured in one run. The page
docs/performance.md is made from the JSON files by tools/performance_page.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from measuring import Section, machine
from rich.console import Console
from sections import SECTIONS, evidence
from showing import Result, figure_of, table_of

from normscope.results.files import replacing

RESULTS = Path(__file__).parent / "results"
PEERS = Path(sys.prefix) / "peers"
"""Where `make bench` puts other tools. What is installed already comes first."""


def result_of(name: str, section: Section, *, quick: bool) -> Result:
    """Measure a section."""
    facts = machine()
    rows = [{key: _rounded(value) for key, value in row.items()} for row in section.rows(quick)]
    columns = [asdict(column) for column in section.columns]
    titled = {"section": name, "title": section.title, "quick": quick, "machine": facts}
    return titled | {"drawn": section.drawn, "columns": columns, "rows": rows}


def _rounded(value: Any) -> Any:
    """Four digits: more are noise."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--section", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="a small grid, in a few minutes")
    parser.add_argument(
        "--evidence", type=Path, metavar="FOLDER", help="rows for the section evidence, a CSV file a set"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    evidence.folder = options.evidence
    torch.set_num_threads(1)
    sys.path.append(str(PEERS))
    options.out.mkdir(parents=True, exist_ok=True)
    console = Console(width=160)
    console.print(machine())
    for name in options.section:
        result = result_of(name, SECTIONS[name], quick=options.quick)
        with replacing(options.out / f"{name}.json") as temporary:
            temporary.write_text(json.dumps(result, indent=1) + "\n")
        console.print(table_of(result))
    paths = (options.out / f"{name}.json" for name in SECTIONS)
    results = [json.loads(path.read_text()) for path in paths if path.exists()]
    with replacing(options.out / "bench.png") as temporary:
        figure_of(results).savefig(temporary, format="png", dpi=160)
    console.print(f"Written to {options.out}.")


if __name__ == "__main__":
    main()
