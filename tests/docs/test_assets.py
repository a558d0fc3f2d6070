"""Every picture of the documentation has a tool that makes it, and the runs behind the findings are commands of its page."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from docs.pages import DOCS, ROOT
from normscope.experiments import EXPERIMENTS


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The tools, which import each other by their names."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module


def test_every_picture_is_made_by_a_tool(tools: Any) -> None:
    assets, runs = tools("docs_assets"), tools("documented_runs")
    embedded = {*assets.plain_experiments(), *assets.SHORT}
    pages = {name: (DOCS / "experiments" / f"{name}.md").read_text(encoding="utf-8") for name in EXPERIMENTS}
    of_experiments = {name for page in embedded for name in re.findall(r"\(images/(\S+)\.png\)", pages[page])}
    sources = "".join((ROOT / "tools" / f"{name}.py").read_text() for name in ("docs_assets", "performance_page"))
    for picture in sorted(DOCS.rglob("*.png")):
        name = str(picture.relative_to(DOCS).with_suffix(""))
        by_run = name in runs.PICTURES
        by_experiment = picture.parent.parent.name == "experiments" and picture.stem in of_experiments
        assert by_run + by_experiment + (f'"{picture.name}"' in sources) == 1, name


def test_every_run_behind_a_picture_is_a_command_of_the_page_and_has_its_materials_listed(tools: Any) -> None:
    runs = tools("documented_runs")
    commands, page = runs.commands(), runs.PAGE.read_text(encoding="utf-8")
    assert {figure.split("/")[0] for figure in runs.PICTURES.values()} <= set(commands)
    listed = page.split("**What you need.**")[1].split("\n\n**")[0]
    for words in commands.values():
        assert [name for name in runs.needed(words) if f"`{name}`" not in listed and not (ROOT / name).exists()] == []


def test_what_needs_something_that_is_not_there_is_left_and_named(tools: Any, tmp_path: Path) -> None:
    runs = tools("documented_runs")
    (left,) = runs.made(tmp_path, ["deletion"])
    assert left.pictures == ("findings/classifier-deletion-srg", "experiments/images/deletion-srg")
    assert "classifier-dir" in left.reason and "SST-2-val.parquet" in left.reason


def test_a_run_is_the_command_of_the_page_in_the_folder_of_the_materials(
    tools: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, docs = tools("documented_runs"), tmp_path / "docs"
    (tmp_path / "text.txt").write_text("The opera singer caught a soap bubble.\n", encoding="utf-8")
    docs.mkdir()
    page = docs / "page.md"
    page.write_text('```\nA="ff-norms"\nnormscope run $A --corpus text.txt --out runs/one\n```\n', encoding="utf-8")
    monkeypatch.setattr(runs, "PAGE", page)
    monkeypatch.setattr(runs, "DOCS", docs)
    monkeypatch.setattr(runs, "PICTURES", {"norms": "one/ff-norms"})
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    assert list(runs.made(tmp_path)) == [docs / "norms.png"]
    assert (docs / "norms.png").read_bytes().startswith(b"\x89PNG")
