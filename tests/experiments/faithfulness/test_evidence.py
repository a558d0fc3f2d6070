"""The evidence experiment on a model whose rule is known, its measures, its reader, and every bad row."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from support.rule_model import WORDS, rule_analyzer, tokenizer

import normscope as ns
from normscope.cli import main
from normscope.corpora import Corpus, CorpusError, Problems
from normscope.experiments import ModelFacts, experiment
from normscope.experiments.faithfulness.evidence import BLIMP, published_notes, published_rank, scores
from normscope.options import Objective
from normscope.runs import run
from normscope.runs.spool import from_json, to_json

METHODS = ("pull-back", "leave-one-out", "gradient-x-input", "alti-logit", "random")
HEADER = "prefix,good,bad,evidence\n"
ROWS = ["one key two three four", "key five one", "one two three six key", "two key six seven eight", "one one key two"]


@pytest.fixture(scope="module")
def analyzer() -> ns.Analyzer:  # type: ignore[override]
    return rule_analyzer()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "sets"
    made.mkdir()
    for name in ("first", "second"):
        (made / f"{name}.csv").write_text(HEADER + "".join(f"{text},good,bad,key\n" for text in ROWS))
    return made


def table(rows: list[dict[str, object]], **wanted: object) -> list[dict[str, object]]:
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def test_methods_that_know_the_logit_find_the_word_that_decides(analyzer: ns.Analyzer, folder: Path) -> None:
    found = run(
        ["evidence"], model=analyzer, corpus=folder, format="evidence", options={"evidence": {"methods": METHODS}}
    )
    rows = found.tables["evidence"].to_pylist()
    for name in ("first", "second", "mean of sets"):
        for question in ("contrastive", "plain"):
            for method in ("pull-back", "leave-one-out", "alti-logit"):
                (row,) = table(rows, set=name, question=question, method=method, measure="reciprocal_rank")
                assert row["mean"] == pytest.approx(1)
    (mass,) = table(rows, set="first", question="contrastive", method="pull-back", measure="mass")
    assert mass["mean"] == pytest.approx(1, abs=1e-5) and mass["sequences"] == len(ROWS)
    (chance,) = table(rows, set="first", question="contrastive", method="random", measure="reciprocal_rank")
    assert chance["low"] <= chance["mean"] <= chance["high"] < 1  # type: ignore[operator]
    differences = found.tables["evidence-differences"].to_pylist()
    (lost,) = table(differences, set="first", question="contrastive", method="random", measure="reciprocal_rank")
    assert lost["difference"] == pytest.approx(chance["mean"] - 1)  # type: ignore[operator]
    assert any("GPT-2 small" in note for note in found.manifest["experiments"]["evidence"]["notes"])


def test_objectives_are_those_of_an_explanation_and_sinks_are_left_out_of_a_second_ranking(
    analyzer: ns.Analyzer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first(received: list[torch.Tensor], *, causal: bool) -> torch.Tensor:  # this model attends to all alike
        return torch.arange(len(received[0])) == 0 if causal else torch.zeros(len(received[0]), dtype=torch.bool)

    monkeypatch.setattr("normscope.explain.weightings.sinks_of_layers", first)
    objectives = ("contrastive", "centred", "runner-up")
    options = {"methods": ("pull-back", "random"), "objectives": objectives, "without_sinks": True}
    found = run(["evidence"], model=analyzer, corpus=folder, format="evidence", options={"evidence": options})
    rows = found.tables["evidence-rows"].to_pylist()
    assert {row["question"] for row in rows} == set(objectives)
    assert len(table(rows, method="pull-back", measure="reciprocal_rank")) == 3 * 2 * len(ROWS)
    (item,) = Corpus(str(folder / "first.csv"), format="evidence", limit=1).items(tokenizer(), Problems())
    assert item.evidence is not None
    ids: Any = {"input_ids": torch.tensor([item.sequence.features["input_ids"]])}
    names: dict[str, Objective] = {"centred": "centred", "runner-up": "contrast"}
    for question, objective in names.items():
        shares = analyzer.explain(ids, target=item.evidence.good, objective=objective).shares.values[0]
        evidence = np.isin(np.arange(len(shares)), item.evidence.places)
        (own,) = table(rows, question=question, method="pull-back", measure="mass", sequence=0)
        assert own["value"] == pytest.approx(scores(shares, evidence)[1], abs=1e-5)
    without = table(rows, method="pull-back", measure="mass_without_sinks", question="centred")
    for row in without:
        (item,) = (each for each in _items(folder) if each.number == row["sequence"])
        assert item.evidence is not None
        ids = {"input_ids": torch.tensor([item.sequence.features["input_ids"]])}
        shares = analyzer.explain(ids, target=item.evidence.good, objective="centred").shares.values[0]
        kept = np.arange(1, len(item.sequence))
        evidence = np.isin(kept, item.evidence.places)
        assert row["value"] == pytest.approx(scores(shares[kept], evidence)[1], abs=1e-5)
    assert {row["sequence"] for row in without} == set(range(2 * len(ROWS))) - {2, 3}  # whose evidence comes first


def _items(folder: Path) -> list[Any]:
    return list(Corpus(str(folder), format="evidence").items(tokenizer(), Problems()))


def test_the_mean_of_sets_has_an_interval_and_a_difference_over_the_rows_of_every_set(
    analyzer: ns.Analyzer, folder: Path
) -> None:
    options = {"evidence": {"methods": ("pull-back", "random", "gradient-x-input")}}
    found = run(["evidence"], model=analyzer, corpus=folder, format="evidence", options=options)
    asked: dict[str, object] = {"question": "contrastive", "measure": "reciprocal_rank", "method": "random"}
    rows = found.tables["evidence"].to_pylist()
    mean: Any = table(rows, set="mean of sets", **asked)[0]
    sets: list[Any] = [table(rows, set=name, **asked)[0] for name in ("first", "second")]
    assert mean["mean"] == pytest.approx(np.mean([each["mean"] for each in sets]))  # type: ignore[arg-type]
    width = [float(each["high"]) - float(each["low"]) for each in sets]  # type: ignore[arg-type]
    assert 0 < mean["high"] - mean["low"] < max(width)
    (fall,) = cast("list[Any]", table(found.tables["evidence-differences"].to_pylist(), set="mean of sets", **asked))
    (best,) = cast("list[Any]", table(rows, set="mean of sets", **(asked | {"method": "pull-back"})))
    assert fall["difference"] == pytest.approx(mean["mean"] - best["mean"])
    assert fall["low"] <= fall["difference"] <= fall["high"] and fall["sequences"] == 2 * len(ROWS)


def test_others_are_compared_with_the_first_method_where_the_reference_is_not_among_them(
    analyzer: ns.Analyzer, folder: Path
) -> None:
    rules = ("pull-back:weights=constant", "pull-back:weights=half", "random")
    options = {"evidence": {"methods": rules, "objectives": ("contrastive",)}}
    found = run(["evidence"], model=analyzer, corpus=folder, format="evidence", options=options)
    differences = cast("list[Any]", found.tables["evidence-differences"].to_pylist())
    assert {row["reference"] for row in differences} == {rules[0]}
    assert {(row["set"], row["method"]) for row in differences} == {
        (name, rule) for name in ("first", "second", "mean of sets") for rule in rules[1:]
    }


def test_a_run_says_its_cost_and_resumes_to_the_same_tables(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    analyzer, options = rule_analyzer(), {"evidence": {"methods": ("pull-back", "random")}}
    out = tmp_path / "run"
    asked: Any = {"model": analyzer, "corpus": folder, "format": "evidence", "options": options, "shard_size": 4}
    whole = run(["evidence"], **asked, out=out, progress=None)
    assert "evidence: 10 sequences, about 30 model calls, about" in capsys.readouterr().err
    assert whole.manifest["expected"]["evidence"]["calls"] == 3 * 2 * len(ROWS)
    assert whole.manifest["expected"]["evidence"]["seconds"] > 0
    shutil.rmtree(sorted((out / "shards").iterdir())[-1])
    again = run(["evidence"], **asked, out=out)
    assert 0 < again.manifest["expected"]["evidence"]["sequences"] < 2 * len(ROWS)
    for name, made in whole.tables.items():
        assert again.tables[name].equals(made)


def test_reciprocal_rank_and_mass_are_those_of_the_best_evidence_token() -> None:
    shares, evidence = np.array([4.0, 3.0, -5.0, 1.0, np.nan]), np.array([False, True, True, False, False])
    assert scores(shares, evidence) == (pytest.approx(1 / 2), pytest.approx(3 / 8))
    assert scores(np.zeros(4), np.array([False, False, True, False])) == (pytest.approx(1 / 2.5), 0.0)
    assert scores(np.array([np.nan, 1.0]), np.array([True, False]))[0] == pytest.approx(1 / 2)


def test_rows_of_a_folder_come_in_turns_and_words_begin_alike_as_long_as_they_do(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(HEADER + "one key,six good,six bad,key\none two,good,bad,two\n")
    (tmp_path / "b.tsv").write_text("prefix\tgood\tbad\tevidence\nkey one key\tgood\tbad\tkey\n")
    items = list(Corpus(str(tmp_path), format="evidence").items(tokenizer(), Problems()))
    assert [item.evidence and item.evidence.collection for item in items] == ["a", "b", "a"]
    assert items[0].sequence.tokens == ["one", "key", "six"]
    assert items[0].evidence and items[0].evidence.places == (1,)
    assert (items[0].evidence.good, items[0].evidence.bad) == (WORDS.index("good"), WORDS.index("bad"))
    assert items[1].evidence and items[1].evidence.places == (0, 2)
    assert [from_json(json.loads(json.dumps(to_json(item)))).evidence for item in items] == [i.evidence for i in items]
    before = Corpus(str(tmp_path), format="evidence").fingerprint()
    (tmp_path / "a.csv").write_text(HEADER + "one key,good,bad,key\n")
    assert Corpus(str(tmp_path), format="evidence").fingerprint() != before


def test_bad_rows_are_noted_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(HEADER + "one key,good,good,key\none keys,good,bad,key\n,good,bad,key\none key,good,bad,key\n")
    problems = Problems()
    assert len(list(Corpus(str(path), format="evidence").items(tokenizer(), problems))) == 1
    assert problems.counts == {"unusable evidence": 2, "malformed row": 1}
    assert problems.examples[0].startswith(f"{path}:2: 'good' and 'good' do not differ")
    path.write_text("prefix,good\none,good\n")
    with pytest.raises(CorpusError, match=r"no column 'bad' and 'evidence'|no column"):
        list(Corpus(str(path), format="evidence").records(Problems()))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(CorpusError, match="no CSV or TSV file"):
        list(Corpus(str(empty), format="evidence").records(Problems()))


def test_bad_questions_are_refused_before_any_work(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ns.InputError, match="no task head"):
        run(["evidence"], corpus=folder, format="evidence")
    with pytest.raises(ns.InputError, match="needs rows of prefix, good, bad and evidence"):
        run(["evidence"], model=rule_analyzer(), corpus=["one two three"])
    with pytest.raises(ns.InputError, match="Did you mean 'pull-back'"):
        experiment("evidence", {"methods": ("pullback",)})
    with pytest.raises(ns.InputError, match="whole number"):
        experiment("evidence", {"methods": ("integrated-gradients:steps=few",)})
    with pytest.raises(ns.InputError, match="signed"):
        experiment("evidence", {"order": "up"})
    for name in ("evidence", "deletion", "answers"):
        with pytest.raises(ns.InputError, match=f"{name}: reference is one of .*random.*, not 'random '"):
            experiment(name, {"methods": ("pull-back", "random"), "reference": "random "})
        assert experiment(name, {"methods": ("pull-back", "random"), "reference": "random"})
    assert experiment("answers", {"reference": "pull-back logit"})
    with pytest.raises(ns.InputError, match="contrastive, plain"):
        experiment("evidence", {"objectives": ("best",)})
    with pytest.raises(ns.InputError, match="named once"):
        experiment("evidence", {"objectives": ("plain", "plain")})
    with pytest.raises(ns.InputError, match="at least one objective"):
        experiment("evidence", {"objectives": ()})
    out = tmp_path / "nothing"
    with pytest.raises(SystemExit) as ended:
        main(["run", "evidence", "--corpus", str(folder), "--format", "evidence", "--out", str(out)])
    assert ended.value.code == 2 and "no task head" in capsys.readouterr().err


def test_published_values_stand_beside_gpt2_small_and_its_own_sets_only() -> None:
    facts = ModelFacts("openai-community/gpt2", tuple(range(1, 13)), (), "gpt2", width=768, vocabulary=50257)
    assert published_rank(facts, ["ioi"], "contrastive", "alti-logit") == 1.0
    assert published_rank(facts, BLIMP, "contrastive", "gradient-norm") == 0.546
    assert published_rank(facts, ["ioi"], "plain", "alti-logit") is None
    assert published_rank(facts, ["npi_present_1"], "contrastive", "alti-logit") is None
    small = ModelFacts("gpt2", (1, 2), (), "gpt2", width=768, vocabulary=50257)
    assert published_rank(small, ["ioi"], "contrastive", "alti-logit") is None
    assert published_notes(small) and not published_notes(facts)
