"""What `map` prints and writes."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from transformers import AutoTokenizer, BartConfig, BartForConditionalGeneration

import normscope as ns
from normscope.models import source as embedded
from normscope.testing.tiny import model_of, shrunk

from .samples import TEXT, Output


def test_without_a_file_the_last_layer_at_the_last_scope_is_shown(
    run: Callable[..., Output], analyzer: ns.Analyzer
) -> None:
    code, out, err = run("map", TEXT)
    assert code == 0
    assert out.startswith("AttnResLnFfResLn, layer 6: norm of the part")
    assert "Layer 6, the last; choose another with --layer." in err
    values = analyzer.analyze(TEXT).map("AttnResLnFfResLn").sel(layer=6).values
    shown = [[float(cell) for cell in line.split()[1:]] for line in out.rstrip().splitlines()[2:]]
    np.testing.assert_allclose(shown, values, atol=0.00501)


@pytest.mark.parametrize(
    ("ending", "start"),
    [
        ("svg", b"<?xml"),
        ("png", b"\x89PNG"),
        ("pdf", b"%PDF"),
        ("csv", b"scope,layer"),
        ("parquet", b"PAR1"),
        ("json", b"{"),
        ("nc", b"\x89HDF"),
    ],
)
def test_a_map_is_written_in_the_format_of_the_ending(
    run: Callable[..., Output], tmp_path: Path, ending: str, start: bytes
) -> None:
    code, out, err = run("map", TEXT, "--scope", "AttnResLnFf", "--layer", "3", "--out", f"map.{ending}")
    assert (code, out) == (0, "")
    assert f"Wrote map.{ending}" in err
    assert (tmp_path / f"map.{ending}").read_bytes().startswith(start)


def test_only_the_scope_and_layer_asked_for_are_computed(
    run: Callable[..., Output], analyzer: ns.Analyzer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    analyze = type(analyzer).analyze

    def watch(self: ns.Analyzer, inputs: Any, **options: Any) -> Any:
        asked.append(options)
        return analyze(self, inputs, **options)

    monkeypatch.setattr(type(analyzer), "analyze", watch)
    assert run("map", TEXT, "--scope", "attn-n", "--layer", "2", "--out", "map.nc")[0] == 0
    assert run("map", TEXT, "--scope", "AttnResW")[0] == 0
    assert [(call["scopes"], call["layers"], call["heads"]) for call in asked] == [
        (["Attn"], 2, False),
        (["AttnW"], 6, False),
    ]


def test_a_file_has_all_layers_if_none_is_named_and_all_scopes_if_all_are(
    run: Callable[..., Output], analyzer: ns.Analyzer, tmp_path: Path
) -> None:
    assert run("map", TEXT, "--scope", "all", "-o", "maps.parquet")[0] == 0
    table = pq.read_table(tmp_path / "maps.parquet")
    assert set(table["layer"].to_pylist()) == set(analyzer.layers)
    assert table["scope"].unique().to_pylist() == analyzer.scopes


def test_a_head_words_a_pair_and_shares_can_be_asked_for_together(
    run: Callable[..., Output], analyzer: ns.Analyzer
) -> None:
    code, out, _ = run(
        *("map", "Unbelievable singers.", "--pair", "Soap bubbles."),
        *("--head", "4", "--layer", "2", "--words", "--no-special", "--normalise", "row"),
    )
    assert code == 0
    title, heading, *rows = out.rstrip().splitlines()
    assert title.startswith("Attn, head 4, layer 2: share of the row")
    assert heading.split() == ["unbelievable", "singers", ".", "soap", "bubbles", "."]
    for row in rows:
        assert sum(float(cell) for cell in row.split()[1:]) == pytest.approx(1, abs=0.03)


def test_a_long_text_is_cut_only_on_demand(run: Callable[..., Output]) -> None:
    text = "soap bubble " * 400
    code, _, err = run("mix", text, "-o", "mixing.csv")
    assert code == 2
    assert "at most 512" in err
    assert "--truncate" in err
    assert run("mix", text, "--scope", "AttnW", "--truncate", "-o", "mixing.csv")[0] == 0


def test_value_bias_and_dtype_reach_the_analysis(run: Callable[..., Output], tmp_path: Path) -> None:
    code, out, err = run("check", "--dtype", "float64")
    assert code == 0, err
    assert "float64" in out
    assert "tolerance 1e-06" in out
    assert run("map", TEXT, "--value-bias", "bias", "-o", "map.nc")[0] == 0
    assert ns.open(tmp_path / "map.nc").attrs["value_bias"] == "bias"


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tiny encoder-decoder model with a real tokenizer."""
    folder = tmp_path_factory.mktemp("translator")
    torch.manual_seed(0)
    sizes = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in _SIDE_SIZES.items()}
    tokens = {"pad_token_id": 0, "bos_token_id": 101, "eos_token_id": 102, "decoder_start_token_id": 102}
    config = BartConfig(vocab_size=30522, d_model=24, max_position_embeddings=64, **sizes, **tokens)
    BartForConditionalGeneration(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(embedded.model_folder()).save_pretrained(folder)
    return str(folder)


_SIDE_SIZES = {"layers": 2, "attention_heads": 3, "ffn_dim": 32}


def test_a_decoder_is_shown_with_both_groups_of_keys_and_its_encoder_on_demand(
    run: Callable[..., Output], translator: str
) -> None:
    shown = ("map", "The opera singer", "--decoder-text", "La diva", "--model", translator)
    code, out, err = run(*shown)
    assert code == 0, err
    source, target = ["[CLS]", "the", "opera", "singer", "[SEP]"], ["[SEP]", "[CLS]", "la", "diva"]
    assert out.startswith("AttnResLnCrossResLnFfResLn, layer 2")
    assert out.splitlines()[1].split() == [*target, *source]
    assert run(*shown, "--scope", "Attn")[1].splitlines()[1].split() == target, "the source is not there yet"
    code, out, err = run(*shown, "--encoder")
    assert code == 0, err
    assert out.startswith("AttnResLnFfResLn, layer 2")
    assert out.splitlines()[1].split() == source
    assert run("check", "--model", translator)[0] == 0


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [
        (("map", "The opera singer", "--scope", "Attn"), ("--target", "La diva"), ("--decoder-text", "La diva")),
        (("mix", "The opera singer", "--scope", "Attn"), ("--target", "La diva"), ("--decoder-text", "La diva")),
        (("estimate", "The opera", "--no-time"), ("--target", "La diva"), ("--decoder-text", "La diva")),
        (("estimate", "--tokens", "5", "--no-time"), ("--target-tokens", "4"), ("--decoder-tokens", "4")),
        (
            ("explain", "The opera singer", "--state"),
            ("--target", "La diva"),
            ("--decoder-text", "La diva"),
        ),
    ],
)
def test_old_options_still_work_and_say_what_they_are_called_now(
    run: Callable[..., Output],
    translator: str,
    command: tuple[str, ...],
    old: tuple[str, str],
    new: tuple[str, str],
) -> None:
    with_new = run(*command, *new, "--model", translator)
    assert with_new[0] == 0, with_new[2]
    assert "deprecated" not in with_new[2]
    with_old = run(*command, *old, "--model", translator)
    assert with_old[:2] == with_new[:2]
    assert f"is deprecated and will be removed in the next minor version: use {new[0]}." in " ".join(
        with_old[2].split()
    )
    code, out, err = run(*command, *old, *new, "--model", translator)
    assert (code, out) == (2, "") and f"is the old name of {new[0]}" in " ".join(err.split())


def test_help_shows_the_new_names_alone(run: Callable[..., Output]) -> None:
    for command in ("map", "growth", "mix", "explore", "estimate"):
        _, out, _ = run(command, "--help")
        assert "--decoder-text" in out and "--target" not in out


def test_both_spellings_of_normalise_are_taken(run: Callable[..., Output]) -> None:
    shown = [
        run("map", TEXT, "--scope", "Attn", "--layer", "1", flag, "row") for flag in ("--normalise", "--normalize")
    ]
    assert shown[0] == shown[1] and shown[0][0] == 0


def test_a_word_after_what_the_decoder_reads_is_explained(run: Callable[..., Output], translator: str) -> None:
    given = ("--decoder-text", "La", "--target", "diva", "--model", translator)
    code, out, err = run("explain", "The opera singer", *given)
    assert code == 0, err
    assert out.startswith("diva")
    code, _, err = run("explain", TEXT, "--decoder-text", "La")
    assert code == 2 and "has no encoder and decoder" in " ".join(err.split())


def test_a_map_that_nobody_would_read_is_told_by_its_strongest_cells(run: Callable[..., Output]) -> None:
    code, out, err = run("map", "The singer caught a bubble. " * 15, "--layer", "1", "--scope", "Attn")
    assert code == 0, err
    title, heading, *cells = out.splitlines()
    assert "the strongest 40 cells of 92 queries by 92 keys" in title
    assert heading.split() == ["query", "key", "value"]
    values = [float(cell.split()[-1]) for cell in cells]
    assert len(cells) == 40
    assert values == sorted(values, reverse=True)
    assert all(cell.split()[0] != cell.split()[2] for cell in cells)


def test_a_page_of_one_layer_counts_the_value_bias_as_asked(run: Callable[..., Output], tmp_path: Path) -> None:
    code, _, err = run("explore", TEXT, "--layer", "2", "--value-bias", "bias", "--out", "page.html")
    assert code == 0, err
    assert '"bias"' in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_approximate_maps_say_so_on_the_terminal_and_in_tables(run: Callable[..., Output], tmp_path: Path) -> None:
    code, _, err = run("map", TEXT, "--layer", "1", "--scope", "all", "--approximate", "sketch", "--out", "map.csv")
    assert code == 0, err
    assert "are approximate (sketch): on sampled queries, rank correlation with exact ones at least" in " ".join(
        err.split()
    )
    with (tmp_path / "map.csv").open(newline="") as file:
        kinds = {row["scope"]: row["approximate"] for row in csv.DictReader(file)}
    assert kinds["AttnResLn"] == "exact"
    assert kinds["AttnResLnFfResLn"] == "sketch"


def test_edges_are_cut_in_the_model_and_compared(run: Callable[..., Output]) -> None:
    code, out, _ = run("explain", TEXT, "--state", "--at", "singer", "--verify", "3")
    assert code == 0
    table = out[out.index("Cut in the model") :]
    assert len([line for line in table.splitlines() if line.strip()[:1].isdigit()]) == 3
    assert "all together" in table and "Correlation of predicted and observed" in table


def test_a_stage_of_a_pyramid_is_chosen_by_number(run: Callable[..., Output], tmp_path: Path) -> None:
    model_of("SwinModel", shrunk("swin")).save_pretrained(tmp_path / "swin")
    assert run("check", "-m", "swin", "--stage", "1")[0] == 0
    Image.new("RGB", (16, 16)).save(tmp_path / "picture.png")
    code, _, err = run("map", "picture.png", "-m", "swin", "--stage", "3")
    assert (code, "There is no stage 3: the model has stages 1 to 2." in err) == (2, True)
    code, _, err = run("map", TEXT, "--stage", "1")
    assert (code, "no stages" in err) == (2, True)
