"""`normscope similar` and `normscope search`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support.tiny_models import tiny
from support.two_towers import saved
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import normscope as ns
from normscope.models.source import installed_folder

from .samples import Output

FIRST, SECOND = "A man plays guitar.", "Someone makes music."


def test_similar_prints_numbers_that_add_up(run: Callable[..., Output]) -> None:
    code, out, _ = run("similar", FIRST, SECOND)
    assert code == 0
    value, *parts = (float(number) for number in re.findall(r"[+-]?\d\.\d{4}", out.splitlines()[0]))
    assert sum(parts) == pytest.approx(value, abs=3e-4)
    assert re.search(r"guitar +music +\+0\.\d{4} +\d+\.\d%", out)
    assert "completeness error" in out


def test_similar_in_words_to_files(run: Callable[..., Output], analyzer: ns.Analyzer) -> None:
    for name in ("s.html", "s.svg", "s.csv", "s.json", "s.nc"):
        code, out, err = run("similar", FIRST, SECOND, "--units", "word", "--out", name)
        assert (code, out) == (0, "") and f"Wrote {name}" in err, err
    assert ns.open("s.nc").attrs["unit"] == "word"
    assert json.loads(Path("s.json").read_text())["similarities"][0]["value"] == pytest.approx(
        analyzer.similarity(FIRST, SECOND).value, abs=1e-6
    )


def test_search_ranks_a_file(run: Callable[..., Output]) -> None:
    Path("passages.txt").write_text("It rains in Bergen.\n\nA guitarist plays on stage.\nStocks fell.\n")
    code, out, _ = run("search", "music", "--corpus", "passages.txt", "--top", "2")
    assert code == 0
    assert re.match(r"1\. cosine 0\.\d{4}  A guitarist plays on stage\.", out)
    code, _, err = run("search", "music", "--corpus", "passages.txt", "--top", "2", "--out", "hits.html")
    assert code == 0 and "Wrote hits.html" in err
    Path("rows.jsonl").write_text('{"body": "A band."}\n{"body": "Rain."}\n')
    assert run("search", "music", "--corpus", "rows.jsonl", "--field", "body")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("similar", "", SECOND), "The text is empty"),
        (("similar", FIRST, SECOND, "--pooling", "sum"), "There is no pooling 'sum'"),
        (("similar", FIRST, SECOND, "--out", "s.docx"), "names no format"),
        (("similar", FIRST, "word " * 300), "takes at most 256"),
        (("similar", FIRST, SECOND, "--model", "nowhere/at/all"), "No model was found"),
        (("search", "music", "--corpus", "missing.txt"), "There is no corpus file"),
        (("search", "music", "--corpus", "empty.txt"), "corpus is empty"),
        (("search", "music", "--corpus", "empty.txt", "--top", "0"), "At least one passage"),
        (("search", "music", "--corpus", "empty.txt", "--out", "s.nc"), "holds one similarity"),
    ],
)
def test_mistakes_are_one_sentence(run: Callable[..., Output], arguments: tuple[str, ...], message: str) -> None:
    Path("empty.txt").write_text("\n\n")
    code, out, err = run(*arguments)
    assert (code, out) == (2, "") and message in err and "Traceback" not in err
    assert {path.name for path in Path().iterdir()} == {"empty.txt"}


def test_a_model_that_reads_both_texts_together_is_explained(run: Callable[..., Output]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(str(installed_folder()))
    model = tiny("bert", auto=AutoModelForSequenceClassification, vocab_size=len(tokenizer), num_labels=1)
    model.save_pretrained("reranker")
    tokenizer.save_pretrained("reranker")
    code, out, err = run("similar", FIRST, SECOND, "--model", "./reranker")
    assert code == 0 and "reads both texts together" in err and "guitar" in out
    with pytest.raises(ns.InputError, match="cross-encoder"):
        ns.load("./reranker").similarity(FIRST, SECOND)


def test_similar_compares_an_image_with_a_text(run: Callable[..., Output], tmp_path: Path) -> None:
    folder, picture = saved("clip", tmp_path)
    code, out, err = run("similar", str(picture), "a photo of the cat", "--model", str(folder))
    assert code == 0, err
    assert re.search(r"logit [+-]?\d+\.\d{4}", out)
    assert re.search(r"patch \d,\d", out)
    code, _, err = run("similar", "missing.png", "a photo", "--model", str(folder))
    assert code == 2 and "no such file" in err
