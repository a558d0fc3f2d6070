"""Bad input is one message, exit code 2 and no file: what can only be told once a model is there, and what ends a run."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from normscope.cli import main

from .samples import TEXT, Output, tiny_bert


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["map", TEXT, "--head", "13"], "Heads: 1 to 12"),
        (["map", "soap " * 600, "--out", "map.svg"], "at most 512"),
        (["map", TEXT, "--out", "/proc/map.csv"], "cannot be written"),
    ],
)
def test_what_only_the_model_or_the_disk_can_tell_is_one_message_and_exit_code_2_and_leaves_no_file(
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


def test_an_error_of_ours_that_is_no_user_error_is_not_hidden(
    run: Callable[..., Output], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("normscope.analyzer.Analyzer.from_options", fail)
    with pytest.raises(ZeroDivisionError):
        main(["map", TEXT])


def test_an_interrupt_ends_with_130(run: Callable[..., Output], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("normscope.analyzer.Analyzer.from_options", interrupt)
    code, out, err = run("map", TEXT)
    assert (code, out) == (128 + signal.SIGINT, "")
    assert "Traceback" not in err


def test_a_text_may_start_with_a_dash_after_two_dashes(run: Callable[..., Output]) -> None:
    code, out, err = run("map", "--layer", "1", "--", "-5 degrees today")
    assert code == 0, err
    assert "degrees" in out


def test_an_error_ends_with_the_place_of_its_explanation(run: Callable[..., Output]) -> None:
    _, _, err = run("map", TEXT, "--layer", "99")
    assert err.splitlines()[-1] == "More: docs/errors.md#selectionerror"
