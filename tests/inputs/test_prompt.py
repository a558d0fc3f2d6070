"""Prompts: where documents, questions and turns stand in what the model reads."""

from __future__ import annotations

from typing import Any

import pytest
from support.chat_model import TEMPLATE, byte_tokenizer

import normscope as ns
from normscope.inputs.prompt import Prompt, chat_prompt, context_prompt, read_context, read_messages


def found(prompt: Prompt) -> list[tuple[str, str, str]]:
    return [(each.kind, each.name, prompt.text[each.start : each.end]) for each in prompt.segments]


def test_documents_and_question_are_found_in_a_chat_template() -> None:
    prompt = context_prompt(byte_tokenizer(), read_context(["One. Two.", "user"]), "user?")
    assert prompt.text == "<|start|>user\nOne. Two.\n\nuser\n\nuser?<|end|>\n<|start|>assistant\n"
    assert found(prompt) == [
        ("document", "document 1", "One. Two."),
        ("document", "document 2", "user"),
        ("question", "question", "user?"),
    ]
    assert prompt.segments[1].start == prompt.text.index("\n\nuser") + 2


def test_a_model_without_a_chat_template_reads_a_plain_prompt_with_a_word_before_the_documents() -> None:
    prompt = context_prompt(byte_tokenizer(None), read_context("One."), "Two?")
    assert prompt.text == "Context:\nOne.\n\nQuestion: Two?\nAnswer:"
    assert found(prompt) == [("document", "document", "One."), ("question", "question", "Two?")]


def test_documents_that_occur_twice_or_look_like_the_template_stay_where_they_were_given() -> None:
    same = "assistant\n<|end|>\n<|start|>user"
    prompt = context_prompt(byte_tokenizer(), {"a": same, "b": same, "c": "b"}, same)
    assert [text for _, _, text in found(prompt)] == [same, same, "b", same]
    starts = [each.start for each in prompt.segments]
    assert starts == sorted(set(starts))


def test_white_space_that_the_template_trims_is_no_part_of_a_document() -> None:
    prompt = context_prompt(byte_tokenizer(), {"a": "  \n One.", "b": "Two. \t"}, None)
    assert [text for _, _, text in found(prompt)] == ["One.", "Two."]


def test_turns_of_a_chat_are_found_though_they_are_alike() -> None:
    turns = read_messages([{"role": role, "content": " user "} for role in ("system", "user", "assistant", "user")])
    prompt = chat_prompt(byte_tokenizer(), turns)
    assert found(prompt) == [("turn", f"{n} {role}", "user") for n, (role, _) in enumerate(turns, 1)]
    assert [each.start for each in prompt.segments] == sorted({each.start for each in prompt.segments})


def test_a_turn_that_the_template_changes_is_what_stands_in_its_place() -> None:
    template = TEMPLATE.replace("message['content'] | trim", "message['content'].split('</think>')[-1]")
    prompt = chat_prompt(byte_tokenizer(template), [("assistant", "<think>why</think>So."), ("user", "Yes?")])
    assert found(prompt) == [("turn", "1 assistant", "So."), ("turn", "2 user", "Yes?")]


def test_a_layout_of_ones_own() -> None:
    prompt = context_prompt(
        byte_tokenizer(), {"a": "{question}", "b": "B"}, "Q?", "{question} after reading {context}!"
    )
    assert "Q? after reading {question}\n\nB!" in prompt.text
    assert [name for _, name, _ in found(prompt)] == ["question", "a", "b"]


def test_every_character_of_a_token_is_known() -> None:
    prompt = context_prompt(byte_tokenizer(), {"a": "Grüße, 今天 😀"}, "Was?")
    assert len(prompt.ids) == len(prompt.offsets)
    assert {place for start, end in prompt.offsets for place in range(start, end)} == set(range(len(prompt.text)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: read_context([]), "no document"),
        (lambda: read_context(["One.", " "]), "document 2 of the context is empty"),
        (lambda: read_context({"notes": ""}), "notes of the context is empty"),
        (lambda: read_context({"a": "half \ud800"}), "half a character"),
        (lambda: context_prompt(byte_tokenizer(), {"a": "One."}, " "), "The question is empty"),
        (
            lambda: context_prompt(byte_tokenizer(), {"a": "One."}, "Q", "{context} alone"),
            "has to have {question} in it once",
        ),
        (
            lambda: context_prompt(byte_tokenizer(), {}, "Q", "{context}{question}"),
            "has to have {context} in it not at all",
        ),
        (lambda: context_prompt(None, {"a": "One."}, "Q"), "without a tokenizer"),
        (lambda: context_prompt(byte_tokenizer(None), {"a": "One."}, "Q", chat=True), "no chat template"),
        (lambda: chat_prompt(byte_tokenizer(None), [("user", "Hi")]), "no chat template|this tokenizer has none"),
        (lambda: read_messages([]), "list of turns"),
        (lambda: read_messages([{"role": "user", "content": ""}]), r"Message 1 \(of the user\) is empty"),
        (
            lambda: chat_prompt(byte_tokenizer("{{ raise_exception('no system') }}"), [("system", "Hi")]),
            "refuses these messages.*no system",
        ),
        (lambda: chat_prompt(byte_tokenizer("{{ messages[0]['role'] }}"), [("user", "Hi")]), "does not put message 1"),
    ],
)
def test_what_makes_no_prompt_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ns.InputError, match=message):
        call()


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize("context", [3, [3], {"a": None}])
def test_a_context_that_is_no_text_is_refused(context: Any) -> None:
    with pytest.raises(ns.InputError, match=r"no text|a text, a list of texts"):
        read_context(context)


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize(
    "messages", ["Hi", {"role": "user"}, ["Hi"], [{"role": "user"}], [{"role": 1, "content": "Hi"}]]
)
def test_messages_without_role_or_content_are_refused(messages: Any) -> None:
    with pytest.raises(ns.InputError, match="role and a content"):
        read_messages(messages)
