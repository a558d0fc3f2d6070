"""Bad input is one message, exit code 2 and no file."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from normscope.cli import main
from normscope.corpora import bundled

from .samples import TEXT, Output, tiny_bert


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["map", ""], "The text is empty"),
        (["map", "  "], "The text is empty"),
        (["map", TEXT, "--scope", "Nowhere"], "Available scopes: AttnW, Attn, AttnRes"),
        (["map", TEXT, "--scope", "AttnRsLn"], "Did you mean 'AttnResLn'?"),
        (["map", "-5 degrees today"], "put it last, after two dashes: normscope map ... -- '-5 degrees today'"),
        (
            ["map", TEXT, "--scope", "all", "--out", "x.png"],
            "netCDF file (csv, parquet, json, nc), and 'x.png' is a picture",
        ),
        (["run", "mixing-ration", "--out", "run"], "Did you mean 'mixing-ratio'?"),
        (["run", "mixing-ratio", "-O", "mixing-ratio.scop=x", "--out", "run"], "no option 'scop'"),
        (["explore", TEXT, "--out", "page.png"], "Known endings: html, htm"),
        (["map", TEXT, "--model", "nowhere/at/all"], "there is no such folder"),
        (["map", TEXT, "--layer", "7"], "has layers 1 to 6"),
        (["map", TEXT, "--layer", "0"], "has layers 1 to 6"),
        (["map", TEXT, "--layer", "two"], "valid integer"),
        (["map", TEXT, "--head", "13"], "Heads: 1 to 12"),
        (["map", TEXT, "--head", "0"], "heads are counted from 1"),
        (["map", TEXT, "--head", "1", "--scope", "AttnRes"], "already mixed"),
        (["map", TEXT, "--normalise", "rows"], "none, row, column"),
        (["map", TEXT, "--value-bias", "none"], "'token', 'bias'"),
        (["map", TEXT, "--dtype", "int8"], "Known: float64, float32"),
        (["map", TEXT, "--scope", "all"], "without --out they would go to the terminal"),
        (["map", TEXT, "--normalise", "row", "--out", "map.nc"], "leave out --normalise"),
        (["map", TEXT, "--out", "map.xyz"], "Known endings: svg, png, pdf, csv, parquet, json, nc"),
        (["map", TEXT, "--out", "map"], "has no ending"),
        (["map", TEXT, "--out", "nowhere/map.svg"], "there is no folder"),
        (["map", TEXT, "--out", "/proc/map.csv"], "cannot be written"),
        (["map", "soap " * 600, "--out", "map.svg"], "at most 512"),
        (["map", TEXT, "--model", "./nowhere"], "No model was found under './nowhere'"),
        (["map", TEXT, "--target", TEXT], "has no encoder"),
        (["map", TEXT, "--encoder"], "leave out --encoder"),
        (["mix", TEXT, "--scope", "Nowhere", "--out", "mixing.csv"], "Available scopes"),
        (["mix", TEXT, "--out", "mixing.html"], "Known endings: svg, png, pdf, csv, parquet, json, nc"),
        (["mix", TEXT, "--scope", "all", "--out", "mixing.png"], "A picture shows one scope"),
        (["growth", TEXT, "--out", "growth.csv"], "Known endings: svg, png, pdf"),
        (["growth", TEXT], "--out"),
        (["map"], "Missing argument 'TEXT'"),
        (["nothing"], "nothing"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2_and_leaves_no_file(
    run: Callable[..., Output], tmp_path: Path, arguments: list[str], message: str
) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in " ".join(re.sub(r"[│╭╮╰╯─\n]", " ", err).split())
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_a_pickle_only_folder_needs_consent(run: Callable[..., Output], tmp_path: Path) -> None:
    model = tiny_bert()
    model.config.save_pretrained(tmp_path / "model")
    torch.save(model.state_dict(), tmp_path / "model" / "pytorch_model.bin")
    code, out, err = run("check", "--model", "model")
    assert (code, out) == (2, "")
    assert "pytorch_model.bin" in err
    assert "--allow-pickle" in err
    assert run("check", "--model", "model", "--allow-pickle")[0] == 0


def test_a_bad_file_name_is_refused_before_any_model_is_loaded(
    run: Callable[..., Output], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("normscope.analyzer.load", lambda *_, **__: pytest.fail("a model was loaded"))
    for command in ("map", "mix", "growth"):
        assert run(command, TEXT, "--out", "map.xyz")[0] == 2


def test_an_error_of_ours_that_is_no_user_error_is_not_hidden(
    run: Callable[..., Output], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("normscope.analyzer.load", fail)
    with pytest.raises(ZeroDivisionError):
        main(["map", TEXT])


def test_an_interrupt_ends_with_130(run: Callable[..., Output], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("normscope.analyzer.load", interrupt)
    code, out, err = run("map", TEXT)
    assert (code, out) == (128 + signal.SIGINT, "")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "pdf"], "'pdf' is not one of 'auto', 'text'"),
        (["--masking", "some"], "'some' is not one of 'paper', 'all', 'none'"),
        (["--arithmetic", "float16"], "'float16' is not one of 'float32', 'float64'"),
        (["--max-tokens", "1"], "max_tokens is at least 3"),
        (["--dtype", "int8"], "Known: float64, float32"),
        (["--unit", "packed", "--gold-base", "2"], "'2' is not one of"),
    ],
)
def test_a_run_with_wrong_options_is_one_message_and_exit_code_2_and_leaves_no_folder(
    run: Callable[..., Output], tmp_path: Path, arguments: list[str], message: str
) -> None:
    code, out, err = run("run", "mixing-ratio", "--corpus", str(bundled()), "--out", "run", *arguments)
    assert (code, out) == (2, "")
    assert message in " ".join(re.sub(r"[│╭╮╰╯─\n]", " ", err).split())
    assert not list(tmp_path.iterdir())


def test_a_text_may_start_with_a_dash_after_two_dashes(run: Callable[..., Output]) -> None:
    code, out, err = run("map", "--layer", "1", "--", "-5 degrees today")
    assert code == 0, err
    assert "degrees" in out


def test_an_error_ends_with_the_place_of_its_explanation(run: Callable[..., Output]) -> None:
    _, _, err = run("map", TEXT, "--layer", "99")
    assert err.splitlines()[-1] == "More: docs/errors.md#selectionerror"
