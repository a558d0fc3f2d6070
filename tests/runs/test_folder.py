"""The folder of a run: never someone else's, never shared by two runs, and clean after a kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.processes import Processes

from normscope.corpora import CorpusError
from normscope.errors import FileError
from normscope.runs import AnotherRunError, RunInProgressError, run
from normscope.runs.engines import Finished, InProcess, Work
from normscope.runs.folder import locked_folder
from normscope.runs.spool import Shard

pytestmark = pytest.mark.usefixtures("empty_pictures")

BEFORE = Path(__file__).parents[1] / "data" / "version-0.1"
TEXTS = ["The opera singer caught a soap bubble.", "It rained.", "The singer caught the rain."]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def contents(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# ---- only a run's own folder ---------------------------------------------------------------------------------------------


def test_overwriting_a_folder_that_holds_no_run_deletes_nothing(analyzer: Any, tmp_path: Path) -> None:
    mine = {"tables/thesis.csv", "figures/holiday.png", "shards/of/glass.txt", "manifest.json"}
    for name in mine:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    with pytest.raises(AnotherRunError, match="not empty and holds no run"):
        run(["mixing-ratio"], model=analyzer, corpus=TEXTS, out=tmp_path, overwrite=True)
    assert contents(tmp_path) == mine


@pytest.mark.parametrize("content", [{"speed": 3, "shoes": "red"}, [1, 2]])
def test_a_run_json_of_another_program_protects_its_folder(analyzer: Any, tmp_path: Path, content: Any) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "thesis.csv").write_text("mine")
    (tmp_path / "run.json").write_text(json.dumps(content))
    with pytest.raises(AnotherRunError, match="not that of a normscope run"):
        run(["mixing-ratio"], model=analyzer, corpus=TEXTS, out=tmp_path, overwrite=True)
    assert contents(tmp_path) == {"tables/thesis.csv", "run.json"}


def test_a_run_of_version_0_1_is_another_run_that_can_be_replaced(analyzer: Any, tmp_path: Path) -> None:
    settings = json.loads((BEFORE / "manifest.json").read_text())["settings"]
    (tmp_path / "run.json").write_text(json.dumps(settings))
    (tmp_path / "shards" / "000000").mkdir(parents=True)
    with pytest.raises(AnotherRunError, match=r"another version of normscope \(0\.1\.0\).*--overwrite"):
        run(["mixing-ratio"], model=analyzer, corpus=TEXTS, out=tmp_path)
    result = run(["mixing-ratio"], model=analyzer, corpus=TEXTS, out=tmp_path, overwrite=True)
    assert result.manifest["sequences"] == 3


def test_a_run_that_is_refused_leaves_no_folder(analyzer: Any, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no sequence"):
        run(["mixing-ratio"], model=analyzer, corpus=[" "], out=tmp_path / "new" / "run")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CorpusError, match="no sequence"):
        run(["mixing-ratio"], model=analyzer, corpus=[" "], out=tmp_path)
    assert list(tmp_path.iterdir()) == [], "a folder that was empty stays empty"
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FileError, match="cannot be made"):
        run(["mixing-ratio"], model=analyzer, corpus=TEXTS, out=tmp_path / "file" / "run")


# ---- one run at a time ---------------------------------------------------------------------------------------------------


class Intruded:
    """Computes here, while another run tries the same folder after every shard."""

    def __init__(self, analyzer: Any, folder: Path) -> None:
        self.analyzer, self.folder, self.refusals = analyzer, folder, 0

    def compute(self, work: Work, shards: Iterable[Shard]) -> Iterator[Finished]:
        for finished in InProcess(self.analyzer).compute(work, shards):
            yield finished
            with pytest.raises(RunInProgressError, match="Another process is running"):
                run(["dispersion"], model=self.analyzer, corpus=TEXTS, out=self.folder, overwrite=True)
            self.refusals += 1


def test_a_second_run_in_the_same_folder_is_refused_and_the_first_loses_nothing(analyzer: Any, tmp_path: Path) -> None:
    engine = Intruded(analyzer, tmp_path / "run")
    run(["mixing-ratio"], model=analyzer, corpus=TEXTS, out=tmp_path / "run", shard_size=1, engine=engine)
    assert engine.refusals == 3
    assert (tmp_path / "run" / "tables" / "mixing-ratio.parquet").exists()
    assert contents(tmp_path / "run") >= {f"shards/{name}/sums.npz" for name in ("000000-000001", "000002")}


def test_a_run_of_another_process_is_refused_with_exit_code_2(processes: Processes, tmp_path: Path) -> None:
    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join(TEXTS))
    arguments = ["run", "mixing-ratio", "-c", str(corpus), "-o", str(tmp_path / "run")]
    with locked_folder(tmp_path / "run"):
        done = processes.run("from normscope.cli import main; main()", *arguments)
    assert done.returncode == 2
    assert "Another process is running" in done.stderr and "Traceback" not in done.stderr


def test_a_failed_run_gives_its_folder_free(analyzer: Any, tmp_path: Path) -> None:
    class Broken:
        def compute(self, work: Work, shards: Iterable[Shard]) -> Iterator[Finished]:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(["mixing-ratio"], model=analyzer, corpus=TEXTS, out=tmp_path / "run", engine=Broken())
    assert run(["mixing-ratio"], model=analyzer, corpus=TEXTS, out=tmp_path / "run").folder == tmp_path / "run"


# ---- after a kill --------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from matplotlib.figure import Figure
import normscope.experiments as e

def killed(self, path, **options):
    open(path, "w").write("<svg")
    os.kill(os.getpid(), signal.SIGKILL)

Figure.savefig = killed
e.run(["mixing-ratio"], out=sys.argv[1], corpus={texts!r})
"""


@pytest.mark.slow
def test_what_a_killed_run_left_half_written_is_swept_by_the_next(analyzer: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    script = KILLED.format(texts=TEXTS)
    killed = subprocess.run([sys.executable, "-c", script, str(folder)], env=ENVIRONMENT, check=False)
    assert killed.returncode == -9
    assert [path.suffix for path in (folder / "figures").glob(".*")] == [".svg"]
    (folder / "tables" / ".keep").write_text("mine")
    run(["mixing-ratio"], model=analyzer, corpus=TEXTS, out=folder)
    hidden = {name for name in contents(folder) if Path(name).name.startswith(".")}
    assert hidden == {".run.lock", "tables/.keep"}
    assert (folder / "figures" / "mixing-ratio.svg").read_text().startswith("<?xml")
