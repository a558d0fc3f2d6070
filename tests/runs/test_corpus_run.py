"""Runs on the embedded model with the bundled text: one pass, shards, resume after a kill, reports, the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import normscope as ns
from normscope import runs as corpus_run
from normscope.cli import main
from normscope.corpora import bundled
from normscope.errors import FileError, InputError
from normscope.experiments import EXPERIMENTS
from normscope.runs import AnotherRunError, RunInterrupted, engines, run
from normscope.runs.spool import Shard

pytestmark = pytest.mark.usefixtures("empty_pictures")

SMALL: dict[str, Any] = {"corpus": str(bundled()), "unit": "packed", "max_tokens": 24, "shard_size": 2}
NAMES = ["scope-similarity", "mixing-ratio", "ff-amplification"]


@pytest.fixture(scope="module")
def finished(analyzer: Any, tmp_path_factory: pytest.TempPathFactory) -> corpus_run.RunResult:
    folder = tmp_path_factory.mktemp("runs") / "minilm"
    return run(NAMES, model=analyzer, out=folder, limit=6, **SMALL)


def _tables(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "tables").iterdir())}


def test_a_run_leaves_tables_figures_and_a_manifest(finished: corpus_run.RunResult) -> None:
    folder = finished.folder
    assert folder is not None
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in NAMES:
        for table in manifest["experiments"][name]["tables"]:
            assert pq.read_table(folder / "tables" / f"{table}.parquet").num_rows > 0
            assert (folder / "tables" / f"{table}.csv").stat().st_size > 0
        for figure in manifest["experiments"][name]["figures"]:
            assert (folder / "figures" / f"{figure}.svg").read_text().startswith("<?xml")
            assert (folder / "figures" / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
    assert manifest["sequences"] == 6 and manifest["tokens"] == 6 * 24 and manifest["masked"]
    assert 0 < manifest["worst_completeness_error"] < 1e-5
    assert {"fingerprint", "dtype"} <= set(manifest["model"]) and manifest["settings"]["corpus_fingerprint"]
    assert manifest["versions"]["torch"] == torch.__version__


def test_the_tables_are_those_of_separate_analyses(analyzer: Any, finished: corpus_run.RunResult) -> None:
    """The unmasked experiment, from nothing but the public interface."""
    ids = [
        analyzer.tokenizer(line.strip(), add_special_tokens=False)["input_ids"]
        for line in bundled().read_text().splitlines()
    ]
    stream = [number for line in ids for number in line]
    pieces = [stream[22 * place : 22 * (place + 1)] for place in range(6)]
    found: dict[tuple[str, str], list[float]] = {}
    for piece in pieces:
        encoding = {
            "input_ids": torch.tensor([[101, *piece, 102]]),
            "token_type_ids": torch.zeros(1, 24, dtype=torch.long),
        }
        item = analyzer.analyze(encoding)
        change = item.amplification("AttnResLn", "AttnResLnFf").values[2]
        for query, key in np.argwhere(~np.eye(24, dtype=bool)):
            found.setdefault((item.tokens[key], item.tokens[query]), []).append(float(change[query, key]))
    expected = {pair: np.mean(values) for pair, values in found.items() if len(values) > 1}
    best = sorted(expected, key=lambda pair: -expected[pair])[:10]
    table = [row for row in finished.tables["ff-amplification"].to_pylist() if (row["kind"], row["layer"]) == ("ff", 3)]
    assert [(row["key_type"], row["query_type"]) for row in table] == best
    assert [row["amplification"] for row in table] == pytest.approx([expected[pair] for pair in best], abs=1e-6)


def test_every_experiment_for_encoders_runs_in_one_pass(analyzer: Any) -> None:
    names = [
        name
        for name, kind in EXPERIMENTS.items()
        if name not in ("alignment", "entities") and "faithfulness" not in kind.__module__
    ]
    options = {"word-split": {"resamples": 50, "unit": "occurrence"}}
    result = run(names, model=analyzer, limit=4, options=options, **{**SMALL, "shard_size": 4})
    for name in names:
        for table in result.outcomes[name].tables.values():
            assert table.num_rows > 0 and set(table.column_names) <= set(EXPERIMENTS[name].columns), name
        assert result.outcomes[name].figures


def test_shards_and_their_order_do_not_change_the_tables(analyzer: Any, finished: corpus_run.RunResult) -> None:
    whole = run(NAMES, model=analyzer, limit=6, **{**SMALL, "shard_size": 6})
    for name, table in finished.tables.items():
        other = whole.tables[name]
        for column in table.column_names:
            mine, theirs = table[column].to_pylist(), other[column].to_pylist()
            assert mine == pytest.approx(theirs, abs=1e-5) if isinstance(mine[0], float) else mine == theirs, (
                name,
                column,
            )
    assert whole.folder is None


SCRIPT = """
import os, sys, torch, normscope.experiments as e
torch.set_num_threads(1)
if hasattr(os, "sched_setaffinity"):  # a core, and so a thread, for each process
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:{jobs}])
if __name__ == "__main__":
    e.run({names!r}, out=sys.argv[1], corpus={corpus!r}, unit="packed", max_tokens=24, limit=6, shard_size=2, jobs={jobs})
"""


def _start(script: Path, folder: Path, jobs: int = 1) -> subprocess.Popen[bytes]:
    script.write_text(SCRIPT.format(names=NAMES, corpus=str(bundled()), jobs=jobs))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, str(script), str(folder)], env=environment, stderr=subprocess.DEVNULL)


@dataclass(frozen=True)
class Noting:
    """Computes here, and notes which shards."""

    analyzer: Any
    computed: list[int]

    def compute(self, work: engines.Work, shards: Iterable[Shard]) -> Iterator[engines.Finished]:
        for index, partials in engines.InProcess(self.analyzer).compute(work, shards):
            self.computed.append(index)
            yield index, partials


def test_a_killed_run_goes_on_and_gives_identical_tables(
    tmp_path: Path, analyzer: Any, finished: corpus_run.RunResult
) -> None:
    folder = tmp_path / "run"
    process = _start(tmp_path / "go.py", folder)
    deadline = time.monotonic() + 600
    while not any((folder / "shards").glob("000000*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = sorted(path.name for path in (folder / "shards").iterdir() if not path.name.startswith("."))
    assert done and done[0].startswith("000000") and not (folder / "manifest.json").exists()
    (folder / "shards" / ".000001-99").mkdir(exist_ok=True)  # what a kill in mid-write leaves
    engine = Noting(analyzer, [])
    run(NAMES, model=analyzer, out=folder, limit=6, engine=engine, **SMALL)
    assert engine.computed and 0 not in engine.computed
    assert not list((folder / "shards").glob(".*"))
    assert finished.folder is not None
    assert _tables(folder) == _tables(finished.folder)


@pytest.mark.slow
def test_processes_give_the_tables_of_one_process(tmp_path: Path, finished: corpus_run.RunResult) -> None:
    assert _start(tmp_path / "go.py", tmp_path / "run", jobs=2).wait() == 0
    assert finished.folder is not None
    assert _tables(tmp_path / "run") == _tables(finished.folder)


def test_an_interrupt_keeps_shards_and_says_how_to_go_on(
    analyzer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    original = engines.observe

    def interrupted(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(engines, "observe", interrupted)
    with pytest.raises(RunInterrupted, match=r"2 of 6 sequences are done.*same command"):
        run(["mixing-ratio"], model=analyzer, out=tmp_path / "run", limit=6, **SMALL)
    assert (tmp_path / "run" / "shards" / "000000").is_dir()
    monkeypatch.undo()
    result = run(["mixing-ratio"], model=analyzer, out=tmp_path / "run", limit=6, **SMALL)
    assert result.manifest["sequences"] == 6


def test_a_folder_belongs_to_one_run(analyzer: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(["mixing-ratio"], model=analyzer, out=folder, limit=2, **SMALL)
    with pytest.raises(AnotherRunError, match=r"corpus\.limit"):
        run(["mixing-ratio"], model=analyzer, out=folder, limit=3, **SMALL)
    run(["mixing-ratio"], model=analyzer, out=folder, limit=3, overwrite=True, **SMALL)
    assert json.loads((folder / "manifest.json").read_text())["sequences"] == 3
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("do not touch")
    with pytest.raises(AnotherRunError, match="not empty"):
        run(["mixing-ratio"], model=analyzer, out=tmp_path / "mine", limit=2, **SMALL)


def test_a_damaged_shard_is_named(analyzer: Any, tmp_path: Path) -> None:
    run(["mixing-ratio"], model=analyzer, out=tmp_path / "run", limit=2, **SMALL)
    sums = tmp_path / "run" / "shards" / "000000" / "sums.npz"
    sums.write_bytes(sums.read_bytes()[:50])
    with pytest.raises(FileError, match=r"000000.*damaged.*Delete"):
        run(["mixing-ratio"], model=analyzer, out=tmp_path / "run", limit=2, **SMALL)


def test_experiments_that_look_at_weights_alone_need_no_corpus(analyzer: Any) -> None:
    result = run(["expansion-rate"], model=analyzer, options={"expansion-rate": {"form": "linear"}})
    weights = {name: value.double() for name, value in analyzer.model.state_dict().items()}
    prefix = next(name for name in weights if name.endswith("layer.2.attention.self.value.weight")).removesuffix(
        "self.value.weight"
    )
    product = weights[f"{prefix}self.value.weight"].T @ weights[f"{prefix}output.dense.weight"].T
    expected = float(torch.linalg.svdvals(product).square().sum().sqrt() / len(product) ** 0.5)
    assert result.tables["expansion-rate"].to_pylist()[2]["expansion_rate"] == pytest.approx(expected)
    value = torch.cat([weights[f"{prefix}self.value.weight"].T, weights[f"{prefix}self.value.bias"][None]])
    value = torch.cat([value, torch.eye(len(value))[:, -1:].double()], 1)
    output = torch.block_diag(weights[f"{prefix}output.dense.weight"].T, torch.ones(1, 1).double())
    output[:-1, -1] = weights[f"{prefix}output.dense.bias"]
    authors = float((value @ output).norm() / len(output) ** 0.5)
    result = run(["expansion-rate"], model=analyzer, options={"expansion-rate": {"form": "authors"}})
    assert result.tables["expansion-rate"].to_pylist()[2]["expansion_rate"] == pytest.approx(authors)


def test_statistics_are_those_of_the_model(analyzer: Any) -> None:
    """Norms of vectors, from the model's own modules."""
    text = "The quick brown fox jumps over the lazy dog."
    result = run(["dispersion", "ff-norms"], model=analyzer, corpus=[text], masking="none")
    seen: dict[str, torch.Tensor] = {}
    block = analyzer.model.base_model.encoder.layer[3]
    hooks = [
        block.attention.self.register_forward_pre_hook(lambda _, args: seen.update(x=args[0])),
        block.attention.self.value.register_forward_hook(lambda _, __, out: seen.update(value=out)),
        block.attention.output.LayerNorm.register_forward_hook(lambda _, __, out: seen.update(bypass=out)),
        block.output.dense.register_forward_hook(lambda _, __, out: seen.update(ff=out)),
    ]
    with torch.no_grad():
        analyzer.model(**analyzer.tokenizer(text, return_tensors="pt"))
    for hook in hooks:
        hook.remove()
    rows = result.tables["dispersion"].to_pylist()
    x = next(row for row in rows if (row["quantity"], row["layer"]) == ("x", 4))
    assert x["mean"] == pytest.approx(float(seen["x"][0].norm(dim=-1).mean()), rel=1e-5)
    head = seen["value"][0, :, 32:64] @ block.attention.output.dense.weight[:, 32:64].T.detach()
    f = next(row for row in rows if (row["quantity"], row["layer"], row["head"]) == ("f(x)", 4, 2))
    assert f["mean"] == pytest.approx(float(head.norm(dim=-1).mean()), rel=1e-5)
    norms = {(row["layer"], row["vector"]): row["mean"] for row in result.tables["ff-norms"].to_pylist()}
    assert norms[4, "ff_output"] == pytest.approx(float(seen["ff"][0].norm(dim=-1).mean()), rel=1e-5)
    assert norms[4, "bypass"] == pytest.approx(float(seen["bypass"][0].norm(dim=-1).mean()), rel=1e-5)


def test_removing_dimensions_gives_the_map_of_a_model_without_them(analyzer: Any) -> None:
    """Against a copy of the model whose second FF matrix has those rows set to zero."""
    import copy  # noqa: PLC0415

    text = "Alice was beginning to get very tired."
    result = run(["outlier-dimensions"], model=analyzer, corpus=[text], masking="none")
    changed = copy.deepcopy(analyzer.model)
    block = changed.base_model.encoder.layer[0]
    removed = block.output.LayerNorm.weight.argsort()[:4]
    with torch.no_grad():
        block.output.dense.weight[removed] = 0
        block.output.dense.bias[removed] = 0
    after = ns.load(changed, analyzer.tokenizer).analyze(text, layers=1)
    before = after.map("AttnResLn").values[0].reshape(-1)
    from scipy import stats  # noqa: PLC0415

    expected = stats.pearsonr(before, after.map("AttnResLnFf").values[0].reshape(-1)).statistic
    row = next(row for row in result.tables["outlier-dimensions"].to_pylist() if row["layer"] == 1)
    assert row["after"] == pytest.approx(expected, abs=1e-4)


def test_wrong_requests_are_refused(analyzer: Any, tmp_path: Path) -> None:
    for options, says in (
        ({"experiments": []}, "at least one experiment"),
        ({"experiments": ["mixing-ratio", "mixing-ratio"]}, "only once"),
        ({"corpus": None}, "need a corpus"),
        ({"jobs": 0}, "at least 1"),
        ({"corpus": []}, "no sequence"),
        ({"corpus": [" "]}, "no sequence"),
        ({"jobs": 2}, "name it"),
        ({"experiments": ["alignment"]}, "encoder-decoder"),
    ):
        asked: dict[str, Any] = {"experiments": ["mixing-ratio"], "corpus": str(bundled()), "limit": 1, **options}
        with pytest.raises(InputError, match=says):
            run(asked.pop("experiments"), model=analyzer, out=tmp_path / says.replace(" ", "-"), **asked)
    with pytest.raises(TypeError, match=r"run\(\) got an unexpected keyword argument 'bananas'"):
        run(["mixing-ratio"], model=analyzer, corpus=str(bundled()), bananas=3)  # pyright: ignore[reportCallIssue]


def test_the_command_line_runs_reports_and_complains(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "run")
    with pytest.raises(SystemExit) as done:
        main(
            [
                "run",
                "mixing-ratio",
                "-c",
                str(bundled()),
                "--limit",
                "2",
                "--max-tokens",
                "20",
                "-o",
                folder,
                "-O",
                "mixing-ratio.masked=false",
            ]
        )
    assert done.value.code == 0
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["masked"] is False
    with pytest.raises(SystemExit) as done:
        main(["report", folder])
    assert done.value.code == 0 and (tmp_path / "run" / "report.html").exists()
    for arguments in (
        ["run", "no-such", "-c", str(bundled()), "-o", folder],
        ["run", "mixing-ratio", "-c", "missing.txt", "-o", str(tmp_path / "b")],
        ["run", "mixing-ratio", "-c", str(bundled()), "-o", folder],
        ["run", "mixing-ratio", "-c", str(bundled()), "-o", folder, "-O", "mixing-ratio.masked=perhaps"],
        ["report", str(tmp_path)],
    ):
        capfd.readouterr()
        with pytest.raises(SystemExit) as failed:
            main(arguments)
        assert failed.value.code == 2 and capfd.readouterr().err.strip()
    with pytest.raises(SystemExit) as done:
        main(["experiments"])
    assert done.value.code == 0 and "scope-similarity" in capfd.readouterr().out
