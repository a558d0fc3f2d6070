"""The command line: what it prints and writes, and that bad input is one message, exit code 2 and no file."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import xarray as xr
from transformers import AutoTokenizer, BartConfig, BartForConditionalGeneration, BertConfig, BertModel

import normscope as ns
from normscope import embedded
from normscope.cli import COMMANDS, main, session
from normscope.corpora import Corpus, bundled
from normscope.documented import documented_fields
from normscope.model_options import ModelOptions
from normscope.passes import TOLERANCE

TEXT = "The opera singer caught a soap bubble."

Output = tuple[int, str, str]


@pytest.fixture
def loaded(analyzer: ns.Analyzer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded model is loaded once for all tests that do not name a model."""
    actual = ns.load

    def load(model: str | None, **options: Any) -> ns.Analyzer:
        return analyzer if model is None and options.get("dtype") is None else actual(model, **options)

    monkeypatch.setattr("normscope.analyzer.load", load)


@pytest.fixture
def run(
    loaded: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Output]:
    """Runs a command line in an empty folder; gives exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(session, "quiet", lambda: None)  # it changes the whole process, which is the tests' here

    def run_command(*arguments: str) -> Output:
        with pytest.raises(SystemExit) as exit_info:
            main(arguments)
        captured = capsys.readouterr()
        return int(exit_info.value.code or 0), captured.out, captured.err

    return run_command


def process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "normscope.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, **options)


def tiny_bert() -> BertModel:
    torch.manual_seed(0)
    config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    return BertModel(config).eval()


# ---- map ---------------------------------------------------------------------------------------------------------------


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
        ("csv", b'"scope","layer"'),
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
    shown = ("map", "The opera singer", "--target", "La diva", "--model", translator)
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


# ---- mix, growth, check, models ------------------------------------------------------------------------------------------


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
    monkeypatch.setattr("normscope.analyzer.load", lambda *_, **__: bare)
    code, out, err = run("check")
    assert code == 0, err
    assert "There is no tokenizer beside the model: analysing 16 random token ids." in err
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
    assert list(rows) == list(ns.families())
    assert re.fullmatch(
        r"roberta +roberta +encoder +post-norm +plain +dispatched +Attn Res Ln Ff Res Ln *", rows["roberta"]
    )
    assert "hooked" in rows["deberta"]


# ---- bad input ---------------------------------------------------------------------------------------------------------


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
        (["map", TEXT, "--head", "0"], "Heads: 1 to 12"),
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


# ---- as a process ----------------------------------------------------------------------------------------------------


def test_a_process_prints_its_result_and_nothing_of_other_libraries(tmp_path: Path) -> None:
    done = process("map", TEXT, "--layer", "1", "--scope", "AttnW", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith("AttnW, layer 1: attention weight")


def test_a_process_that_fails_says_why_on_stderr_without_a_traceback(tmp_path: Path) -> None:
    done = process("map", TEXT, "--model", str(tmp_path / "nowhere"), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: No model was found under")
    assert "Traceback" not in done.stderr


def test_version_and_help_name_the_commands(run: Callable[..., Output]) -> None:
    assert run("--version") == (0, f"normscope {ns.__version__}\n", "")
    code, out, _ = run("--help")
    assert code == 0
    commands = ("map", "mix", "growth", "check", "models", "explore", "serve", "experiments", "run", "report")
    assert all(re.search(rf"│ {command} ", out) for command in commands)


def test_the_help_of_run_has_every_option_that_python_documents(run: Callable[..., Output]) -> None:
    code, out, _ = run("run", "--help")
    assert code == 0
    shown = "".join(re.sub(r"[│╭╮╰╯─]", " ", out).split())
    for kind in (Corpus, ModelOptions):
        for field in documented_fields(kind):
            flag = (field.documentation.flags or (f"--{field.name.replace('_', '-')}",))[0]
            assert flag in shown and "".join(field.documentation.text.split()) in "".join(out_columns(out)), field.name


def out_columns(out: str) -> list[str]:
    """The last column of every option in a help page, without spaces: its text runs over several lines."""
    return [re.split(r"\s{2,}", line.strip("│ ").strip())[-1].replace(" ", "") for line in out.splitlines()]


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


def test_model_options_reach_the_model(run: Callable[..., Output], tmp_path: Path) -> None:
    code, _, err = run("run", "expansion-rate", "--dtype", "float64", "--out", "run")
    assert code == 0, err
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["model"]["dtype"] == "float64"


def test_a_text_may_start_with_a_dash_after_two_dashes(run: Callable[..., Output]) -> None:
    code, out, err = run("map", "--layer", "1", "--", "-5 degrees today")
    assert code == 0, err
    assert "degrees" in out


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


def test_mixing_ratios_of_one_layer_are_written_as_netcdf(run: Callable[..., Output], tmp_path: Path) -> None:
    code, _, err = run("mix", TEXT, "--scope", "all", "--layer", "2", "--out", "mixing.nc")
    assert code == 0, err
    with xr.open_dataset(tmp_path / "mixing.nc", engine="h5netcdf") as stored:
        assert stored["mixing_ratio"].sizes["layer"] == 1
        assert stored["mixing_ratio"].sizes["query"] == 10


def test_a_page_of_one_layer_counts_the_value_bias_as_asked(run: Callable[..., Output], tmp_path: Path) -> None:
    code, _, err = run("explore", TEXT, "--layer", "2", "--value-bias", "bias", "--out", "page.html")
    assert code == 0, err
    assert '"bias"' in (tmp_path / "page.html").read_text(encoding="utf-8")


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


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_two_examples(run: Callable[..., Output], command: str) -> None:
    code, out, _ = run(command, "--help")
    assert code == 0
    assert out.count(f"normscope {command}") >= 3  # the usage, and two examples
    usage, _, examples = out.partition("Examples")
    assert examples.count(f"normscope {command}") >= 2
    assert not re.search(r"[{}]|\[\[|\.\.\.\.", usage), "names stand there as they are typed"
    assert not re.search(r"--help .*<", usage), "a flag takes nothing"


def test_the_list_of_commands_has_a_short_line_for_each(run: Callable[..., Output]) -> None:
    _, out, _ = run("--help")
    lines = out[out.index("─ Commands") :].splitlines()[1:]
    listed = [line.strip("│ ") for line in lines[: next(n for n, line in enumerate(lines) if line.startswith("╰"))]]
    starts = [n for n, line in enumerate(listed) if line.split()[0] in COMMANDS]
    assert len(starts) == len(COMMANDS)
    for start, end in zip(starts, [*starts[1:], len(listed)], strict=True):
        assert end - start <= 2 and listed[end - 1].endswith("."), listed[start]


def test_an_error_ends_with_the_place_of_its_explanation(run: Callable[..., Output]) -> None:
    _, _, err = run("map", TEXT, "--layer", "99")
    assert err.splitlines()[-1] == "More: docs/errors.md#selectionerror"


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
