"""What Python hands to the front end: small, safe inside HTML, and as precise as it says; and the commands that do it."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from explorer_samples import HOSTILE, POST_NORM, sample
from typer.testing import CliRunner

import normscope
from normscope.cli import explore as commands
from normscope.explorer import page_html, write_page
from normscope.explorer.payload import build_payload, exact_map, payload_json
from normscope.models.options import ModelOptions
from normscope.options import documented_fields

APP = typer.Typer()
commands.register(APP)


def unpacked(text: str, dtype: str) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype)


def decoded(block: dict[str, Any]) -> np.ndarray:
    """A block read by the rules of the format, written a second time."""
    if block["bits"] == 32:
        return unpacked(block["data"], "<f4").reshape(block["shape"])
    low, high = unpacked(block["data"], "u1").reshape(2, *block["shape"]).astype(int)
    codes, top = low + 256 * high, block["top"]
    scale = unpacked(block["scale"], "<f4").reshape(block["shape"][:-1])[..., None]
    negative = (codes > top) & (codes < 65535)
    sizes = np.where(codes == 0, 0.0, np.exp((np.where(negative, codes - top, codes) - top) * block["step"]))
    return np.where(codes == 65535, np.nan, np.where(negative, -sizes, sizes) * scale)


@pytest.mark.parametrize(("tokens", "error"), [(6, 2.2e-4), (120, 4.1e-3)])
@pytest.mark.parametrize("signed", [False, True])
def test_display_precision_is_relative_to_every_value(tokens: int, error: float, signed: bool) -> None:
    analysis = sample([str(index) for index in range(tokens)], causal=True)
    wanted = analysis.dataset["map"].values
    wanted *= np.geomspace(1, 1e-5, tokens)  # one key takes nearly all, as the own token does after a residual
    if signed:
        wanted *= np.random.default_rng(1).choice([-1, 1], wanted.shape)
    block = build_payload(analysis)["analyses"][0]["map"]
    values = decoded(block)
    assert block["error"] <= (error if not signed else max(error, 4.3e-4))
    assert (np.isnan(values) == np.isnan(wanted)).all()
    most = np.nanmax(np.abs(wanted), axis=-1, keepdims=True)
    assert (np.abs(wanted[values == 0]) < 1e-6 * np.broadcast_to(most, wanted.shape)[values == 0]).all()
    kept = ~np.isnan(values) & (values != 0)
    assert np.max(np.abs(values[kept] / wanted[kept] - 1)) <= 0.51 * block["error"]


def test_shares_of_a_long_text_are_right_within_a_hundredth_of_themselves(analyzer: Any) -> None:
    words = "The chef who ran to the store was out of food, so she went home and slept."
    analysis = analyzer.analyze(" ".join([words] * 6))
    block = build_payload(analysis)["analyses"][0]["map"]
    wanted, values = analysis.dataset["map"].values, decoded(block)
    assert wanted.shape[-1] > 100
    assert (values > 0).all()
    assert block["error"] < 0.005
    own = np.eye(wanted.shape[-1], dtype=bool)
    for left_out in (np.zeros_like(own), own):
        shares = [
            np.where(left_out, 0, one) / np.where(left_out, 0, one).sum(-1, keepdims=True) for one in (values, wanted)
        ]
        kept = np.broadcast_to(~left_out, wanted.shape)
        assert np.max(np.abs(shares[0][kept] / shares[1][kept] - 1)) < block["error"]


def test_full_precision_is_exact() -> None:
    analysis = sample(["a", "b", "c"], causal=True, heads=2)
    made = build_payload(analysis, precision="full")["analyses"][0]
    np.testing.assert_array_equal(decoded(made["map"]), analysis.dataset["map"].values)
    np.testing.assert_array_equal(decoded(made["heads"]["map"]), analysis.dataset["head_map"].values)
    np.testing.assert_array_equal(decoded(made["mixing"]), analysis.dataset["mixing_ratio"].values)


def test_rows_of_zeros_and_of_nothing_are_kept() -> None:
    analysis = sample(["a", "b", "c"])
    analysis.dataset["map"].values[:, :, 0] = 0
    analysis.dataset["map"].values[:, :, 1] = np.nan
    values = decoded(build_payload(analysis)["analyses"][0]["map"])
    assert (values[:, :, 0] == 0).all()
    assert np.isnan(values[:, :, 1]).all()


def test_the_payload_stands_inside_html() -> None:
    analysis = sample([*HOSTILE, "\u2028"], text="</script><!--")
    text = payload_json(analysis)
    assert text.isascii()
    assert not set("<>&") & set(text)
    assert json.loads(text)["analyses"][0]["keys"]["token"] == [*HOSTILE, "\u2028"]
    html = page_html(analysis)
    assert html.lower().count("</script") == 2
    assert html.count("<!--") == 0


def test_scopes_carry_their_parts() -> None:
    analysis = sample(["a", "b"], scopes=["AttnW", "Attn", "AttnResW", "AttnResLnCross", "CrossW"], heads=2)
    scopes = build_payload(analysis)["analyses"][0]["scopes"]
    assert [(scope["name"], scope["components"], scope["quantity"], scope["heads"]) for scope in scopes] == [
        ("AttnW", ["Attn"], "weight", True),
        ("Attn", ["Attn"], "norm", True),
        ("AttnResW", ["Attn", "Res"], "weight", False),
        ("AttnResLnCross", ["Attn", "Res", "Ln", "Cross"], "norm", False),
        ("CrossW", ["Cross"], "weight", False),
    ]
    assert scopes[3]["words"] == ["attention", "residual", "norm", "cross-attention"]
    assert [scope["described"] for scope in scopes[1:3]] == ["attention", "attention weights + residual"]


def test_method_and_quantity_are_passed_on() -> None:
    analysis = sample(["a", "b"], scopes=["AttnW", "Attn"])
    content = build_payload(analysis)["analyses"][0]
    assert (content["method"], content["quantity"]) == ("norms", "norm")
    analysis.dataset.attrs["method"] = "projections"
    analysis.dataset["map"].attrs["quantity"] = "projection"
    content = build_payload(analysis)["analyses"][0]
    assert (content["method"], content["quantity"]) == ("projections", "projection")
    assert [scope["quantity"] for scope in content["scopes"]] == ["weight", "projection"]


def test_negative_values_keep_their_sign() -> None:
    analysis = sample(["a", "b", "c"], scopes=["AttnW", "Attn"], causal=True)
    analysis.dataset["map"].values[1] -= 1.0
    content = build_payload(analysis)["analyses"][0]
    np.testing.assert_allclose(decoded(content["map"]), analysis.dataset["map"].values, rtol=5e-4)
    assert [scope["signed"] for scope in content["scopes"]] == [False, True]


def test_one_or_two_analyses_are_shown_and_no_more() -> None:
    one = sample(["a"])
    assert len(build_payload(one, one)["analyses"]) == 2
    with pytest.raises(normscope.InputError, match="not 3"):
        build_payload(one, one, one)
    with pytest.raises(normscope.InputError, match="not 0"):
        build_payload()


def test_exact_maps_are_those_of_the_analysis() -> None:
    analysis = sample(["a", "b"], heads=3)
    assert (exact_map(analysis, "Attn", 2, 3) == analysis.map("Attn", heads=True).sel(layer=2, head=3).values).all()


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(normscope.FileError, match="cannot be written"):
        write_page(sample(["a"]), path=tmp_path / "missing" / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_a_page(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    arguments = ["explore", "The cat sleeps.", "--compare", "The dog sleeps.", "--heads", "--out", str(out)]
    result = CliRunner().invoke(APP, arguments)
    assert result.exit_code == 0, result.output
    assert "The dog sleeps." in out.read_text(encoding="utf-8")
    assert all(scope in out.read_text(encoding="utf-8") for scope in POST_NORM)


def test_the_command_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    result = CliRunner().invoke(APP, ["explore", "a", "--precision", "some", "--out", str(tmp_path / "page.html")])
    assert isinstance(result.exception, normscope.InputError)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["explore", "serve"])
def test_the_commands_take_every_model_option_that_python_documents(command: str) -> None:
    shown = CliRunner().invoke(APP, [command, "--help"]).output
    for field in documented_fields(ModelOptions):
        assert f"--{field.name.replace('_', '-')}" in shown


def test_the_model_options_of_the_command_reach_the_model(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    result = CliRunner().invoke(APP, ["explore", "The cat sleeps.", "--dtype", "float64", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert '"dtype":"float64"' in out.read_text(encoding="utf-8")
    wrong = CliRunner().invoke(APP, ["explore", "a", "--tokenizer", str(tmp_path), "--out", str(out)])
    assert isinstance(wrong.exception, normscope.ModelError)
    assert "No tokenizer could be loaded" in str(wrong.exception)


def test_a_payload_says_how_its_maps_are_rolled_out() -> None:
    made = sample(["a", "b"], scopes=["AttnW", "Attn", "AttnRes"])
    told = build_payload(made)["analyses"][0]["rollout"]
    assert told == {"identity": {"AttnW": 0.5, "Attn": 0.5, "AttnRes": 0.0}, "normalise": True}
    plain = made.dataset.assign_attrs(method="globenc", method_options=json.dumps({"normalise": False}))
    assert build_payload(normscope.Analysis(plain))["analyses"][0]["rollout"]["normalise"] is False
    across = made.dataset.assign_attrs(method="propagated", from_layer=1)
    assert build_payload(normscope.Analysis(across))["analyses"][0]["rollout"] is None
