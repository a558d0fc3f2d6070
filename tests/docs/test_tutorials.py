"""Every tutorial runs from its first cell to its last, on the embedded model; one needs the small language model, too."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_notebook

from docs.pages import DOCS, ROOT
from normscope.models.gguf import LANGUAGE_MODEL, is_language_model_installed

TUTORIALS = sorted((DOCS / "tutorials").glob("*.ipynb"))
SECONDS = 180
"""What all tutorials may take together, on one core."""


@pytest.mark.parametrize(
    "tutorials", [TUTORIALS[:2], pytest.param(TUTORIALS, marks=pytest.mark.slow)], ids=["the first two", "all"]
)
def test_every_tutorial_runs(tutorials: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one kernel, which is emptied in between: importing torch for each would take longer than the tutorials."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    cells = []
    for path in tutorials:
        if f'ns.load(\\"{LANGUAGE_MODEL}\\")' in path.read_text(encoding="utf-8") and not is_language_model_installed():
            continue
        cells.append(new_code_cell(f"%reset -f\nimport torch\ntorch.set_num_threads(1)\ndel torch\n# {path.name}"))
        read = nbformat.read(path, as_version=4).cells
        cells += [new_code_cell(cell.source) for cell in read if cell.cell_type == "code"]
    notebook = new_notebook(cells=cells)
    before = _seconds_of_children()
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    try:
        client.execute()
    except CellExecutionError as error:
        done = [cell.source for cell in notebook.cells if cell.get("execution_count")]
        pytest.fail(f"{[source for source in done if source.startswith('%reset')][-1]}\n{error}")
    assert _seconds_of_children() - before < SECONDS


def _seconds_of_children() -> float:
    """Seconds of CPU of the processes that have ended: those of the clock depend on what else is running."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_is_kept_with_what_it_gave(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code), "run `make docs-assets`"
    assert not any(output.output_type == "error" for cell in code for output in cell.outputs)
    text = path.read_text(encoding="utf-8")
    assert "/home/" not in text and "/tmp/" not in text, "a path of someone's machine"


def test_there_is_a_line_for_every_tutorial() -> None:
    page = (DOCS / "tutorials" / "index.md").read_text(encoding="utf-8")
    assert [path.stem for path in TUTORIALS if f"({path.stem}.md)" not in page] == []
    assert len(TUTORIALS) >= 9
