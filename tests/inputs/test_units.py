"""Units of a text: what is a sentence, a line, a paragraph or a word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from normscope.inputs.units import TextUnit, units_of

SENTENCES: dict[str, tuple[str, list[str]]] = {
    "abbreviations": (
        "Dr. Smith met Mr. Jones at 5 p.m. on Jan. 5. They talked, e.g. about the U.S. economy. It cost $3.50. Really?!",
        [
            "Dr. Smith met Mr. Jones at 5 p.m. on Jan. 5.",
            "They talked, e.g. about the U.S. economy.",
            "It cost $3.50.",
            "Really?!",
        ],
    ),
    "initials and versions": (
        "J. K. Rowling wrote it. See Fig. 3. Version 2.0.1 is out.",
        ["J. K. Rowling wrote it.", "See Fig. 3.", "Version 2.0.1 is out."],
    ),
    "quotes": ('He said "Stop." Then he left.', ['He said "Stop."', "Then he left."]),
    "lists": (
        "Items:\n- first item\n- second item. With more.\n1. one\n2. two\n",
        ["Items:", "- first item", "- second item.", "With more.", "1. one", "2. two"],
    ),
    "code": (
        "def f(x):\n    return x.y + 1.5  # see a. b\n\nprint(f(3))",
        ["def f(x):", "return x.y + 1.5  # see a. b", "print(f(3))"],
    ),
    "fenced code": ("```\nfoo. bar\nbaz.\n```\nText. More.", ["```", "foo. bar", "baz.", "```", "Text.", "More."]),
    "Chinese": ("今天天气很好。我们去公园吧。你来吗?", ["今天天气很好。", "我们去公园吧。", "你来吗?"]),
    "Japanese": ("これは文です。これも文です", ["これは文です。", "これも文です"]),
    "Hindi": ("यह एक वाक्य है। यह दूसरा है।", ["यह एक वाक्य है।", "यह दूसरा है।"]),
    "no punctuation": ("no punctuation at all here", ["no punctuation at all here"]),
    "short lines": ("line one\nline two\n\npara two", ["line one", "line two", "para two"]),
    "wrapped prose": (
        "This is a long line of prose that was wrapped in\nLisbon at some column. And it goes on until\nhere.\n\nNew.",
        [
            "This is a long line of prose that was wrapped in\nLisbon at some column.",
            "And it goes on until\nhere.",
            "New.",
        ],
    ),
    "line ends of Windows": ("Title\r\nText one. Text two.\r\n\r\nMore.", ["Title", "Text one.", "Text two.", "More."]),
    "characters beyond the first plane": ("😀 Hi. Ça. 😀 Yes.", ["😀 Hi.", "Ça.", "😀 Yes."]),
    "nothing": (" \n ", []),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_sentences_are_found(name: str) -> None:
    text, expected = SENTENCES[name]
    assert [text[start:end] for start, end in units_of(text, "sentence")] == expected


def test_the_language_decides_what_is_an_abbreviation() -> None:
    text = "Er kam am 3. Mai an. Dann ging er."
    assert [text[start:end] for start, end in units_of(text, "sentence", "de")] == [
        "Er kam am 3. Mai an.",
        "Dann ging er.",
    ]


def test_words_lines_and_paragraphs() -> None:
    text = "One two,\nthree 今天\n \n\nfour"
    found = {unit: [text[start:end] for start, end in units_of(text, unit)] for unit in ("word", "line", "paragraph")}
    assert found["word"] == ["One", "two,", "three", "今", "天", "four"]
    assert found["line"] == ["One two,", "three 今天", "four"]
    assert found["paragraph"] == ["One two,\nthree 今天", "four"]


@given(
    st.text(alphabet=st.characters(codec="utf-8"), max_size=80),
    st.sampled_from(["word", "line", "sentence", "paragraph"]),
)
def test_every_character_is_in_one_unit_unless_it_is_white_space(text: str, unit: TextUnit) -> None:
    spans = units_of(text, unit)
    places = [place for start, end in spans for place in range(start, end)]
    assert places == sorted(set(places))
    assert all(text[start:end] == text[start:end].strip() and start < end for start, end in spans)
    outside = set(range(len(text))) - set(places)
    assert not "".join(text[place] for place in outside).strip()
