"""The tables of measured numbers are those of the benchmarks' results, and the benchmarks write such results."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
_MARKER = re.compile(r"<!-- benchmark ([\w-]+) -->")


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("performance_page", ROOT / "tools" / "performance_page.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_have_the_numbers_of_the_results(tool: Any) -> None:
    for page in tool.PAGES:
        content = page.read_text(encoding="utf-8")
        assert tool.filled(content) == content, f"{page.name} is out of date: run python tools/performance_page.py"


def test_every_result_is_shown_once(tool: Any) -> None:
    shown = [name for page in tool.PAGES for name in _MARKER.findall(page.read_text(encoding="utf-8"))]
    assert sorted(shown) == sorted(path.stem for path in tool.RESULTS.glob("*.json"))


def test_another_number_is_another_page(tool: Any, tmp_path: Path) -> None:
    results = Path(shutil.copytree(tool.RESULTS, tmp_path / "results"))
    path = results / "start-up.json"
    result = json.loads(path.read_text(encoding="utf-8"))
    result["rows"][0]["seconds"] += 1
    path.write_text(json.dumps(result), encoding="utf-8")
    content = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert tool.filled(content, results) != content


def test_a_table_leaves_out_columns_without_values_and_says_where_it_was_measured(tool: Any) -> None:
    facts = dict(cores=2, processor="x86_64, AVX2", threads=1, gigaflops=90.0, load=0.5)
    versions = dict(python="3.12", torch="2.13", transformers="5.0")
    columns = [
        dict(key="what", heading="what", form="{}"),
        dict(key="ratio", heading="ratio", form="{:.1f}x"),
        dict(key="note", heading="note", form="{}"),
    ]
    rows = [dict(what="a|b", ratio=1.25), dict(what="c")]
    table, machine = tool.markdown(dict(machine=facts | versions, columns=columns, rows=rows, quick=True)).split("\n\n")
    assert table.splitlines() == ["| what | ratio |", "| --- | --- |", "| a\\|b | 1.2x |", "| c |  |"]
    assert "2 cores (x86_64, AVX2), 1 thread, 90 Gflop/s" in machine and "--quick" in machine


@pytest.mark.slow
def test_a_section_writes_its_result_and_the_figure(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "bench.py"), "--quick", "--section", "start-up", "--out", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    result = json.loads((tmp_path / "start-up.json").read_text(encoding="utf-8"))
    assert result["quick"] and all(row["seconds"] > 0 for row in result["rows"])
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
