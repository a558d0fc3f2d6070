"""The experiment answers: its measures, its falls against the model's own log-probabilities, its reader, and bad rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.chat_model import byte_tokenizer, chat_analyzer

import normscope as ns
from normscope.cli import main
from normscope.corpora import Corpus, Problems
from normscope.corpora.answers import asked_sentences
from normscope.corpora.facts import DISTRACTIONS, KINDS, facts, write_facts
from normscope.experiments import experiment
from normscope.experiments.faithfulness.answers import falls_of_top, of_sentences, ranks_of
from normscope.experiments.faithfulness.asked import AskedModel
from normscope.runs import run
from normscope.runs.spool import from_json, to_json

ROW: dict[str, Any] = {
    "sentences": ["Marta lives in Rome.", "Noor was born in Oslo.", "Tea is hot.", "Tomas lives in Bern."],
    "question": "Where does Marta live?",
    "answer": "Rome",
    "evidence": [0],
}


@pytest.fixture(scope="module")
def chat() -> ns.Analyzer:
    return chat_analyzer()


def written(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def asked_model(chat: ns.Analyzer, **changes: Any) -> AskedModel:
    return AskedModel(chat, asked_sentences(ROW | changes, "rows"), own=False)


# ---- measures ----------------------------------------------------------------------------------------------------------


def test_scores_of_sentences_are_sums_means_or_positive_sums_of_their_tokens() -> None:
    shares, owners = np.array([9.0, 1.0, 2.0, 3.0, -1.0]), np.array([-1, 0, 2, 2, 2])
    assert of_sentences(shares, owners, 3, "sum").tolist() == [1.0, 0.0, 4.0]
    assert of_sentences(shares, owners, 3, "mean").tolist() == [1.0, 0.0, pytest.approx(4 / 3)]
    assert of_sentences(shares, owners, 3, "positive").tolist() == [1.0, 0.0, 5.0]


def test_ranks_are_those_of_the_evidence() -> None:
    scores = np.array([0.5, 2.0, 1.0, -3.0])
    assert ranks_of(scores, [1]) == {"first": 1.0, "found": 1.0, "reciprocal_rank": 1.0}
    assert ranks_of(scores, [0, 2]) == {"first": 0.0, "found": 0.5, "reciprocal_rank": 0.5}
    assert ranks_of(scores, []) == {}


def test_falls_are_those_of_the_models_own_log_probabilities(chat: ns.Analyzer) -> None:
    case, tokenizer = asked_model(chat), byte_tokenizer()

    def log_probability(sentences: list[str]) -> float:
        message = [{"role": "user", "content": " ".join(sentences) + "\n\n" + ROW["question"]}]
        text: Any = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        answer = tokenizer("Rome")["input_ids"]
        ids = torch.tensor([[*tokenizer(text)["input_ids"], *answer]])
        with torch.no_grad():
            chances = chat.model(ids).logits[0, -1 - len(answer) : -1].double().log_softmax(-1)
        return float(chances.gather(1, ids[0, -len(answer) :, None]).sum())

    sentences: list[str] = ROW["sentences"]
    whole = log_probability(sentences)
    falls = falls_of_top(case, np.array([0.0, 3.0, 1.0, 2.0]))
    assert falls["drop_1"] == pytest.approx(
        whole - log_probability([sentences[place] for place in (0, 2, 3)]), abs=1e-5
    )
    assert falls["drop_3"] == pytest.approx(whole - log_probability(sentences[:1]), abs=1e-5)
    assert case.calls == 3  # the whole context, without one, without three
    assert falls_of_top(case, np.array([0.0, 3.0, 1.0, 2.0])) == falls and case.calls == 3


def test_every_token_of_a_sentence_is_counted_with_it(chat: ns.Analyzer) -> None:
    case = asked_model(chat)
    owners = case.sentence_of_tokens()
    for number, sentence in enumerate(ROW["sentences"]):
        tokens = [token for token, owner in zip(case.sequence.tokens, owners, strict=True) if owner == number]
        assert "".join(tokens).replace("\u0120", " ").strip() == sentence


def test_the_pull_backs_shares_are_those_of_explain_answer(chat: ns.Analyzer, tmp_path: Path) -> None:
    answer = chat.explain_answer(context=" ".join(ROW["sentences"]), question=ROW["question"], answer="Rome")
    first = answer.spans()[0].text
    evidence = [ROW["sentences"].index(first)]
    path = written(tmp_path / "a.jsonl", ROW | {"evidence": evidence})
    options = {"answers": {"methods": ("pull-back",), "objectives": ("alternatives",), "removals": 0}}
    found = run(["answers"], model=chat, corpus=path, format="answers", options=options, max_tokens=500)
    measured = {(row["measure"], row["ranking"]): row["mean"] for row in found.tables["answers"].to_pylist()}
    assert measured["first", "sum"] == 1 and ("drop_1", "sum") not in measured


# ---- runs --------------------------------------------------------------------------------------------------------------


def test_a_run_has_every_method_both_rankings_and_resumes_to_the_same_tables(chat: ns.Analyzer, tmp_path: Path) -> None:
    rows = [ROW | {"set": name, "answer": each} for name in ("one", "two") for each in ("Rome", "Bern", "Oslo")]
    rows.append(ROW | {"set": "none", "evidence": [], "answer": "Lima"})
    path, out = written(tmp_path / "a.jsonl", *rows), tmp_path / "run"
    asked: Any = {"model": chat, "corpus": path, "format": "answers", "max_tokens": 500, "shard_size": 3}
    asked["options"] = {"answers": {"methods": ("pull-back", "gradient-norm", "random")}}
    whole = run(["answers"], **asked, out=out)
    table = whole.tables["answers"].to_pylist()
    assert {row["set"] for row in table} == {"one", "two", "none"}
    methods = {
        *(f"pull-back {name}" for name in ("alternatives", "contrast", "centred", "logit")),
        "gradient-norm",
        "random",
    }
    assert {row["method"] for row in table} == {*methods, "leave-one-sentence-out"}
    assert {row["measure"] for row in table if row["set"] == "none"} == {
        "drop_1",
        "drop_3",
        "removal",
        "context",
        "calls",
    }
    by_removal = [row for row in table if row["method"] == "leave-one-sentence-out"]
    assert {row["mean"] for row in by_removal if row["measure"] == "calls"} == {5.0}
    best = max(row["mean"] for row in table if (row["set"], row["measure"]) == ("one", "drop_1"))
    assert next(row["mean"] for row in by_removal if (row["set"], row["measure"]) == ("one", "drop_1")) == best
    finding = experiment("answers").finding(list(whole.tables.values()))
    assert finding is not None and "of 3 rows by pull-back" in finding
    shutil.rmtree(sorted((out / "shards").iterdir())[-1])
    again = run(["answers"], **asked, out=out)
    for name, made in whole.tables.items():
        assert again.tables[name].equals(made)


def test_the_models_own_answer_counts_where_it_says_the_known_one(chat: ns.Analyzer, tmp_path: Path) -> None:
    question: Any = {"context": " ".join(ROW["sentences"]), "question": ROW["question"], "max_new_tokens": 40}
    own = chat.explain_answer(**question).text
    path = written(tmp_path / "a.jsonl", ROW | {"answer": own[:3]}, ROW | {"answer": "Samarkand"})
    options = {"answers": {"methods": ("pull-back",), "answer": "own", "removals": 0}}
    found = run(["answers"], model=chat, corpus=path, format="answers", options=options, max_tokens=500)
    rows = found.tables["answers"].to_pylist()
    assert [row["mean"] for row in rows if row["measure"] == "right"] == [0.5]
    assert {row["sequences"] for row in rows if row["measure"] == "first"} == {1}


def test_bad_questions_are_refused_before_any_work(
    chat: ns.Analyzer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "a.jsonl", ROW)
    with pytest.raises(ns.InputError, match="no task head"):
        run(["answers"], corpus=path, format="answers")
    with pytest.raises(ns.InputError, match=r"needs questions about sentences.*--format answers"):
        run(["answers"], model=chat, corpus=["one two three"])
    for options, message in (
        ({"objectives": ("half",)}, "centred"),
        ({"objectives": ()}, "at least one objective"),
        ({"answer": "mine"}, "given"),
        ({"removals": -1}, "at least 0"),
        ({"methods": ("pullback",)}, "Did you mean"),
    ):
        with pytest.raises(ns.InputError, match=message):
            experiment("answers", options)
    with pytest.raises(SystemExit) as ended:
        main(["run", "answers", "--corpus", str(path), "--format", "answers", "--out", str(tmp_path / "nothing")])
    assert ended.value.code == 2 and "no task head" in capsys.readouterr().err


# ---- rows --------------------------------------------------------------------------------------------------------------


def test_rows_keep_their_fields_and_bad_ones_are_noted_with_their_place(tmp_path: Path) -> None:
    bad: list[dict[str, Any]] = [
        {"sentences": "one"},
        {"sentences": ["one"]},
        {"evidence": [4]},
        {"evidence": [True]},
        {"evidence": None},
        {"answer": " "},
        {"question": 3},
    ]
    path = written(tmp_path / "a.jsonl", ROW, *(ROW | each for each in bad), [1], ROW | {"set": "hard", "evidence": []})
    problems = Problems()
    items = list(Corpus(str(path), format="answers", max_tokens=500).items(byte_tokenizer(), problems))
    assert [item.asked and item.asked.collection for item in items] == ["a", "hard"]
    assert [item.asked and item.asked.evidence for item in items] == [(0,), ()]
    assert problems.counts == {"malformed row": len(bad) + 1}
    assert problems.examples[0].startswith(f"{path}:2: the field 'sentences' is not a list")
    assert [from_json(json.loads(json.dumps(to_json(item)))).asked for item in items] == [item.asked for item in items]


def test_a_row_that_is_too_long_is_left_out_and_never_cut(tmp_path: Path) -> None:
    corpus, problems = Corpus(str(written(tmp_path / "a.jsonl", ROW)), format="answers", max_tokens=9), Problems()
    assert list(corpus.items(byte_tokenizer(), problems)) == []
    assert problems.counts == {"too long, left out": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_made_up_facts_have_the_answer_where_they_say(kind: Any, tmp_path: Path) -> None:
    for row in facts(kind, 20, seed=3):
        asked_sentences(row, "")  # raises if it is malformed
        said = [place for place, sentence in enumerate(row["sentences"]) if row["answer"] in sentence]
        assert len(set(row["sentences"])) == len(row["sentences"])
        match kind:
            case "absent":
                assert said == [] == row["evidence"]
            case "twice":
                assert len(said) == 2 and set(row["evidence"]) < set(said)
            case "joined":
                assert len(row["evidence"]) == 2 and set(said) < set(row["evidence"])
            case _:
                assert said == row["evidence"] and len(said) == 1
        if kind == "distraction":
            assert DISTRACTIONS // 2 <= row["evidence"][0] < len(row["sentences"]) - DISTRACTIONS // 2
    assert facts(kind, 3, seed=1) == facts(kind, 5, seed=1)[:3] != facts(kind, 3, seed=2)
    write_facts(tmp_path / "rows.jsonl", [kind], count=2)
    assert len(list(Corpus(str(tmp_path / "rows.jsonl"), format="answers").records(Problems("refuse")))) == 2
