"""Chats wherever a text is taken: the tokens are those of the template, with turns; in maps, explanations and corpora."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.chat_model import byte_tokenizer, chat_analyzer, chat_model

import normscope as ns
from normscope.cli import main
from normscope.errors import FileError, InputError
from normscope.inputs import chat_sequence

CHAT = [
    {"role": "system", "content": "the cat sat on the mat"},
    {"role": "user", "content": " Where does Marta live? "},
    {"role": "assistant", "content": "Marta lives in Lisbon."},
    {"role": "user", "content": "Where does Tomas live?"},
]


@pytest.fixture(scope="module")
def model() -> ns.Analyzer:
    return chat_analyzer()


def one(found: Any) -> Any:
    assert not isinstance(found, list)
    return found


def test_a_chat_is_read_as_the_template_writes_it(model: ns.Analyzer) -> None:
    tokenizer: Any = model.tokenizer
    expected = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, tokenize=False)
    ids = tokenizer(expected, add_special_tokens=False)["input_ids"]
    sequence = chat_sequence(CHAT, tokenizer, None)
    assert sequence.text == expected and sequence.features["input_ids"] == ids
    alone = one(model.explain({"input_ids": [ids]}))
    assert np.array_equal(one(model.explain(CHAT)).attribution.values, alone.attribution.values)


def test_every_token_is_in_its_turn_or_in_the_template() -> None:
    sequence = chat_sequence(CHAT, byte_tokenizer(), None)
    assert sequence.turns is not None and sequence.offsets is not None
    texts: dict[str, str] = {}
    for turn, (start, end) in zip(sequence.turns, sequence.offsets, strict=True):
        texts[turn] = texts.get(turn, "") + (sequence.text[start:end] if start >= 0 else "")
    names = ["1 system", "2 user", "3 assistant", "4 user"]
    assert [texts[name] for name in names] == [message["content"].strip() for message in CHAT]
    assert "system\n" in texts[""] and "Marta" not in texts[""]
    marks = [token for token, special in zip(sequence.tokens, sequence.special, strict=True) if special]
    assert set(marks) == {"<|start|>", "<|end|>"}


def test_a_last_message_of_the_assistant_stays_open(model: ns.Analyzer) -> None:
    tokenizer: Any = model.tokenizer
    sequence = chat_sequence(CHAT[:3], tokenizer, None)
    assert sequence.text.endswith("<|start|>assistant\nMarta lives in Lisbon.")
    assert sequence.text == tokenizer.apply_chat_template(CHAT[:3], continue_final_message=True, tokenize=False)
    explained = one(model.explain(CHAT[:3], target=" It rained"))
    assert set(explained.dataset["query_turn"].values) == {"", "1 system", "2 user", "3 assistant", "answer"}


def test_turns_are_units_whose_shares_add_up(model: ns.Analyzer) -> None:
    explanation = one(model.explain(CHAT, target=" Lisbon"))
    turns = explanation.turns()
    assert [name for name in turns.tokens if name[:1].isdigit()] == ["1 system", "2 user", "3 assistant", "4 user"]
    assert "template" in turns.tokens
    assert abs(float(turns.attribution.sum() - explanation.attribution.sum())) < 1e-5
    own = explanation.dataset["query_turn"].values
    share = float(turns.attribution.values[:, turns.tokens.index("2 user")].sum())
    assert share == pytest.approx(float(explanation.attribution.values[:, own == "2 user"].sum()), abs=1e-6)
    analysis = one(model.analyze(CHAT))
    whole, by_turn = analysis.map("Attn").sel(layer=1), analysis.turns().map("Attn").sel(layer=1)
    place = analysis.turns().tokens.index("3 assistant")
    rows, columns = (
        np.flatnonzero(own[: len(analysis.tokens)] == "4 user"),
        np.flatnonzero(own[: len(analysis.tokens)] == "3 assistant"),
    )
    expected = np.nansum(whole.values[np.ix_(rows, columns)], 1).mean()
    assert float(by_turn.values[analysis.turns().tokens.index("4 user"), place]) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(InputError, match="the input was no chat"):
        one(model.explain("the cat sat")).turns()


def test_lists_estimates_and_ratios_take_chats(model: ns.Analyzer) -> None:
    several = model.explain([CHAT, CHAT[1:2]])
    assert isinstance(several, list) and [len(each.tokens) for each in several] == [
        len(one(model.analyze(chat, scopes="AttnW")).tokens) for chat in (CHAT, CHAT[1:2])
    ]
    assert str(model.estimate(CHAT, timed=False)).startswith(f"{len(several[0].tokens)} tokens")
    assert model.mixing_ratios(CHAT, scopes="AttnRes").sizes["query"] == len(several[0].tokens)
    with pytest.raises(InputError, match="Item 1 of the list is a str, and others are chats"):
        model.explain([CHAT, "the cat"])  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_what_cannot_be_laid_out_is_refused_in_a_sentence() -> None:
    without = chat_analyzer(template=None)
    for model, messages, says in (
        (without, CHAT, "this tokenizer has none. Give a plain text"),
        (ns.load(chat_model()), CHAT, "without a tokenizer"),
        (chat_analyzer(), [{"role": "user", "content": " "}], "Message 1 .* is empty"),
        (chat_analyzer(), [{"role": "user", "content": "the " * 700}], "at most 600"),
    ):
        with pytest.raises(InputError, match=says):
            model.explain(messages)
    with pytest.raises(InputError, match="no end to answer at"):
        chat_analyzer().explain([{"role": "user", "content": "the " * 700}], truncate=True)


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_corpus_may_have_a_column_of_messages(model: ns.Analyzer, tmp_path: Path, ending: str) -> None:
    path, chats = tmp_path / f"chats.{ending}", [CHAT, CHAT[1:2], [{"role": "user", "content": "the dog ran"}]]
    rows: list[Any] = [
        {"messages": chat, "said": said} for chat, said in zip(chats, [" Oslo", " Lisbon", " cat"], strict=True)
    ]
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        broken = json.dumps({"messages": [{"role": "user"}], "said": "a"})
        path.write_text("".join(json.dumps(row) + "\n" for row in rows) + broken + "\n")
    explained = ns.explain_corpus(path, model=model, target_column="said", units="turn")
    frame = explained.to_pandas()
    for number, row in enumerate(rows):
        own = one(model.explain(row["messages"], target=row["said"])).turns().to_pandas()
        shares = frame[frame["text"] == number]
        assert shares["token"].tolist() == own["token"].tolist()
        assert np.abs(np.subtract(shares["attribution"], own["attribution"].to_numpy())).max() < 1e-5
    assert explained.manifest["rows_left_out_or_changed"] == ({} if ending == "parquet" else {"malformed row": 1})
    texts = ns.explain_corpus(["the dog ran"], model=model, chat=True, target=" cat", units="turn").to_pandas()
    assert texts["attribution"].tolist() == pytest.approx(
        frame.loc[frame["text"] == 2, "attribution"].tolist(), abs=1e-5
    )


def test_commands_take_chats(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder, messages = tmp_path / "model", tmp_path / "chat.json"
    chat_model().save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    messages.write_text(json.dumps(CHAT))
    common = ["--chat", "--model", str(folder)]
    for command, says in (
        (["explain", str(messages), "--units", "turn", "--target", " Lisbon"], "3 assistant"),
        (["explain", "the cat sat", "--units", "turn"], "1 user"),
        (["mix", str(messages)], "start"),
        (["map", "the cat", "--scope", "AttnW"], "start"),
        (["estimate", str(messages), "--no-time"], "tokens"),
    ):
        with pytest.raises(SystemExit) as done:
            main([*command, *common])
        assert done.value.code == 0 and says in capfd.readouterr().out
    (tmp_path / "broken.json").write_text("{")
    for command, says in (
        (["explain", str(tmp_path / "missing.json")], "cannot be read"),
        (["explain", str(tmp_path / "broken.json")], "is not JSON"),
        (["map", "the cat", "--pair", "the dog"], "leave out --pair, or --chat"),
    ):
        with pytest.raises(SystemExit) as failed:
            main([*command, *common])
        assert failed.value.code == 2 and says in " ".join(capfd.readouterr().err.split())


def test_errors_of_files_are_file_errors() -> None:
    from normscope.cli.texts import messages_in  # noqa: PLC0415

    with pytest.raises(FileError, match="cannot be read"):
        messages_in(Path("nowhere.json"))
