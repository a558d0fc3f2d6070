"""Explanations of a corpus in one file: the numbers of single explanations, whatever ends the work, and rows that fail."""

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
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from support.chat_model import chat_analyzer
from support.tiny_heads import tiny_head
from transformers import BertConfig, BertForSequenceClassification

import normscope as ns
from normscope.cli import main
from normscope.errors import FileError, InputError
from normscope.runs import AnotherRunError, RunInterrupted, engines, explain_corpus
from normscope.runs.spool import Shard

TEXTS = [
    "A soap bubble.",
    "The opera singer caught a soap bubble. It burst.",
    "  It rained.",
    "Nobody came to the opera.",
]
LABELS = [1, 0, 2, 1]


@pytest.fixture(scope="module")
def folder(analyzer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of three labels, two layers, and random weights."""
    path = tmp_path_factory.mktemp("classifier")
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    names = {0: "bad", 1: "good", 2: "neither"}
    config = BertConfig(vocab_size=len(analyzer.tokenizer), id2label=names, **sizes)
    BertForSequenceClassification(config).save_pretrained(path)
    analyzer.tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def classifier(folder: Path) -> ns.Analyzer:
    return ns.load(folder)


def corpus_file(path: Path, texts: list[Any], labels: list[Any]) -> Path:
    """A file of texts and labels, in the format of its ending."""
    frame = pd.DataFrame({"sentence": texts, "label": labels})
    match path.suffix:
        case ".parquet":
            pq.write_table(pa.table({"sentence": texts, "label": labels}), path)
        case ".csv":
            frame.to_csv(path, index=False)
        case _:
            path.write_text("".join(json.dumps(dict(row)) + "\n" for row in frame.to_dict("records")))
    return path


def assert_rows_of(frame: Any, number: int, explanation: ns.Explanation) -> None:
    """The rows of one text are those of its own explanation, to rounding."""
    rows = frame[frame["text"] == number]
    own: Any = explanation.to_pandas()
    assert rows["token"].tolist() == own["token"].tolist()
    assert rows["position"].tolist() == own["position"].tolist()
    largest = abs(own["attribution"]).max()
    assert np.abs(rows["attribution"].to_numpy() - own["attribution"].to_numpy()).max() < 1e-5 * largest
    assert np.abs(rows["value"].to_numpy() - own["value"].to_numpy()).max() < 1e-5 * largest
    sinks = {explanation.tokens[place] for place in explanation.sinks}
    assert set(rows.loc[rows["sink"], "token"]) == sinks


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_a_file_has_what_single_explanations_say(classifier: ns.Analyzer, tmp_path: Path, ending: str) -> None:
    corpus, out = corpus_file(tmp_path / f"texts.{ending}", TEXTS, LABELS), tmp_path / f"explanations.{ending}"
    explained = explain_corpus(corpus, model=classifier, out=out, target_column="label", shard_size=2)
    frame: Any = explained.to_pandas()
    tokenizer: Any = classifier.tokenizer
    for number, (text, label) in enumerate(zip(TEXTS, LABELS, strict=True)):
        explanation = classifier.explain(text.strip(), target=label)
        assert isinstance(explanation, ns.Explanation)
        assert_rows_of(frame, number, explanation)
        rows = frame[frame["text"] == number]
        with torch.no_grad():
            logits = classifier.model(**tokenizer(text.strip(), return_tensors="pt")).logits[0]
        chances = logits.softmax(-1)
        assert rows["target_name"].unique().tolist() == [("bad", "good", "neither")[label]]
        assert rows["target_probability"].iloc[0] == pytest.approx(float(chances[label]), abs=1e-5)
        assert rows["predicted"].iloc[0] == ("bad", "good", "neither")[int(chances.argmax())]
        total = rows["attribution"].sum() + rows["bias"].iloc[0]
        assert total == pytest.approx(rows["value"].iloc[0], abs=1e-5 * abs(rows["attribution"]).max())
        spans = rows.dropna(subset=["start"])
        pieces = [
            text.strip()[int(start) : int(end)].lower() for start, end in zip(spans["start"], spans["end"], strict=True)
        ]
        assert pieces == [token.removeprefix("##") for token in spans["token"]]
        assert set(rows.loc[rows["start"].isna(), "token"]) == {"[CLS]", "[SEP]"}
    manifest = json.loads((tmp_path / f"explanations.{ending}.manifest.json").read_text())
    assert (
        manifest["sequences"] == 4
        and manifest["rows"] == len(frame)
        and 0 < manifest["worst_completeness_error"] < 1e-5
    )
    assert manifest["settings"]["corpus_fingerprint"] and manifest["model"]["fingerprint"]
    assert not list(tmp_path.glob("*.unfinished")) and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("units", ["word", "sentence"])
def test_units_are_sums_with_the_characters_of_all_their_tokens(classifier: ns.Analyzer, units: Any) -> None:
    text = "The singer came unbelievably late. It rained."
    by_token: Any = explain_corpus([text], model=classifier, target="good").to_pandas()
    by_unit: Any = explain_corpus([text], model=classifier, target="good", units=units).to_pandas()
    assert by_unit["attribution"].sum() == pytest.approx(by_token["attribution"].sum(), abs=1e-6)
    inside = by_unit.dropna(subset=["start"])
    spans = [text[int(start) : int(end)] for start, end in zip(inside["start"], inside["end"], strict=True)]
    words = ["The", "singer", "came", "unbelievably", "late", ".", "It", "rained", "."]
    assert spans == (words if units == "word" else ["The singer came unbelievably late.", "It rained."])
    for (_, row), span in zip(inside.iterrows(), spans, strict=True):
        tokens = by_token[(by_token["start"] >= row["start"]) & (by_token["end"] <= row["end"])]
        assert row["attribution"] == pytest.approx(tokens["attribution"].sum(), abs=1e-6), span


def test_targets_of_a_list_are_words_continuations_or_predictions() -> None:
    model = chat_analyzer()
    texts = ["Marta lives in", "Noor was born in", "the cat sat on"]
    frame: Any = explain_corpus(texts, model=model, target=[" Oslo", None, [7, 9]]).to_pandas()
    asked = model.explain(texts, target=[" Oslo", None, [7, 9]])
    assert isinstance(asked, list)
    for number, explanation in enumerate(asked):
        assert_rows_of(frame, number, explanation)
        assert frame[frame["text"] == number]["target_name"].unique().tolist() == list(
            dict.fromkeys(explanation.targets)
        )
    assert frame[frame["text"] == 2]["target"].unique().tolist() == [0, 1]


def test_an_encoder_decoder_explains_what_it_is_made_to_say(tmp_path: Path) -> None:
    model = ns.load(tiny_head("t5", "T5ForConditionalGeneration"))
    rows = [{"input_ids": [5, 9, 7], "said": [6, 8]}, {"input_ids": [4, 17, 3, 2], "said": [9]}]
    path = tmp_path / "ids.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    frame: Any = explain_corpus(path, model=model, target_column="said").to_pandas()
    for number, row in enumerate(rows):
        explanation = model.explain({"input_ids": [row["input_ids"]]}, target=row["said"])
        assert isinstance(explanation, ns.Explanation)
        assert_rows_of(frame, number, explanation)
    assert set(frame["token_group"]) == {"source", "target"}


def test_rows_that_cannot_be_explained_are_left_out_or_refused(classifier: ns.Analyzer, tmp_path: Path) -> None:
    labels = ["good", "missing", "", "1"]
    corpus = corpus_file(tmp_path / "texts.csv", TEXTS, labels)
    explained = explain_corpus(corpus, model=classifier, target_column="label")
    assert explained.manifest["sequences"] == 2
    assert explained.manifest["rows_left_out_or_changed"] == {"cannot be explained": 1, "no target": 1}
    assert "texts.csv:3: There is no label 'missing'" in explained.manifest["problems"][0]
    frame: Any = explained.to_pandas()
    assert [Path(where).name for where in frame["where"].unique()] == ["texts.csv:2", "texts.csv:5"]
    assert frame["target_name"].unique().tolist() == ["good"]
    out = tmp_path / "explanations.parquet"
    with pytest.raises(InputError, match=r"texts.csv:3: There is no label 'missing'.*--bad-rows skip"):
        explain_corpus(corpus, model=classifier, target_column="label", bad_rows="refuse", out=out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["texts.csv"]


def test_what_fails_only_when_it_is_computed_is_one_bad_row(tmp_path: Path) -> None:
    model = chat_analyzer()
    texts = ["the cat sat", "the " * 595, "the dog ran"]
    explained = explain_corpus(texts, model=model, continue_for=10)
    assert explained.manifest["rows_left_out_or_changed"] == {"cannot be explained": 1}
    assert "cannot be continued" in explained.manifest["problems"][0]
    assert explained.to_pandas()["text"].unique().tolist() == [0, 2]
    with pytest.raises(InputError, match=r"text 2: .*cannot be continued"):
        explain_corpus(texts, model=model, continue_for=10, bad_rows="refuse", out=tmp_path / "explanations.csv")


def test_texts_are_not_cut_unless_that_is_said(classifier: ns.Analyzer) -> None:
    explained = explain_corpus(TEXTS, model=classifier, max_tokens=8)
    assert explained.manifest["rows_left_out_or_changed"] == {"too long, left out": 1}
    cut = explain_corpus(TEXTS, model=classifier, max_tokens=8, too_long="truncate")
    lengths: Any = cut.to_pandas().groupby("text").size()
    assert max(lengths) == 8


SCRIPT = """
import os, sys, torch, normscope as ns
torch.set_num_threads(1)
if __name__ == "__main__":
    ns.explain_corpus(sys.argv[1], model=sys.argv[2], out=sys.argv[3], target_column="label", shard_size=1)
"""


@dataclass(frozen=True)
class Noting:
    """Computes here, and notes which shards; ends after some of them, as Ctrl-C would."""

    analyzer: Any
    computed: list[int]
    most: int = 1000

    def compute(self, work: engines.Work, shards: Iterable[Shard]) -> Iterator[engines.Finished]:
        for index, partials in engines.InProcess(self.analyzer).compute(work, shards):
            if len(self.computed) == self.most:
                raise KeyboardInterrupt
            self.computed.append(index)
            yield index, partials


def test_a_killed_process_is_resumed_and_gives_the_same_file(
    classifier: ns.Analyzer, folder: Path, tmp_path: Path
) -> None:
    corpus = corpus_file(tmp_path / "texts.parquet", TEXTS * 40, LABELS * 40)
    out = tmp_path / "explanations.parquet"
    asked: dict[str, Any] = {"target_column": "label", "shard_size": 1}
    script = tmp_path / "go.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), str(corpus), str(folder), str(out)]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    shards, deadline = tmp_path / "explanations.parquet.unfinished" / "shards", time.monotonic() + 600
    while not any(shards.glob("0000*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert any(shards.glob("0000*")) and not out.exists()
    engine = Noting(classifier, [])
    explain_corpus(corpus, model=str(folder), out=out, engine=engine, **asked)
    assert engine.computed and 0 not in engine.computed
    whole = explain_corpus(corpus, model=str(folder), out=tmp_path / "whole.parquet", **asked)
    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert whole.table["text"].to_pylist() == sorted(whole.table["text"].to_pylist())
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [
        ".json",
        ".json",
        ".parquet",
        ".parquet",
        ".parquet",
        ".py",
    ]


def test_an_interrupt_says_how_to_go_on_and_a_damaged_shard_is_named(classifier: ns.Analyzer, tmp_path: Path) -> None:
    out, work = tmp_path / "explanations.csv", tmp_path / "explanations.csv.unfinished"
    asked: dict[str, Any] = {"model": classifier, "out": out, "shard_size": 1}
    with pytest.raises(RunInterrupted, match=r"2 of 4 sequences are done and kept in .*unfinished'.*same command"):
        explain_corpus(TEXTS, engine=Noting(classifier, [], most=2), **asked)
    assert not out.exists() and (work / "run.json").exists()
    with pytest.raises(AnotherRunError, match=r"differs in experiments\.explanations\.units"):
        explain_corpus(TEXTS, units="word", **asked)
    rows = next((work / "shards").glob("*/explanations*.parquet"))
    content = rows.read_bytes()
    rows.write_bytes(content[:-20])
    with pytest.raises(FileError, match=r"damaged.*Delete it and run the same command again"):
        explain_corpus(TEXTS, **asked)
    rows.write_bytes(content)
    assert explain_corpus(TEXTS, **asked).manifest["sequences"] == 4
    assert not work.exists()


def test_a_finished_file_is_kept_and_another_is_not_replaced(classifier: ns.Analyzer, tmp_path: Path) -> None:
    out = tmp_path / "explanations.jsonl"
    first = explain_corpus(TEXTS, model=classifier, out=out)
    engine = Noting(classifier, [])
    again = explain_corpus(TEXTS, model=classifier, out=out, engine=engine)
    assert engine.computed == [] and again.manifest["finished"] == first.manifest["finished"]
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(AnotherRunError, match=r"differ in experiments\.explanations\.units.*--overwrite"):
        explain_corpus(TEXTS, model=classifier, out=out, units="word")
    assert len(list(tmp_path.iterdir())) == 2
    out.write_text(out.read_text()[:-30])
    with pytest.raises(AnotherRunError, match="they are damaged"):
        explain_corpus(TEXTS, model=classifier, out=out)
    explain_corpus(TEXTS, model=classifier, out=out, units="word", overwrite=True)
    mine = tmp_path / "thesis.csv"
    mine.write_text("do not touch")
    with pytest.raises(AnotherRunError, match=r"thesis\.csv' exists"):
        explain_corpus(TEXTS, model=classifier, out=mine)
    assert mine.read_text() == "do not touch"


@pytest.mark.slow
def test_processes_give_the_file_of_one_process(folder: Path, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"model": str(folder), "shard_size": 1, "target": "good"}
    corpus = corpus_file(tmp_path / "texts.parquet", TEXTS, LABELS)
    torch.set_num_threads(1)
    explain_corpus(corpus, out=tmp_path / "one.parquet", **asked)
    script = tmp_path / "two.py"
    script.write_text(
        "import sys, normscope as ns\nif __name__ == '__main__':\n"
        "    ns.explain_corpus(sys.argv[1], model=sys.argv[2], out=sys.argv[3], shard_size=1, target='good', jobs=2)\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), str(corpus), str(folder), str(tmp_path / "two.parquet")],
        env=environment,
        check=False,
    )
    assert done.returncode == 0
    assert pq.read_table(tmp_path / "two.parquet").equals(pq.read_table(tmp_path / "one.parquet"))


def test_wrong_requests_are_refused(classifier: ns.Analyzer, analyzer: Any, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"out": tmp_path / "a.txt"}, FileError, "names no format. Known endings: parquet, csv, jsonl"),
        ({"target": ["good"]}, InputError, "1 targets for 4 texts"),
        ({"target_column": "label"}, InputError, "has no columns"),
        ({"target": "great"}, InputError, "no sequence that can be used.*There is no label 'great'"),
        ({"model": analyzer}, ns.HeadError, "no task head"),
        ({"jobs": 2}, InputError, "name it"),
        ({"method": "magic"}, InputError, "no method"),
    ]
    for options, error, says in cases:
        with pytest.raises(error, match=says):
            explain_corpus(TEXTS, **dict[str, Any]({"model": classifier, **options}))
    with pytest.raises(TypeError, match="unexpected keyword argument 'bananas'"):
        explain_corpus(TEXTS, model=classifier, bananas=3)  # pyright: ignore[reportCallIssue]


def test_lists_take_one_target_for_each_text(classifier: ns.Analyzer) -> None:
    together = classifier.explain(TEXTS, target=LABELS)
    numbers: Any = np.array(LABELS)
    named = classifier.explain(TEXTS, target=numbers, against=["bad", "good", None, 0])
    assert isinstance(together, list) and isinstance(named, list)
    assert [each.targets for each in together] == [["good"], ["bad"], ["neither"], ["good"]]
    assert [each.targets for each in named] == [["good - bad"], ["bad - good"], ["neither"], ["good - bad"]]
    with pytest.raises(InputError, match="target is a list of 2 for 4 texts"):
        classifier.explain(TEXTS, target=["good", "bad"])
    model = ns.load(tiny_head("llama", "LlamaForCausalLM"), None)
    rows = {"input_ids": torch.tensor([[5, 6, 7], [8, 9, 4]])}
    with pytest.raises(InputError, match="may be 2 token ids"):
        model.explain(rows, target=[3, 4])
    each = model.explain(rows, target=[[3], [4]], at=[-1, 1])
    assert isinstance(each, list) and [one.targets for one in each] == [["3"], ["4"]]


def test_the_command_line_writes_a_table_and_complains(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    corpus, out = corpus_file(tmp_path / "texts.csv", TEXTS, ["good", "0", "great", "2"]), tmp_path / "explanations.csv"
    common = ["explain", "--corpus", str(corpus), "--model", str(folder)]
    with pytest.raises(SystemExit) as done:
        main([*common, "--target-column", "label", "--units", "word", "--out", str(out)])
    assert done.value.code == 0
    said = capfd.readouterr().err
    assert "3 texts" in said and "cannot be explained: 1" in said and "texts.csv:4: There is no label 'great'" in said
    frame = pd.read_csv(out)
    assert frame["target_name"].unique().tolist() == ["good", "bad", "neither"]
    for wrong, says in (
        (common, "name one (--out)"),
        ([*common, "--out", "page.html"], "Known endings: parquet, csv, jsonl"),
        ([*common, "--out", str(tmp_path / "b.csv"), "--heads"], "--heads: for a single text"),
        ([*common, "A text", "--out", str(tmp_path / "b.csv")], "--TEXT: for a single text"),
        ([*common, "--out", str(tmp_path / "b.csv"), "--target-column", "nothing"], "no column 'nothing'"),
        ([*common, "--out", str(out), "--target-column", "label"], "units"),
        (["explain", "--model", str(folder)], "or a corpus (--corpus)"),
        (["explain", "A text", "--limit", "3", "--model", str(folder)], "--limit: for a corpus alone"),
        (["explain", "--corpus", "missing.csv", "--out", str(tmp_path / "b.csv")], "no corpus file"),
    ):
        with pytest.raises(SystemExit) as failed:
            main(wrong)
        error = " ".join(capfd.readouterr().err.split())
        assert failed.value.code == 2 and says in error, error
    assert not (tmp_path / "b.csv").exists()
