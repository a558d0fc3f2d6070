"""Pages of answers in a real browser: colours, what a word came from, what a sentence fed, the ranking, hostile texts."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import Shown
from explorer_axe import AXE, faults
from explorer_server import Running, follow
from support.chat_model import byte_tokenizer, chat_analyzer
from support.tiny_architectures import BART, tiny
from transformers import AutoModelForSeq2SeqLM

import normscope as ns
from normscope.errors import InputError
from normscope.explorer import answer_payload, page_html
from normscope.explorer.payload import build_payload
from normscope.results.answer import Answer

DOCUMENTS = {
    "notes.txt": "Marta lives in Lisbon \N{PARTY POPPER}. Tomas works as a surgeon.\n\nThe cat sat on the mat.",
    "more.md": "Noor was born in Oslo. The dog ran.",
}
QUESTION = "Where does Marta live?"
ANSWER = "Marta lives in \N{PARTY POPPER} Lisbon."
HOSTILE = "</script><img src=x onerror='window.hacked=1'> <script>window.hacked = 1</script> <!--"
SCREENS = {"phone": (390, 844), "laptop": (1280, 800), "wide": (2560, 1300)}
ITEMS, WORDS = ".context .piece", ".reply-text .piece"
SENTENCES = f".source:not(.question) {ITEMS.split()[1]}"


@pytest.fixture(scope="module")
def chat() -> ns.Analyzer:
    return chat_analyzer()


@pytest.fixture(scope="module")
def answer(chat: ns.Analyzer) -> Answer:
    return chat.explain_answer(context=DOCUMENTS, question=QUESTION, answer=ANSWER)


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Shown]]:
    contexts: list[Any] = []

    def opened(answer: Answer, fragment: str = "", unit: str = "sentence", **options: Any) -> Shown:
        path = answer.save(tmp_path / "answer.html", unit=unit)
        options = {"viewport": {"width": 1280, "height": 800}, "accept_downloads": True, "offline": True, **options}
        contexts.append(browser.new_context(**options))
        shown = Shown(contexts[-1].new_page())
        shown.page.goto(f"{path.as_uri()}#{fragment}")
        shown.page.locator(".piece").first.wait_for(state="attached")
        shown.settle()
        return shown

    yield opened
    for context in contexts:
        context.close()


def colours(shown: Shown, pieces: str) -> list[tuple[int, ...]]:
    found = shown.page.locator(pieces).evaluate_all(
        "(all) => all.map((each) => getComputedStyle(each).backgroundColor)"
    )
    return [tuple(int(part) for part in each.removeprefix("rgb(").removesuffix(")").split(",")) for each in found]


def number(text: str) -> float:
    return float(text.replace("\N{MINUS SIGN}", "-"))


def ranked(shown: Shown) -> list[tuple[str, float]]:
    lines = shown.page.locator(".ranking .bars:not(.left) li")
    names, values = lines.locator(".key > bdi").all_inner_texts(), lines.locator(".value").all_inner_texts()
    return [(name, number(value)) for name, value in zip(names, values, strict=True)]


def left_out(shown: Shown) -> list[float]:
    return [number(text) for text in shown.page.locator(".ranking .left .value").all_inner_texts()]


def total(shown: Shown) -> float:
    return number(shown.page.locator(".ranking .result .value").inner_text())


# ---- what is shown -----------------------------------------------------------------------------------------------------


def test_the_context_is_coloured_by_signed_shares(open_page: Callable[..., Shown], answer: Answer) -> None:
    shown = open_page(answer)
    spans = answer.spans().in_text_order()
    assert shown.page.locator(SENTENCES).all_inner_texts() == [span.text for span in spans]
    painted = colours(shown, SENTENCES)
    size = max(abs(span.share) for span in spans)
    assert any(span.share < -0.05 * size for span in spans) and any(span.share > 0.05 * size for span in spans)
    for span, (red, _, blue) in zip(spans, painted, strict=True):
        if abs(span.share) > 0.05 * size:
            assert (red > blue) == (span.share > 0), span
    assert shown.page.locator(".source summary h2").all_inner_texts() == [*DOCUMENTS, "question"]
    assert shown.page.locator(".reply-text").inner_text() == ANSWER
    assert shown.requests == [shown.requests[0]] and shown.trouble == []


def test_the_ranking_adds_up_with_what_was_left_out(open_page: Callable[..., Shown], answer: Answer) -> None:
    shown = open_page(answer)
    lines = ranked(shown)
    assert [name for name, _ in lines] == [span.text for span in answer.spans()]
    assert [value for _, value in lines] == pytest.approx([span.share for span in answer.spans()], abs=6e-4)
    assert sum(value for _, value in lines) + sum(left_out(shown)) == pytest.approx(total(shown), abs=1e-2)
    assert total(shown) == pytest.approx(answer.value, abs=1.5e-3)


def test_a_word_shows_where_it_came_from(open_page: Callable[..., Shown], answer: Answer) -> None:
    shown = open_page(answer)
    before = colours(shown, ITEMS)
    shown.page.locator(WORDS).filter(has_text="Lisbon").hover()
    shown.settle()
    part = answer.of("Lisbon.")
    assert "Lisbon" in shown.page.locator(".ranking h2").inner_text()
    assert dict(ranked(shown)) == pytest.approx({span.text: span.share for span in part.spans()}, abs=6e-4)
    assert total(shown) == pytest.approx(part.value, abs=1.5e-3)
    assert colours(shown, ITEMS) != before
    shown.page.mouse.move(2, 2)
    shown.settle()
    assert colours(shown, ITEMS) == before


def test_a_sentence_shows_what_it_fed(open_page: Callable[..., Shown], answer: Answer) -> None:
    shown = open_page(answer)
    text = "Tomas works as a surgeon."
    shown.page.locator(ITEMS).filter(has_text=text).hover()
    shown.settle()
    words = shown.page.locator(WORDS).all_inner_texts()
    # A token of white space goes with the word before it.
    starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
    parts = [answer.of((start, min(end, len(ANSWER)))) for start, end in pairwise(starts)]
    fed = [next(span.share for span in part.spans() if span.text == text) for part in parts]
    for value, (red, _, blue) in zip(fed, colours(shown, WORDS), strict=True):
        if abs(value) > 0.05 * max(map(abs, fed)):
            assert (red > blue) == (value > 0)
    strongest = words[int(np.argmax(np.abs(fed)))]
    note = shown.page.locator(".reply .hint[role=status]").inner_text()
    assert note.replace("\u2068", "").startswith(f"It fed {strongest}")
    assert shown.page.locator(".ranking li.chosen").count() == 1


def test_credit_is_handed_on_through_the_answer(open_page: Callable[..., Shown], answer: Answer) -> None:
    shown = open_page(answer)
    shown.page.get_by_label("Through the answer").check()
    shown.settle()
    assert "view=reasoning" in shown.fragment()
    expected = {span.text: span.share for span in answer.through_reasoning().spans()}
    assert dict(ranked(shown)) == pytest.approx(expected, abs=6e-4)
    assert total(shown) == pytest.approx(answer.value, abs=1.5e-3)


def test_keys_reach_words_and_sentences(open_page: Callable[..., Shown], answer: Answer) -> None:
    shown = open_page(answer)
    shown.press("]")
    shown.press("]")
    assert shown.fragment() == "word=1"
    shown.press("Escape")
    assert shown.fragment() == ""
    shown.page.locator(ITEMS).first.focus()
    shown.press("ArrowRight")
    shown.press("Enter")
    assert shown.fragment() == "item=1"
    assert shown.page.locator(".piece[aria-pressed=true]").inner_text() == "Tomas works as a surgeon."
    shown.page.locator(".source summary").first.click()
    assert not shown.page.locator(ITEMS).first.is_visible()
    shown.page.locator(".ranking button.key").filter(has_text="The cat sat").click()
    shown.settle()
    assert shown.page.locator(ITEMS).first.is_visible() and shown.fragment() == "item=2"


def test_data_and_pictures_are_exported(open_page: Callable[..., Shown], answer: Answer) -> None:
    shown = open_page(answer)
    rows = list(csv.DictReader(io.StringIO(shown.export("csv").decode())))
    whole = [float(row["share"]) for row in rows if row["word"] == ""]
    assert sum(whole) == pytest.approx(answer.value, abs=1e-3)
    content = json.loads(shown.export("json"))
    assert np.sum(content["rows"], axis=0) == pytest.approx(content["shares"], abs=1e-3)
    assert ElementTree.fromstring(shown.export("svg")).tag.endswith("svg")


def test_hostile_texts_stay_text(open_page: Callable[..., Shown], chat: ns.Analyzer) -> None:
    hostile = chat.explain_answer(context={HOSTILE: HOSTILE}, question=HOSTILE, answer=HOSTILE)
    shown = open_page(hostile)
    assert "<script>window.hacked" in shown.page.locator(".source-text").first.inner_text()
    for piece in shown.page.locator(".piece").all():
        piece.hover()
        shown.settle()
    assert shown.page.evaluate("() => window.hacked") is None
    assert shown.page.locator("img").count() == 0 and shown.trouble == []


@pytest.mark.parametrize("name", SCREENS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_its_screen(
    open_page: Callable[..., Shown], answer: Answer, name: str, scheme: str
) -> None:
    width, height = SCREENS[name]
    shown = open_page(answer, viewport={"width": width, "height": height}, color_scheme=scheme)
    assert shown.page.evaluate("() => document.documentElement.scrollWidth") <= width
    assert shown.page.locator("[data-theme]").get_attribute("data-theme") == scheme
    reply, context = (shown.page.locator(each).bounding_box() for each in (".reply", ".context"))
    assert reply and context and (reply["y"] < context["y"] if name == "phone" else reply["x"] > context["x"])


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: run npm ci in front-end")
def test_the_page_has_no_serious_fault(open_page: Callable[..., Shown], answer: Answer) -> None:
    shown = open_page(answer, bypass_csp=True)
    shown.page.evaluate(AXE.read_text(encoding="utf-8"))
    for fragment in ("", "theme=dark", "theme=dark&word=1", "item=1"):
        shown.go(fragment)
        assert faults(shown.page) == [], fragment


def test_a_long_context_shows_the_largest_and_adds_the_others(
    open_page: Callable[..., Shown], chat: ns.Analyzer
) -> None:
    documents = {f"document {number}": "The cat sat. The dog ran. Noor was born." for number in range(12)}
    long = chat.explain_answer(context=documents, question=QUESTION, answer="Lisbon")
    shown = open_page(long)
    assert (
        shown.page.locator("details.source").count() == 13 and shown.page.locator("details.source[open]").count() == 8
    )
    lines = ranked(shown)
    assert len(lines) == 13 and lines[-1][0] == "24 others"
    assert sum(value for _, value in lines) + sum(left_out(shown)) == pytest.approx(total(shown), abs=2e-2)
    shown.page.get_by_role("button", name="All 36").click()
    assert len(ranked(shown)) == 36


# ---- the payload -------------------------------------------------------------------------------------------------------


def test_every_unit_adds_up(answer: Answer) -> None:
    for unit in ("token", "word", "line", "sentence", "paragraph", "document"):
        payload = build_payload(answer, unit=unit)["answer"]
        assert [sum(view["total"]) for view in payload["views"]] == pytest.approx([answer.value] * 2, abs=1e-4)
        texts = ["".join(piece["text"] for piece in source["pieces"]) for source in payload["sources"]]
        assert texts == [*DOCUMENTS.values(), QUESTION]
        by_text = {span.text: span.share for span in answer.spans(unit).left_out}
        left = {
            item["text"]: share
            for item, share in zip(payload["items"], payload["views"][0]["total"], strict=True)
            if not item["ranked"]
        }
        assert left == pytest.approx(by_text, abs=1e-6)


def test_a_part_and_a_contrast_say_what_is_explained(answer: Answer) -> None:
    part = build_payload(answer.of("Lisbon."))["answer"]
    assert part["explained"] == "Lisbon." and part["missing"] == ""
    assert [piece["text"] for piece in part["answer"] if piece.get("explained")] == ["Lisbon."]
    contrast = build_payload(answer.of("Lisbon", against="Oslo"))["answer"]
    assert contrast["views"][0]["rows"] is None and "contrast" in contrast["missing"]


def test_hops_and_chats_and_encoders_have_pages(chat: ns.Analyzer, answer: Answer) -> None:
    hops = build_payload(answer.through_reasoning(1))["answer"]
    assert [view["name"] for view in hops["views"]] == ["reasoning"]
    turns = chat.explain_answer(
        messages=[{"role": "user", "content": "Hello there."}, {"role": "assistant", "content": "I see."}]
    )
    assert [source["kind"] for source in build_payload(turns)["answer"]["sources"]] == ["turn"]
    model = tiny("bart", AutoModelForSeq2SeqLM, **{**BART, "vocab_size": 330, "max_position_embeddings": 300}).eval()
    both = ns.load(model, byte_tokenizer(None)).explain_answer(context="The cat sat.", question="Who?", answer="a cat")
    content = build_payload(both)["answer"]
    assert sum(content["views"][0]["total"]) == pytest.approx(both.value, abs=1e-4)


def test_a_long_answer_has_no_rows_unless_they_were_computed(
    chat: ns.Analyzer, open_page: Callable[..., Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_payload, "MOST_OUTPUTS", 3)
    long = chat.explain_answer(context=DOCUMENTS, question=QUESTION, answer=ANSWER)
    shown = open_page(long)
    assert "A long text" in shown.page.locator(".reply .hint[role=status]").inner_text()
    shown.page.locator(WORDS).first.hover()
    shown.settle()
    assert total(shown) == pytest.approx(long.value, abs=1.5e-3) and shown.trouble == []
    assert long.table.shape[0] > 3
    assert build_payload(long)["answer"]["views"][0]["rows"] is not None


def test_a_long_text_is_not_explained_again_for_its_page(chat: ns.Analyzer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_payload, "MOST_TOKENS", 20)
    long = chat.explain_answer(context=DOCUMENTS, question=QUESTION, answer=ANSWER)
    assert "A long text" in build_payload(long)["answer"]["missing"]
    assert "table" not in long.tree.to_dataset()


def test_many_shares_are_packed_and_too_many_are_left_out(
    chat: ns.Analyzer, answer: Answer, open_page: Callable[..., Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_payload, "MOST_FULL", 3)
    assert build_payload(answer)["answer"]["views"][0]["rows"]["bits"] == 16
    shown = open_page(answer)
    word = answer.of("Lisbon.")
    shown.page.locator(WORDS).last.hover()
    shown.settle()
    assert total(shown) == pytest.approx(word.value, abs=2e-3) and shown.trouble == []
    monkeypatch.setattr(answer_payload, "MOST_SHARES", 10)
    shown = open_page(answer, unit="word")
    assert "too many words" in shown.page.locator(".reply .hint[role=status]").inner_text()
    assert shown.trouble == []


def test_a_file_without_its_table_has_a_page(chat: ns.Analyzer, tmp_path: Path) -> None:
    answer = chat.explain_answer(context=DOCUMENTS, question=QUESTION, answer=ANSWER)
    opened = ns.open(answer.save(tmp_path / "answer.nc"))
    assert isinstance(opened, Answer)
    assert "without its table" in build_payload(opened)["answer"]["missing"]


def test_a_page_has_one_answer(answer: Answer) -> None:
    with pytest.raises(InputError, match="one answer"):
        page_html(answer, answer)


def test_the_widget_has_the_same(answer: Answer) -> None:
    pytest.importorskip("anywidget")
    assert json.loads(answer.explore().payload)["answer"]["words"] == 5


# ---- the web app -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asked_server(chat: ns.Analyzer) -> Iterator[Running]:
    from normscope.explorer.server import Limits, WebApp  # noqa: PLC0415  (after the root conftest's import hook)

    running = Running(WebApp({"mini": ns.load(), "chat": chat}, Limits(tokens=400, characters=2_000)).starlette())
    yield running
    running.stop()


CONTEXT = "Marta lives in Lisbon.\n---\nNoor was born in Oslo. The dog ran."


def test_a_question_about_documents_is_answered_by_the_server(asked_server: Running, chat: ns.Analyzer) -> None:
    asked = {"context": CONTEXT, "question": QUESTION, "model": "chat"}
    with asked_server.client() as client:
        found: list[dict[str, Any]] = []
        for given in ({"given": "In Oslo."}, {}):
            job = client.post("/api/jobs", json={"answer": asked | given}).json()["id"]
            assert follow(client, job)[-1]["stage"] == "done"
            found.append(client.get(f"/api/jobs/{job}/result").json()["answer"])
    documents = [part.strip() for part in CONTEXT.split("---")]
    own = chat.explain_answer(context=documents, question=QUESTION, answer="In Oslo.")
    assert found[0]["value"] == pytest.approx(own.value, abs=1e-4)
    assert [source["name"] for source in found[0]["sources"]] == ["document 1", "document 2", "question"]
    said = chat.explain_answer(context=documents, question=QUESTION, max_new_tokens=100)
    assert found[1]["value"] == pytest.approx(said.value, abs=1e-3)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"context": CONTEXT}, "text is empty"),
        ({"context": " ", "question": QUESTION}, "text is empty"),
        ({"context": "---\n----", "question": QUESTION}, "no text"),
        ({"context": CONTEXT, "question": QUESTION, "given": 3}, "text is empty"),
        ({"context": CONTEXT, "question": QUESTION, "model": "mini"}, "puts out no text"),
        ({"context": CONTEXT, "question": QUESTION, "model": "/etc/passwd"}, "does not have that model"),
        ("text", "puts out no text"),
    ],
)
def test_a_bad_question_gets_a_message(asked_server: Running, content: Any, words: str) -> None:
    if isinstance(content, dict):
        content = {"model": "chat", **content}
    with asked_server.client() as client:
        answer = client.post("/api/jobs", json={"answer": content})
    assert answer.status_code == 422 and words in answer.json()["error"]


def test_the_start_page_has_boxes_for_a_question(browser: Any, asked_server: Running) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    trouble: list[str] = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.goto(asked_server.url)
    page.get_by_role("textbox", name="Context").fill(CONTEXT)
    page.get_by_label("Question", exact=True).fill(QUESTION)
    page.get_by_label("Answer", exact=True).fill("In Oslo.")
    page.get_by_role("button", name="Answer", exact=True).click()
    page.locator(SENTENCES).first.wait_for()
    assert page.locator(SENTENCES).count() == 3 and "question=" in page.evaluate("() => location.hash")
    assert not page.get_by_label("Text to analyse").is_visible()
    page.locator(WORDS).first.click()
    page.wait_for_function("() => location.hash.includes('word=0')")
    page.reload()
    page.locator(f"{WORDS}.chosen").first.wait_for()
    assert page.get_by_role("textbox", name="Context").input_value() == CONTEXT
    page.get_by_role("button", name="Analyse one text").first.click()
    assert page.get_by_label("Text to analyse").is_visible()
    assert trouble == []
    page.close()
