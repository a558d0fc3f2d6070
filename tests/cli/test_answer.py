"""`normscope answer`: what it shows, what it writes, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.chat_model import byte_tokenizer, chat_model

from .samples import Output

QUESTION = ("--question", "Where does Marta live?", "--max-new-tokens", "4")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("chat") / "model"
    chat_model().save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return str(folder)


def test_the_answer_its_sentences_and_what_was_left_out_are_shown(
    run: Callable[..., Output], model: str, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("Marta lives in Lisbon. Tomas is [bold]here[/bold].\n")
    documents = ("--context", "notes.txt", "--context", "Noor was born in Oslo.")
    code, out, err = run("answer", *documents, *QUESTION, "--model", model)
    assert code == 0, err
    for shown in (
        "Marta lives in Lisbon.  notes.txt",
        "[bold]here[/bold]",
        "document 2",
        "question (",
        "template (",
        "biases",
    ):
        assert shown in out
    numbers = [float(line.split()[0]) for line in out.splitlines() if line.startswith(("+", "-"))]
    assert sum(numbers[:-1]) == pytest.approx(numbers[-1], abs=0.01)


def test_a_part_in_other_units_is_written_to_a_table(run: Callable[..., Output], model: str, tmp_path: Path) -> None:
    line = (
        "answer",
        "-c",
        "Marta lives in Lisbon.",
        "-q",
        "Where?",
        "--answer",
        "In Lisbon.",
        "--of",
        "Lisbon",
        "--model",
        model,
    )
    code, _, err = run(*line, "--units", "word", "--objective", "logit", "--out", "words.json")
    assert code == 0, err
    document = json.loads((tmp_path / "words.json").read_text())
    assert document["explained"] == "Lisbon" and document["objective"] == "logit" and document["unit"] == "word"
    assert {span["text"] for span in document["spans"]} == {"Marta", "lives", "in", "Lisbon."}
    code, out, err = run(*line, "--hops", "all")
    assert code == 0, err
    assert "through the generated text" in out
    code, out, err = run(*line[:7], "--against", "In Oslo.", "--model", model)
    assert code == 0 and "above that of the other answer ('In Oslo.')" in out, err


def test_the_page_is_one_file(run: Callable[..., Output], model: str, tmp_path: Path) -> None:
    line = (
        "answer",
        "-c",
        "Marta lives in Lisbon. The dog ran.",
        "-q",
        "Where?",
        "--answer",
        "In Lisbon.",
        "--model",
        model,
    )
    code, _, err = run(*line, "--units", "word", "--out", "page.html")
    assert code == 0 and "page.html" in err, err
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    data = page.split('id="normscope-page">')[1].split("</script>")[0]
    answer = json.loads(data)["answer"]
    assert answer["unit"] == "word" and [item["text"] for item in answer["items"]][:2] == ["Marta", "lives"]
    assert sum(answer["views"][0]["total"]) == pytest.approx(answer["value"], abs=1e-4)


def test_turns_of_a_chat_come_from_a_file(run: Callable[..., Output], model: str, tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "Marta lives in Lisbon."}, {"role": "assistant", "content": "I see."}]
    (tmp_path / "chat.json").write_text(json.dumps(turns))
    code, out, err = run("answer", "--messages", "chat.json", "--model", model, "--units", "turn")
    assert code == 0, err
    assert out.startswith("I see.") and "1 user" in out
    (tmp_path / "bad.json").write_text("{")
    for name, message in (("bad.json", "not JSON"), ("none.json", "cannot be read")):
        code, out, err = run("answer", "--messages", name, "--model", model)
        assert (code, out) == (2, "") and message in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--context", "nosuch.txt"), "no text file"),
        (("--context", " "), "is empty"),
        (("--context", "word " * 900), "takes at most 600"),
        (("--context", "Marta.", "--of", "Oslo"), "not in the answer"),
        (("--context", "-", "--context", "-"), "Only one text"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    run: Callable[..., Output], model: str, options: tuple[str, ...], message: str
) -> None:
    code, out, err = run("answer", *options, *QUESTION, "--model", model, "--out", "answer.csv")
    assert (code, out) == (2, "") and message in err and "Traceback" not in err
    assert not Path("answer.csv").exists()


def test_a_model_without_a_head_is_refused(run: Callable[..., Output]) -> None:
    code, out, err = run("answer", "--context", "Marta lives in Lisbon.", *QUESTION)
    assert (code, out) == (2, "") and "head" in err


def test_what_takes_long_is_said(run: Callable[..., Output], model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("normscope.cli.console._SECONDS_BEFORE_A_LINE", 0)
    monkeypatch.setattr("normscope.cli.answer._LONG", 5)
    _, _, err = run("answer", "--context", "Marta lives in Lisbon.", *QUESTION, "--model", model)
    assert {"Answering…", "Explaining…"} <= set(err.splitlines()) and "Explaining it takes about: " in err
