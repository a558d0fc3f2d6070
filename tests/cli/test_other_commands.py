"""What `mix`, `growth`, `check` and lists print and write, and that options reach the model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import xarray as xr

import normscope as ns
from normscope.chain.proof import TOLERANCE
from normscope.cli.models import describe
from normscope.families.refused import refused_models

from .samples import TEXT, Output, tiny_bert

TOOLS = Path(__file__).parents[2] / "tools"


def test_mixing_ratios_are_shown_for_every_token_and_layer(run: Callable[..., Output], analyzer: ns.Analyzer) -> None:
    code, out, _ = run("mix", TEXT, "--scope", "AttnRes", "--no-special")
    assert code == 0
    rows = [line.split() for line in out.rstrip().splitlines()[2:]]
    assert [row[0] for row in rows] == ["the", "opera", "singer", "caught", "a", "soap", "bubble", ".", "mean"]
    expected = analyzer.analyze(TEXT).mixing_ratio("AttnRes").values[:, 1]
    np.testing.assert_allclose([float(cell) for cell in rows[0][1:]], expected, atol=0.00501)


def test_mixing_ratios_of_all_scopes_go_into_a_table(
    run: Callable[..., Output], analyzer: ns.Analyzer, tmp_path: Path
) -> None:
    assert run("mix", TEXT, "--scope", "all", "-o", "mixing.parquet")[0] == 0
    table = pq.read_table(tmp_path / "mixing.parquet")
    assert table["scope"].unique().to_pylist() == analyzer.scopes
    assert run("mix", TEXT, "-o", "mixing.svg")[0] == 0


def test_growth_writes_a_picture_with_every_scope(
    run: Callable[..., Output], analyzer: ns.Analyzer, tmp_path: Path
) -> None:
    assert run("growth", TEXT, "--layer", "3", "-o", "growth.svg")[0] == 0
    drawn = (tmp_path / "growth.svg").read_text(encoding="utf-8")
    assert all(f">{scope}<" in drawn for scope in analyzer.scopes)


def test_check_proves_every_layer_and_names_the_family(run: Callable[..., Output]) -> None:
    code, out, _ = run("check")
    assert code == 0
    assert re.search(r"all-MiniLM-L6-v2: bert, family bert, 6 layers, float32\. 10 tokens at 7 scopes", out)
    assert "complete." in out
    assert len([line for line in out.splitlines() if re.match(r" +[1-6] \d", line)]) == 6


def test_check_gives_random_ids_to_a_model_without_a_tokenizer(
    run: Callable[..., Output], monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = ns.load(tiny_bert())
    monkeypatch.setattr("normscope.analyzer.Analyzer.from_options", lambda *_, **__: bare)
    code, out, err = run("check")
    assert code == 0, err
    assert "There is no tokenizer with the model: analysing 16 random token ids." in err
    assert "2 layers, float32. 16 tokens at 7 scopes" in out


def test_check_exits_with_1_when_the_parts_do_not_add_up(
    run: Callable[..., Output], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TOLERANCE, torch.float32, 1e-12)
    code, out, err = run("check")
    assert (code, out) == (1, "")
    assert "do not add up" in err
    assert "Traceback" not in err


def test_models_lists_every_supported_architecture(run: Callable[..., Output]) -> None:
    code, out, _ = run("models")
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines()[2:]}
    assert list(rows) == list(ns.supported_models())
    assert re.fullmatch(
        r"roberta +roberta +encoder +post-norm +plain +dispatched +Attn Res Ln Ff Res Ln *", rows["roberta"]
    )
    assert "hooked" in rows["deberta"]


def test_the_default_blocks_that_models_shows_are_those_of_the_default_configurations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    tool = import_module("default_blocks")
    assert tool.FILE.read_text(encoding="utf-8") == tool.default_blocks(), "Run tools/default_blocks.py."


def test_a_family_of_another_package_is_described_by_its_own_blocks() -> None:
    opt = ns.supported_models()["opt"]
    assert describe("opt", replace(opt, name="mine", stack=ns.supported_models()["bloom"].stack))[2:] == (
        *("pre-norm", "plain", "hooked"),
        "Attn Res Ln Ff Res",
    )
    assert describe("opt", replace(opt, name="mine"))[1:] == describe("opt", opt)[1:]


def test_models_refused_lists_what_is_not_analysed_and_why(run: Callable[..., Output]) -> None:
    code, out, _ = run("models", "--refused")
    assert code == 0
    rows = [line.split()[0] for line in out.splitlines()[2:]]
    assert rows == sorted(refused_models())
    _, out, _ = run("models", "rwkv", "--refused")
    assert "recurrence" in out


def test_model_options_reach_the_model(run: Callable[..., Output], tmp_path: Path) -> None:
    code, _, err = run("run", "expansion-rate", "--dtype", "float64", "--out", "run")
    assert code == 0, err
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["model"]["dtype"] == "float64"


def test_mixing_ratios_of_one_layer_are_written_as_netcdf(run: Callable[..., Output], tmp_path: Path) -> None:
    code, _, err = run("mix", TEXT, "--scope", "all", "--layer", "2", "--out", "mixing.nc")
    assert code == 0, err
    with xr.open_dataset(tmp_path / "mixing.nc", engine="h5netcdf") as stored:
        assert stored["mixing_ratio"].sizes["layer"] == 1
        assert stored["mixing_ratio"].sizes["query"] == 10


@pytest.mark.parametrize(
    ("command", "part", "shown", "hidden"),
    [
        ("models", "roberta", "xlm-roberta", "gpt2"),
        ("methods", "gradient", "integrated-gradients", "rollout"),
        ("experiments", "mixing", "mixing-ratio", "alignment"),
    ],
)
def test_lists_may_be_narrowed_to_part_of_a_name(
    run: Callable[..., Output], command: str, part: str, shown: str, hidden: str
) -> None:
    code, out, err = run(command, part)
    assert code == 0, err
    assert shown in out
    assert not [line for line in out.splitlines() if line.startswith(hidden)]
    code, out, err = run(command, "nosuchthing")
    assert (code, out) == (2, "")
    assert "has 'nosuchthing' in its name" in err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["map", TEXT, "--layer", "1"], "Analysing…"),
        (["growth", TEXT, "--layer", "1", "--out", "growth.svg"], "Analysing…"),
        (["mix", TEXT], "Analysing…"),
        (["check"], "Analysing…"),
        (["explore", TEXT, "--layer", "1", "--out", "page.html"], "Analysing…"),
        (["explain", TEXT, "--state"], "Explaining…"),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
def test_what_takes_long_is_said_where_no_terminal_shows_it(
    run: Callable[..., Output], monkeypatch: pytest.MonkeyPatch, line: list[str], said: str
) -> None:
    monkeypatch.setattr("normscope.cli.console._SECONDS_BEFORE_A_LINE", 0)
    _, _, err = run(*line)
    assert said in err.splitlines()
