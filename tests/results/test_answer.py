"""Explained answers as a user asks for them: what adds up, every unit, parts, files, and every bad question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.chat_model import TEMPLATE, byte_tokenizer, chat_analyzer, chat_model
from support.tiny_architectures import BART, tiny
from transformers import AutoModelForSeq2SeqLM, BertConfig, BertForMaskedLM

import normscope as ns
from normscope.inputs.units import span_of_tokens
from normscope.results.answer import Answer
from normscope.results.spans import Spans

DOCUMENTS = ["Marta lives in Lisbon. Tomas works as a surgeon.", "Noor was born in Oslo. Marta lives in Lisbon."]
QUESTION = "Where does Marta live?"


@pytest.fixture(scope="module")
def chat() -> ns.Analyzer:
    return chat_analyzer()


@pytest.fixture(scope="module")
def answer(chat: ns.Analyzer) -> Answer:
    return chat.explain_answer(context=DOCUMENTS, question=QUESTION, max_new_tokens=6)


def adds_up(spans: Spans, value: float) -> None:
    assert spans.total == pytest.approx(value, abs=1e-4) and spans.value == value


# ---- what adds up ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["logit", "centred", "contrast"])
def test_shares_and_bias_add_up_to_the_models_own_logits(chat: ns.Analyzer, objective: Any) -> None:
    answer = chat.explain_answer(context=DOCUMENTS, question=QUESTION, answer="Lisbon", objective=objective)
    ids = torch.tensor([[*byte_tokenizer()(answer.prompt)["input_ids"], *byte_tokenizer()("Lisbon")["input_ids"]]])
    count = len(byte_tokenizer()("Lisbon")["input_ids"])
    with torch.no_grad():
        rows = chat.model(ids).logits[0, -1 - count : -1].double()
    labels = ids[0, -count:]
    value = rows.gather(1, labels[:, None]).sum()
    if objective == "centred":
        value = value - (rows.softmax(-1) * rows).sum()
    if objective == "contrast":
        value = value - rows.scatter(1, labels[:, None], -torch.inf).max(-1).values.sum()
    assert answer.value == pytest.approx(float(value), abs=1e-4)
    assert float(answer.attribution.sum()) + answer.bias == pytest.approx(answer.value, abs=1e-4)
    assert answer.completeness < 1e-4 and answer.objective == objective and answer.explained == "Lisbon"


@pytest.mark.parametrize("unit", ["token", "word", "line", "sentence", "paragraph", "document"])
def test_every_unit_adds_up_with_what_was_left_out(answer: Answer, unit: Any) -> None:
    spans = answer.spans(unit)
    adds_up(spans, answer.value)
    assert spans.shares == sorted(spans.shares, reverse=True)
    assert {span.text for span in spans.left_out} >= {"question", "template", "answer so far", "biases"}
    counted = sum(span.tokens for span in (*spans, *spans.left_out))
    assert counted == len(answer.tokens)


@pytest.mark.parametrize("weights", ["half", "players", "joint"])
def test_the_account_of_attention_weights_is_a_line_of_its_own_and_adds_up(chat: ns.Analyzer, weights: Any) -> None:
    answer = chat.explain_answer(context=DOCUMENTS, question=QUESTION, answer="Lisbon", weights=weights)
    spans = answer.spans()
    assert answer.counts_weights and [span.share for span in spans.left_out if span.text == "routing"] == [
        answer.routed
    ]
    adds_up(spans, answer.value)
    table = answer.table
    rows = table.sum("token") + table["bias"] + table["routed"]
    size = float(abs(table).sum("token").max())
    assert float(abs(rows - table["value"]).max()) <= 1e-5 * size
    constant = chat.explain_answer(context=DOCUMENTS, question=QUESTION, answer="Lisbon")
    assert not constant.counts_weights and constant.routed == 0 and constant.value == answer.value


def test_sentences_are_those_of_the_documents_and_the_same_sentence_counts_where_it_stands(answer: Answer) -> None:
    spans = answer.spans().in_text_order()
    assert [span.text for span in spans] == [
        "Marta lives in Lisbon.",
        "Tomas works as a surgeon.",
        "Noor was born in Oslo.",
        "Marta lives in Lisbon.",
    ]
    assert [span.source for span in spans] == ["document 1"] * 2 + ["document 2"] * 2
    assert all(answer.prompt[span.start : span.end] == span.text for span in spans)
    by_document = {span.text: span.share for span in answer.documents()}
    assert by_document["document 1"] == pytest.approx(spans[0].share + spans[1].share, abs=1e-4)


def test_a_ranking_by_means_says_so(answer: Answer) -> None:
    spans = answer.spans(rank="mean")
    means = [span.mean for span in spans]
    assert means == sorted(means, reverse=True) and spans.rank == "mean"
    assert spans[0].mean == pytest.approx(spans[0].share / spans[0].tokens)


def test_turns_of_a_chat_are_units(chat: ns.Analyzer) -> None:
    messages = [{"role": "user", "content": "Marta lives in Lisbon."}, {"role": "assistant", "content": "Yes."}]
    found = chat.explain_answer(messages=[*messages, {"role": "user", "content": QUESTION}], max_new_tokens=4)
    turns = found.turns()
    assert sorted(span.text for span in turns) == ["1 user", "2 assistant", "3 user"]
    adds_up(turns, found.value)
    adds_up(found.spans(), found.value)
    with pytest.raises(ns.SelectionError, match="without a context"):
        found.documents()


def test_a_chat_that_ends_with_the_assistant_is_explained_by_its_own_last_turn(chat: ns.Analyzer) -> None:
    asked, said = {"role": "user", "content": QUESTION}, {"role": "assistant", "content": "In Lisbon."}
    found = chat.explain_answer(messages=[asked, said])
    assert found.text == "In Lisbon." and len(found.turns()) == 1


def test_a_question_alone_is_its_own_context(chat: ns.Analyzer) -> None:
    found = chat.explain_answer(question="Marta lives in Lisbon. Where does she live?", answer="Lisbon")
    spans = found.spans()
    assert {span.text for span in spans} == {"Marta lives in Lisbon.", "Where does she live?"}
    assert "question" not in {span.text for span in spans.left_out}
    adds_up(spans, found.value)


def test_a_part_of_what_was_handed_on_begins_anew(chat: ns.Analyzer) -> None:
    through = chat.explain_answer(context=DOCUMENTS, question=QUESTION, answer="In Lisbon.").through_reasoning()
    assert through.of("Lisbon").attrs["hops"] == through.of("Lisbon", against="Oslo").attrs["hops"] == ""


def test_spans_of_ones_own_are_characters_of_a_document(chat: ns.Analyzer, answer: Answer) -> None:
    spans = answer.by([(0, 5, "who"), (15, 21)], of="document 1")
    assert {span.text for span in spans} == {"who", "Lisbon"}
    adds_up(spans, answer.value)
    assert "rest of the context" in {span.text for span in spans.left_out}
    whole = answer.by([(0, len(answer.prompt), "all")], of="prompt")
    assert {span.text for span in whole.left_out} == {"answer so far", "biases"}
    adds_up(whole, answer.value)
    only = chat.explain_answer(context="One two.", question=QUESTION, answer="One")
    assert only.by([(0, 3)])[0].text == "One"


@pytest.mark.parametrize(
    ("spans", "of", "message"),
    [
        ([(0, 9), (5, 12)], "document 1", "overlap"),
        ([(0, 999)], "document 1", "no span 0 to 999"),
        ([(3, 3)], "document 1", "no span 3 to 3"),
        ([(0, 5)], None, "Say which one is meant"),
        ([(0, 5)], "notes", "no document or turn 'notes'"),
    ],
)
def test_spans_that_are_none_are_refused(answer: Answer, spans: Any, of: Any, message: str) -> None:
    with pytest.raises(ns.InputError, match=message):
        answer.by(spans, of=of)


# ---- parts and the table -------------------------------------------------------------------------------------------------


def test_rows_of_the_table_add_up_and_together_are_the_answer(chat: ns.Analyzer) -> None:
    answer = chat.explain_answer(context=DOCUMENTS, question=QUESTION, max_new_tokens=6)
    table = answer.table
    assert table.dims == ("output", "token") and table.sizes["output"] == len(answer.output_tokens)
    np.testing.assert_allclose(np.nansum(table.values, axis=1) + table["bias"], table["value"], atol=1e-4)
    np.testing.assert_allclose(np.nansum(table.values, axis=0), answer.attribution.values, atol=1e-4)
    later = table["token_output"].values[None] >= table["output"].values[:, None]
    assert np.isnan(table.values[later]).all() and np.isfinite(table.values[~later]).all()
    assert answer.table is not None and chat.explain_answer(
        context=DOCUMENTS, question=QUESTION, max_new_tokens=6, table=True
    ).tree.to_dataset()["table"].equals(answer.tree.to_dataset()["table"])


def test_a_part_is_the_same_with_and_without_the_table(chat: ns.Analyzer) -> None:
    answer = chat.explain_answer(context=DOCUMENTS, question=QUESTION, answer="In Lisbon, Lisbon.")
    by_pass = answer.of("Lisbon")
    _ = answer.table
    by_table = answer.of("Lisbon")
    np.testing.assert_allclose(by_pass.attribution.values, by_table.attribution.values, atol=1e-4)
    assert by_pass.value == pytest.approx(by_table.value, abs=1e-4) and by_table.explained == "Lisbon"
    adds_up(by_table.spans(), by_table.value)
    assert not np.allclose(answer.of("Lisbon", occurrence=-1).attribution, by_table.attribution)


def test_parts_are_named_by_text_by_tokens_or_by_characters(chat: ns.Analyzer) -> None:
    answer = chat.explain_answer(context=DOCUMENTS, question=QUESTION, answer="In Lisbon today.", table=True)
    start = answer.text.index("Lisbon")
    named = answer.of("Lisbon")
    assert answer.of((start, start + 6)).value == named.value
    chosen = np.flatnonzero(named.dataset["output_selected"].values)
    assert answer.of(slice(chosen[0], chosen[-1] + 1)).value == named.value
    assert sum(answer.of(int(place)).value for place in chosen) == pytest.approx(named.value, abs=1e-4)
    for part, message in (
        ("Oslo", "not in the answer"),
        (slice(90, 91), "no token"),
        (99, "no token"),
        ((3, 3), "no token"),
    ):
        with pytest.raises(ns.SelectionError, match=message):
            answer.of(part)
    with pytest.raises(ns.SelectionError, match="in the answer 1 times"):
        answer.of("Lisbon", occurrence=1)


def test_a_contrast_is_with_another_answer_at_the_first_token_that_differs(chat: ns.Analyzer) -> None:
    answer = chat.explain_answer(context=DOCUMENTS, question=QUESTION, answer="In Lisbon.", against="In Oslo.")
    tokenizer = byte_tokenizer()
    ours, others = (tokenizer(text)["input_ids"] for text in ("In Lisbon.", "In Oslo."))
    place = next(n for n, (one, other) in enumerate(zip(ours, others, strict=False)) if one != other)
    ids = [*tokenizer(answer.prompt)["input_ids"], *ours[:place]]
    with torch.no_grad():
        logits = chat.model(torch.tensor([ids])).logits[0, -1]
    assert answer.value == pytest.approx(float(logits[ours[place]] - logits[others[place]]), abs=1e-4)
    adds_up(answer.spans(), answer.value)
    assert answer.objective == "contrast" and answer.attrs["against"] == "In Oslo."
    part = chat.explain_answer(context=DOCUMENTS, question=QUESTION, answer="In Lisbon.").of("Lisbon", against="Oslo")
    assert part.value == pytest.approx(answer.value, abs=1e-4)
    with pytest.raises(ns.InputError, match="no token in which they differ"):
        answer.of("In", against="In Lisbon")


def test_a_part_of_a_contrast_is_no_contrast_any_more(chat: ns.Analyzer) -> None:
    options: dict[str, Any] = dict(context=DOCUMENTS, question=QUESTION, answer="In Lisbon.")
    contrast = chat.explain_answer(against="In Oslo.", **options)
    plain, logit = (chat.explain_answer(objective=objective, **options) for objective in ("contrast", "logit"))
    for _ in range(2):  # without the table, and with it
        assert contrast.of("Lisbon").value == pytest.approx(plain.of("Lisbon").value, abs=1e-4)
        assert contrast.of("Lisbon").attrs["against"] == ""
        again = logit.of("Lisbon", against="Oslo").of("Lisbon")
        assert again.objective == "logit" and again.value == pytest.approx(logit.of("Lisbon").value, abs=1e-4)
        _ = contrast.table, logit.table


def test_credit_goes_on_through_the_generated_text_and_stays_the_same(answer: Answer) -> None:
    through = answer.through_reasoning()
    assert float(through.attribution.sum()) == pytest.approx(float(answer.attribution.sum()), abs=1e-4)
    written = through.dataset["token_output"].values >= 0
    assert np.abs(through.attribution.values[written]).max() < 1e-6
    assert answer.through_reasoning(0).attribution.equals(answer.attribution)
    assert through.attrs["hops"] == "all" and answer.through_reasoning(2).attrs["hops"] == "2"
    adds_up(through.spans(), answer.value)


# ---- generation ----------------------------------------------------------------------------------------------------------


def test_the_answer_is_what_the_model_finds_most_probable_token_by_token(chat: ns.Analyzer) -> None:
    seen: list[str] = []
    found = chat.explain_answer(context=DOCUMENTS, question=QUESTION, max_new_tokens=5, on_text=seen.append)
    ids, said = list(byte_tokenizer()(found.prompt)["input_ids"]), list[int]()
    for _ in range(5):
        with torch.no_grad():
            said.append(int(chat.model(torch.tensor([[*ids, *said]])).logits[0, -1].argmax()))
    assert found.output_tokens == byte_tokenizer().convert_ids_to_tokens(said)
    assert len(seen) == 5 and found.text == seen[-1].strip() and not found.attrs["finished"]


def test_a_seed_samples_by_the_models_own_settings_and_leaves_the_random_numbers_alone() -> None:
    model = chat_model()
    model.generation_config.do_sample, model.generation_config.temperature = True, 3.0
    sampled = ns.load(model, byte_tokenizer())
    options: dict[str, Any] = dict(context=DOCUMENTS, question=QUESTION, max_new_tokens=8)
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    one, again, other = (sampled.explain_answer(seed=seed, **options) for seed in (3, 3, 4))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert one.output_tokens == again.output_tokens != other.output_tokens
    assert one.output_tokens != sampled.explain_answer(**options).output_tokens


def test_tokens_that_a_tokenizer_would_split_otherwise_stay_as_they_were_generated(chat: ns.Analyzer) -> None:
    tokenizer = byte_tokenizer()
    letters = [tokenizer.convert_tokens_to_ids(letter) for letter in "Lisbon"]
    assert letters != tokenizer("Lisbon")["input_ids"]
    found = chat.explain_answer(context=DOCUMENTS, question=QUESTION, answer=letters)
    assert found.text == "Lisbon" and found.output_tokens == list("Lisbon")
    assert found.of("b").output_tokens == list("Lisbon") and found.of("b").explained == "b"


def test_characters_of_several_tokens_are_found(chat: ns.Analyzer) -> None:
    found = chat.explain_answer(context="Die Grüße 今天 😀. Ende.", question="Was?", answer="Grüße 😀!")
    assert found.text == "Grüße 😀!" and found.of("😀").explained == "😀"
    assert found.output_tokens[-5:] == ["ð", "Ł", "ĺ", "Ģ", "!"]  # its four bytes
    assert found.of("😀").value == pytest.approx(found.of(slice(-5, -1)).value)
    assert {span.text for span in found.words()} >= {"Grüße", "今", "天"}
    adds_up(found.spans("token"), found.value)


def test_without_a_chat_template_the_answer_ends_with_its_line() -> None:
    plain = chat_analyzer(None)
    with torch.no_grad():  # after any token, a new line is by far the most probable
        tokenizer = byte_tokenizer(None)
        line = tokenizer.convert_tokens_to_ids("\u010a")
        word = tokenizer.convert_tokens_to_ids("a")
        plain.model.lm_head.weight.copy_(torch.zeros_like(plain.model.lm_head.weight))
        plain.model.lm_head.weight[[line, word]] = plain.model.transformer.ln_f.bias * 5
        plain.model.lm_head.weight[word] *= 1.1
    found = plain.explain_answer(context=DOCUMENTS, question=QUESTION, max_new_tokens=3)
    assert found.text == "aaa" and found.prompt.endswith("Answer:")
    with torch.no_grad():
        plain.model.lm_head.weight[line] *= 2
    with pytest.raises(ns.InputError, match="empty"):
        plain.explain_answer(context=DOCUMENTS, question=QUESTION, max_new_tokens=3)


def test_an_encoder_decoder_answers_from_its_encoder() -> None:
    tokenizer = byte_tokenizer(None)
    sizes = {**BART, "vocab_size": 330, "max_position_embeddings": 300}
    model = ns.load(tiny("bart", AutoModelForSeq2SeqLM, **sizes).eval(), tokenizer)
    found = model.explain_answer(context=DOCUMENTS, question=QUESTION, answer="Lisbon")
    adds_up(found.spans(), found.value)
    assert (
        found.completeness < 1e-4
        and np.abs(found.attribution.values[: len(tokenizer(found.prompt)["input_ids"])]).max() > 0
    )


# ---- files ---------------------------------------------------------------------------------------------------------------


def test_a_saved_answer_comes_back_with_all_that_was_computed(answer: Answer, tmp_path: Path) -> None:
    _ = answer.table
    opened = ns.open(answer.save(tmp_path / "answer.nc"))
    assert isinstance(opened, Answer) and opened.text == answer.text
    assert opened.spans().rows() == answer.spans().rows()
    assert opened.table.equals(answer.table)
    assert opened.of(0).value == answer.of(0).value
    assert opened.through_reasoning().spans().rows() == answer.through_reasoning().spans().rows()


def test_a_file_without_the_table_says_how_to_get_it(chat: ns.Analyzer, tmp_path: Path) -> None:
    found = chat.explain_answer(context=DOCUMENTS, question=QUESTION, answer="Lisbon")
    opened = ns.open(found.save(tmp_path / "answer.nc"))
    with pytest.raises(ns.SelectionError, match="table=True"):
        _ = opened.table
    with pytest.raises(ns.SelectionError, match="not in this file"):
        opened.of("Lisbon", against="Oslo")


def test_tables_json_and_pictures(answer: Answer, tmp_path: Path) -> None:
    rows = answer.save(tmp_path / "spans.csv").read_text().splitlines()
    assert len(rows) == 1 + len(answer.spans()) + len(answer.spans().left_out)
    assert answer.save(tmp_path / "words.parquet", unit="word").stat().st_size
    document = json.loads(answer.save(tmp_path / "answer.json").read_text())
    assert document["text"].endswith(document["answer"]) or document["answer"] in document["text"]
    assert sum(document["tokens"]["share"]) + document["bias"] == pytest.approx(document["value"], abs=1e-4)
    shares = [span["share"] for span in (*document["spans"], *document["left_out"])]
    assert sum(shares) == pytest.approx(document["value"], abs=1e-4)
    assert answer.save(tmp_path / "answer.png").stat().st_size > 1000
    assert float(answer.to_pandas()["share"].sum()) == pytest.approx(answer.value, abs=1e-4)
    with pytest.raises(ns.FileError, match="Known endings"):
        answer.save(tmp_path / "answer.xyz")


def test_an_answer_shows_itself(answer: Answer, capsys: pytest.CaptureFixture[str]) -> None:
    answer.show(count=1)
    shown = capsys.readouterr().out
    assert "3 more" in shown and "question" in shown and "sum of all" in shown and "max_new_tokens" in shown
    answer.spans("document").show()
    assert "document 1" in capsys.readouterr().out
    assert "conservation error" in repr(answer) and "left out" in repr(answer.spans())
    assert answer.top(2) == answer.spans()[:2]


# ---- what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Give a context and a question"),
        ({"context": "One.", "messages": [{"role": "user", "content": "Hi"}]}, "take the place"),
        ({"context": " ", "question": "Q"}, "is empty"),
        ({"context": "One.", "question": "Q", "answer": " "}, "The answer is empty"),
        ({"context": "One.", "question": "Q", "answer": []}, "token ids"),
        ({"context": "One.", "question": "Q", "objective": "logit", "against": "Two."}, "is a contrast, not 'logit'"),
        ({"context": "One.", "question": "Q", "max_new_tokens": 0}, "at least one token"),
        ({"context": {"notes": "word " * 900}, "question": "Q"}, "takes at most 600.*the notes with"),
        ({"context": "One.", "question": "Q", "answer": "word " * 900}, "takes at most 600"),
    ],
)
def test_what_cannot_be_answered_is_refused(chat: ns.Analyzer, options: Any, message: str) -> None:
    with pytest.raises(ns.InputError, match=message):
        chat.explain_answer(**options)


def test_an_answer_of_other_characters_is_refused() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.normalizer = __import__("tokenizers").normalizers.Lowercase()
    lower = ns.load(chat_model(), tokenizer)
    with pytest.raises(ns.InputError, match="reads the answer 'Lisbon' as 'lisbon'"):
        lower.explain_answer(context="One.", question="Q", answer="Lisbon")


def test_models_that_put_out_no_text_are_refused(analyzer: ns.Analyzer) -> None:
    masked = ns.load(BertForMaskedLM(BertConfig(vocab_size=30522, num_hidden_layers=1)), analyzer.tokenizer)
    with pytest.raises(ns.ModelError, match="puts out no text"):
        masked.explain_answer(context="One.", question="Q")
    with pytest.raises(ns.ModelError, match="head"):
        analyzer.explain_answer(context="One.", question="Q")


@pytest.mark.usefixtures("unchecked_types")
def test_units_rankings_and_objectives_that_do_not_exist_are_refused(chat: ns.Analyzer, answer: Answer) -> None:
    with pytest.raises(ns.InputError, match="is one of alternatives, contrast, centred, logit"):
        chat.explain_answer(context="One.", question="Q", objective="gradient")  # type: ignore[arg-type]
    with pytest.raises(ns.InputError, match="one of token, word"):
        answer.spans("chapter")  # type: ignore[arg-type]
    with pytest.raises(ns.InputError, match="sum, mean, positive"):
        answer.spans(rank="max")  # type: ignore[arg-type]


# ---- tokens and spans ----------------------------------------------------------------------------------------------------


def test_a_token_is_counted_with_the_span_that_most_of_its_characters_are_in() -> None:
    text = "One.\n\nTwo three"
    tokens = [(0, 3), (3, 6), (4, 6), (6, 9), (9, 15), (0, 0)]
    assert span_of_tokens(text, tokens, [(6, 15), (0, 4)]).tolist() == [1, 1, -1, 0, 0, -1]


def test_the_template_is_what_is_left(chat: ns.Analyzer) -> None:
    found = chat.explain_answer(context="One.", question="Two?", answer="Three")
    left = {span.text: span.tokens for span in found.spans().left_out}
    around = TEMPLATE.count("<|")
    assert left["template"] >= around - 1 and left["question"] >= 1
