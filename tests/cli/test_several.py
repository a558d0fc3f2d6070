"""`run` with several models: a folder each, the cost of all first, and no model is lost with another."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

import pytest
from runs.small import save_model, tables

import normscope as ns
from normscope.cli.several import RECIPES, folder_names, several_models
from normscope.errors import InputError
from normscope.experiments.published import NAMES
from normscope.models.options import ModelOptions
from normscope.models.source import short_name
from normscope.runs import cost_of, settings_of
from normscope.runs import run as run_experiments

from .samples import Output

pytestmark = pytest.mark.usefixtures("empty_pictures")

TEXTS = ["The opera singer caught a soap bubble.", "It rained on the plain."]
COMMAND = ("run", "ff-norms", "--corpus", "texts.txt", "--out", "runs")


@pytest.fixture
def models(analyzer: ns.Analyzer, tmp_path: Path) -> list[str]:
    """Two models of one name, in folders of different places, and a corpus."""
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    return [str(save_model(tmp_path / place / "bert", analyzer.tokenizer, seed)) for seed, place in enumerate("ab")]


def named(models: list[str]) -> list[str]:
    return [argument for model in models for argument in ("--model", model)]


def test_every_model_has_a_run_of_its_own_and_the_cost_is_said_first(
    run: Callable[..., Output], models: list[str], tmp_path: Path
) -> None:
    code, _, err = run(*COMMAND, *named(models))
    assert code == 0, err
    assert err.index("All together") < err.index("Model 1 of 2") < err.index("Model 2 of 2")
    for model, folder in zip(models, ("runs/a-bert", "runs/b-bert"), strict=True):
        assert err.index(folder) < err.index("All together")
        alone = tmp_path / f"{Path(folder).name}-alone"
        run_experiments(["ff-norms"], model=model, corpus=tmp_path / "texts.txt", out=alone)
        assert tables(tmp_path / folder) == tables(alone)
    code, _, err = run("report", "runs/a-bert", "runs/b-bert")
    assert code == 0 and (tmp_path / "runs/a-bert/report.html").is_file()


def test_the_same_command_resumes_all_runs(run: Callable[..., Output], models: list[str], tmp_path: Path) -> None:
    assert run(*COMMAND, *named(models))[0] == 0
    finished, lost = (sorted((tmp_path / f"runs/{name}/shards").rglob("*")) for name in ("a-bert", "b-bert"))
    before = {path: path.stat().st_mtime_ns for path in finished if path.is_file()}
    expected = tables(tmp_path / "runs/b-bert")
    for path in [each for each in lost if each.is_file()]:
        path.unlink()
    code, _, err = run(*COMMAND, *named(models))
    assert code == 0 and "not computed again" in err
    assert before and {path: path.stat().st_mtime_ns for path in before} == before
    assert tables(tmp_path / "runs/b-bert") == expected


def test_a_model_that_fails_does_not_lose_the_others(
    run: Callable[..., Output], models: list[str], tmp_path: Path
) -> None:
    weights = Path(models[0]) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    code, _, err = run(*COMMAND, *named([models[0], "nobody/nothing", models[1]]))
    assert code == 2 and "2 of 3 models failed" in err and "the cost is not known" in err
    assert "All in one report: normscope report runs/b-bert\n" in err
    assert (tmp_path / "runs/b-bert/manifest.json").is_file()
    assert not (tmp_path / "runs/a-bert/manifest.json").exists()


def test_a_list_of_models_is_a_file_with_a_name_on_each_line(
    run: Callable[..., Output], models: list[str], tmp_path: Path
) -> None:
    (tmp_path / "models.txt").write_text(f"# one\n{models[0]}\n\n", encoding="utf-8")
    code, _, err = run(*COMMAND, "--models", "models.txt")
    assert code == 0, err
    manifest = json.loads((tmp_path / "runs/bert/manifest.json").read_text())
    assert manifest["sequences"] == len(TEXTS)


def test_one_model_runs_in_the_folder_that_is_named(
    run: Callable[..., Output], models: list[str], tmp_path: Path
) -> None:
    code, _, err = run(*COMMAND, "--model", models[0])
    assert code == 0 and "All together" not in err
    assert (tmp_path / "runs/manifest.json").is_file()
    code, _, err = run(*COMMAND, *named(models))
    assert code == 2 and "is the folder of one run" in err
    assert not list((tmp_path / "runs").glob("*-bert"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--model", "a/bert", "--model", "./a/../a/bert"], "Name each model once"),
        (["--models", "kobayashi-2042"], "There is no file and no list of models"),
        (["--models", "empty.txt"], "names no model"),
        (["--models", "bytes.txt"], "cannot be read"),
        (["--model", "a/bert", "--model", "./nowhere/at/all"], "No model was found"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_computed(
    run: Callable[..., Output], models: list[str], tmp_path: Path, options: list[str], said: str
) -> None:
    (tmp_path / "empty.txt").write_text("# nothing\n")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe")
    code, _, err = run(*COMMAND, *options)
    assert code == 2 and said in err and "Traceback" not in err
    assert not (tmp_path / "runs").exists()


def test_a_file_in_the_place_of_a_models_folder_is_refused(
    run: Callable[..., Output], models: list[str], tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/b-bert").write_text("mine")
    code, _, err = run(*COMMAND, *named(models))
    assert code == 2 and "a run needs a folder" in err
    assert (tmp_path / "runs/b-bert").read_text() == "mine" and not (tmp_path / "runs/a-bert").exists()


def test_anything_but_a_folder_in_the_place_of_the_runs_is_refused_before_any_model(
    run: Callable[..., Output], models: list[str], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "runs")
    code, _, err = run(*COMMAND, *named(models))
    assert code == 2 and "'runs' is a pipe, and a run needs a folder" in err and "Model 1" not in err


def test_folders_have_the_shortest_names_that_tell_models_apart() -> None:
    assert folder_names(["google/bert", "roberta-base"]) == ["bert", "roberta-base"]
    assert folder_names(["google/bert", "someone/BERT", "x/y/z"]) == ["google-bert", "someone-BERT", "y-z"]
    assert folder_names(["bert", "google/bert"]) == ["bert", "google-bert"]


def test_the_list_of_the_paper_has_its_eleven_models() -> None:
    known = (resources("normscope.cli") / "recipes").iterdir()
    assert sorted(path.name for path in known) == [f"{name}.txt" for name in RECIPES]
    chosen = several_models([], "kobayashi-2024", "runs")
    assert chosen is not None and len(chosen) == 11
    known = [
        each for name in chosen.values() for pattern, each in NAMES.items() if re.fullmatch(pattern, short_name(name))
    ]
    assert len(known) == 11 and set(NAMES.values()) >= set(known)
    with pytest.raises(InputError, match="once"):
        several_models(["bert-base-uncased"], "kobayashi-2024", "runs")


def test_the_cost_of_a_model_is_counted_without_its_weights(models: list[str], analyzer: ns.Analyzer) -> None:
    settings = settings_of(["mixing-ratio", "scope-similarity"], corpus=TEXTS)
    (Path(models[0]) / "model.safetensors").write_bytes(b"")
    cost = cost_of(settings, ns.Analyzer.without_weights(ModelOptions(models[0])))
    loaded = ns.load(models[1])
    lengths = [len(loaded.analyze(text).tokens) for text in TEXTS]
    assert (cost.sequences, cost.tokens, cost.seconds) == (2, sum(lengths), None)
    assert cost.weights == sum(4 * each.numel() for each in loaded.model.parameters())
    assert cost.flops == pytest.approx(loaded.estimate(lengths, timed=False).flops, rel=0.05)
    trial: Any = settings_of(["shapley"], corpus=TEXTS)
    counted = cost_of(trial, loaded)
    assert counted.calls["shapley"] > 0 and counted.seconds is None
