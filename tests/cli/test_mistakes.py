"""Mistakes that need no model to be seen are refused before anything large is imported, on every command."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from normscope.analyzer import Analyzer
from normscope.families import supported_models
from normscope.models.config import Outline, scopes_anywhere
from normscope.models.options import ModelOptions
from normscope.scopes import with_derived

from .samples import TEXT, tiny_bert

RUN = ["run", "mixing-ratio", "--out", "new", "--corpus", "corpus.txt"]

MISTAKES: list[tuple[list[str], str]] = [
    (["nothing"], "nothing"),
    (["map"], "Missing argument 'TEXT'"),
    (["map", ""], "The text is empty"),
    (["map", " "], "The text is empty"),
    (["map", "-5 degrees today"], "put it last, after two dashes: normscope map ... -- '-5 degrees today'"),
    (["map", TEXT, "--scope", "Nowhere"], "Available scopes: AttnW, Attn, AttnRes"),
    (["map", TEXT, "--scope", "all"], "without --out they would go to the terminal"),
    (["map", TEXT, "--layer", "two"], "not a valid int"),
    (["map", TEXT, "--value-bias", "none"], "'token', 'bias'"),
    (["map", TEXT, "--normalise", "row", "--out", "map.nc"], "leave out --normalise"),
    (["map", TEXT, "--out", "map"], "has no ending"),
    (["map", TEXT, "--out", "nowhere/map.svg"], "there is no folder"),
    (["map", TEXT, "--model", "nowhere/at/all"], "there is no such folder"),
    (["map", TEXT, "--scope", "AttnRsLn"], "Did you mean 'AttnResLn'?"),
    (["map", TEXT, "--scope", "nosuch", "--model", "owner/some-model"], "Available scopes: AttnW"),
    (["map", TEXT, "--layer", "7"], "has layers 1 to 6"),
    (["map", TEXT, "--layer", "0", "--model", "owner/some-model"], "counted from 1"),
    (["map", TEXT, "--head", "0"], "counted from 1"),
    (["map", TEXT, "--head", "1", "--scope", "AttnRes"], "already mixed"),
    (["map", TEXT, "--normalise", "rows"], "none, row, column"),
    (["map", TEXT, "--encoder"], "leave out --encoder"),
    (["map", TEXT, "--decoder-text", TEXT], "has no encoder"),
    (["map", TEXT, "--approximate", "sketch", "--products", "bf16"], "not both"),
    (["map", TEXT, "--out", "map.xyz"], "Known endings: svg"),
    (["map", TEXT, "--scope", "all", "--out", "map.svg"], "is a picture"),
    (["map", TEXT, "--model", "./nowhere"], "there is no such folder"),
    (["map", TEXT, "--model", "empty"], "it is empty"),
    (["map", TEXT, "--model", "pickled"], "--allow-pickle"),
    (["map", TEXT, "--model", "unknown", "--family", "registered"], "'nonesuch' is not supported"),
    (["map", TEXT, "--family", "any"], "auto, registered"),
    (["map", TEXT, "--model", "tiny", "--layer", "3"], "tiny has layers 1 to 2"),
    (["map", TEXT, "--tokenizer", "./nowhere"], "No tokenizer could be loaded"),
    (["map", TEXT, "--tokenizer", "empty"], "there is no vocabulary"),
    (["map", TEXT, "--device", "cudda"], "Did you mean 'cuda'?"),
    (["map", TEXT, "--device-map", "atuo"], "Did you mean 'auto'?"),
    (["map", TEXT, "--device-map", "cuda"], "for one device, use device"),
    (["map", TEXT, "--device-map", "auto", "--device", "cuda"], "Leave out one of the two"),
    (["map", TEXT, "--dtype", "int8"], "Known: float64"),
    (["growth", TEXT], "--out"),
    (["growth", TEXT, "--out", "growth.csv"], "Known endings: svg, png, pdf."),
    (["growth", TEXT, "--out", "growth.svg", "--layer", "9"], "has layers 1 to 6"),
    (["mix", TEXT, "--scope", "AttnRsLn"], "Did you mean 'AttnResLn'?"),
    (["mix", TEXT, "--out", "mixing.html"], "Known endings"),
    (["mix", TEXT, "--scope", "all", "--out", "mixing.svg"], "A picture shows one scope"),
    (["explain", ""], "The text is empty"),
    (["explain", TEXT, "--method", "pull-bak"], "Did you mean 'pull-back'?"),
    (["explain", TEXT, "--method", "integrated-gradients", "--option", "step=3"], "it has steps"),
    (["explain", TEXT, "--method", "integrated-gradients", "--option", "steps=few"], "is a whole number"),
    (["explain", TEXT, "--method", "random", "--heads"], "does not follow single heads"),
    (["explain", TEXT, "--continue-for", "0"], "at least one token"),
    (["explain", TEXT, "--continue-for", "2", "--target", "word"], "takes the place"),
    (["explain", TEXT, "--state", "--against", "word"], "takes the place"),
    (["explain", TEXT, "--max-memory", "much"], "500M or 2G"),
    (["explain", TEXT, "--flow", "0.9"], "A flow graph is a picture"),
    (["explain", TEXT, "--out", "explanation.xyz"], "Known endings"),
    (["answer"], "Give a --context and a --question"),
    (["answer", "--context", TEXT, "--messages", "chat.json"], "take the place"),
    (["answer", "--context", TEXT, "--question", " "], "The question is empty"),
    (["answer", "--context", TEXT, "--units", "sentense"], "Did you mean 'sentence'?"),
    (["answer", "--context", TEXT, "--hops", "many"], "a number of times"),
    (["answer", "--context", TEXT, "--objective", "gradient"], "'alternatives', 'contrast', 'centred', 'logit'"),
    (["answer", "--context", TEXT, "--max-new-tokens", "0"], "at least 1"),
    (["answer", "--context", TEXT, "--out", "answer.xyz"], "Known endings"),
    (["answer", "--context", TEXT, "--max-memory", "much"], "500M or 2G"),
    (["methods", "nosuch"], "has 'nosuch' in its name"),
    (["models", "nosuch"], "has 'nosuch' in its name"),
    (["experiments", "nosuch"], "has 'nosuch' in its name"),
    (["estimate"], "Give a text or a number of tokens"),
    (["estimate", "--tokens", "8", "--pair", TEXT], "give one instead of --tokens"),
    (["estimate", "--tokens", "8", "--truncate"], "give one instead of --tokens"),
    (
        ["estimate", "--tokens", "8", "--products", "bf16", "--mixing"],
        "leave out --heads, --approximate and --products",
    ),
    (["estimate", "--tokens", "8", "--scope", "AttnRsLn"], "Did you mean 'AttnResLn'?"),
    (["check", "--text", ""], "The text is empty"),
    (["check", "--model", "./nowhere"], "there is no such folder"),
    (["explore", TEXT, "--out", "page.png"], "Known endings: html"),
    (["explore", TEXT, "--model", "./nowhere"], "there is no such folder"),
    (["explore", " "], "The text is empty"),
    (["explore", TEXT, "--layer", "7"], "has layers 1 to 6"),
    (["explore", TEXT, "--compare-model", "./nowhere"], "there is no such folder"),
    (["serve", "nosuch.zarr"], "There is no result 'nosuch.zarr'"),
    (["serve", "corpus.txt", "corpus.txt", "corpus.txt"], "two side by side, not 3"),
    (["serve", "--model", "./nowhere"], "there is no such folder"),
    (["run", "mixing-ration", "--out", "new"], "Did you mean 'mixing-ratio'?"),
    (["run", "mixing-ratio", "mixing-ratio", "--out", "new"], "each only once"),
    (["run", "mixing-ratio", "--out", "new"], "need a corpus"),
    (["run", "mixing-ratio", "--out", "new", "--corpus", "nosuch.txt"], "There is no corpus file"),
    ([*RUN, "--max-tokens", "1"], "max_tokens is at least 3"),
    ([*RUN, "--ranks", "nosuch"], "no file 'nosuch' with token frequencies"),
    ([*RUN, "--approximate", "sketch"], "exact values are needed"),
    ([*RUN, "--jobs", "0"], "--jobs is at least 1"),
    ([*RUN, "--format", "pdf"], "'pdf' is not one of 'auto', 'text'"),
    ([*RUN, "--masking", "some"], "'some' is not one of 'paper', 'all', 'none'"),
    ([*RUN, "--arithmetic", "float16"], "'float16' is not one of 'float32', 'float64'"),
    ([*RUN, "--dtype", "int8"], "Known: float64, float32"),
    ([*RUN, "--unit", "packed", "--gold-base", "2"], "'2' is not one of"),
    ([*RUN, "--shard-size", "0"], "--shard-size is at least 1"),
    ([*RUN, "--workers", "2"], "belongs to --engine ray"),
    ([*RUN, "--model", "./nowhere"], "there is no such folder"),
    ([*RUN, "-O", "mixing-ratio.maskd=true"], "Did you mean 'masked'?"),
    ([*RUN, "-O", "mixing-ratio.masked=perhaps"], "is true or false"),
    ([*RUN, "-O", "masked"], "EXPERIMENT.OPTION=VALUE"),
    (["run", "mixing-ratio", "--out", "corpus.txt", "--corpus", "corpus.txt"], "is a file"),
    (["report", "nosuch"], "holds no finished run"),
    (["report", "empty"], "holds no finished run"),
]

LARGE = ("torch", "transformers", "tokenizers", "numpy", "xarray", "pyarrow", "scipy", "matplotlib", "duckdb", "PIL")

PROGRAM = f"""
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from normscope.cli import main

outcomes = []
for arguments in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code
    large = [name for name in {LARGE!r} if name in sys.modules]
    outcomes.append([code, out.getvalue(), err.getvalue(), large])
print(json.dumps(outcomes))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a corpus, an empty folder, and folders of models that cannot be used, and one that can."""
    (tmp_path / "corpus.txt").write_text("One line.\n")
    for name in ("empty", "pickled", "unknown"):
        (tmp_path / name).mkdir()
    (tmp_path / "pickled" / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "pickled" / "pytorch_model.bin").write_bytes(b"")
    (tmp_path / "unknown" / "config.json").write_text('{"model_type": "nonesuch"}')
    tiny_bert().save_pretrained(tmp_path / "tiny")
    return tmp_path


def test_a_mistake_is_refused_with_a_message_and_without_importing_anything_large(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([arguments for arguments, _ in MISTAKES]),
        capture_output=True,
        text=True,
        cwd=folder,
        check=True,
    )
    for (arguments, message), (code, out, err, large) in zip(MISTAKES, json.loads(done.stdout), strict=True):
        assert (code, out, large) == (2, "", []), (arguments, err)
        assert message in " ".join(re.sub(r"[│╭╮╰╯─]", " ", err).split()), arguments
        assert "Traceback" not in err
    assert sorted(folder.rglob("*")) == before, "no file is left"


def cpu_seconds(*arguments: str, cwd: Path) -> float:
    """The least that a Python process took of two."""

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], capture_output=True, check=False, cwd=cwd)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return min(once() for _ in range(2))


@pytest.mark.slow
def test_every_mistake_takes_little_more_than_reading_options(folder: Path) -> None:
    """Seconds differ between machines and with what else they do: this is 0.3 s where typer and rich take 0.17."""
    options = cpu_seconds("-c", "import typer, typer.rich_utils", cwd=folder)
    slow = {
        " ".join(arguments): seconds / options
        for arguments, _ in MISTAKES
        if (seconds := cpu_seconds("-m", "normscope", *arguments, cwd=folder)) > 1.8 * options
    }
    assert not slow


def test_an_outline_has_the_scopes_and_layers_of_the_loaded_model(folder: Path) -> None:
    options = ModelOptions(str(folder / "tiny"))
    outline, analyzer = options.outline(), Analyzer.from_options(options)
    assert outline is not None
    assert outline.scopes() == with_derived(analyzer.scopes)
    assert outline.layers == len(analyzer.layers)
    assert set(scopes_anywhere()) >= set(with_derived(analyzer.scopes))


def test_what_a_configuration_does_not_say_is_left_to_the_model(folder: Path) -> None:
    """OPT has its norms before or after, by an entry whose default is not in the file."""
    (folder / "unknown" / "config.json").write_text('{"model_type": "opt"}')
    outline = Outline.read(folder / "unknown", "model")
    assert outline is not None
    assert outline.layers is None
    assert outline.scopes() is None
    (folder / "unknown" / "config.json").write_text("no configuration")
    assert Outline.read(folder / "unknown", "model") is None
    assert "opt" in supported_models()
