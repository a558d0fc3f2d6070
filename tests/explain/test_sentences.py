"""Explanations by sentences: exact sums over their tokens, special tokens apart; and how a terminal shows them."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import normscope as ns
from normscope.cli.application import application
from normscope.output.explanation_terminal import explanation_view
from normscope.results.sentences import with_sentences

TEXT = "The opera singer caught a soap bubble. It rained all day, e.g. in Lisbon.\nNobody sang!"


@pytest.fixture(scope="module")
def explanation() -> ns.Explanation:
    return ns.load().explain(TEXT, direction="state", at=3)


def _printed(explanation: ns.Explanation, top: int = 15) -> str:
    output = StringIO()
    Console(file=output, width=200, highlight=False).print(explanation_view(explanation, top))
    return output.getvalue()


def test_sentences_are_sums_over_their_tokens(explanation: ns.Explanation) -> None:
    sentences = explanation.sentences()
    assert sentences.tokens == [
        "[CLS]",
        "the opera singer caught a soap bubble .",
        "it rained all day , e . g . in lisbon .",
        "nobody sang !",
        "[SEP]",
    ]
    total = float(explanation.attribution.sum())
    assert float(sentences.attribution.sum()) == pytest.approx(total, abs=1e-5)
    first = explanation.tokens.index(".")
    expected = float(explanation.attribution.values[1 : first + 1].sum())
    assert float(sentences.attribution.values[1]) == pytest.approx(expected, abs=1e-5)
    assert sentences.edges(3).shape == (len(sentences.tokens),) * 2
    assert sentences.attrs["unit"] == "sentence"


def test_a_sink_that_begins_a_sentence_is_not_in_its_name_too(explanation: ns.Explanation) -> None:
    sinks = np.array([place in (0, 1) for place in range(len(explanation.tokens))])
    marked = with_sentences(explanation.dataset.assign_coords(query_sink=("query", sinks)))
    names = list(dict.fromkeys(marked["query_word_text"].values.tolist()))
    assert names[1:3] == ["the", "opera singer caught a soap bubble ."]


def test_the_weaker_tokens_are_summed_in_one_row(explanation: ns.Explanation) -> None:
    text = _printed(explanation, top=4)
    weaker = [line for line in text.splitlines() if "weaker ones" in line]
    assert explanation.sinks == [0]
    others = explanation.attribution.values[1:]
    assert len(weaker) == 1
    assert f"{len(others) - 4} weaker ones" in weaker[0]
    rest = float(others[np.argsort(-np.abs(others))[4:]].sum())
    assert float(weaker[0].split()[-1]) == pytest.approx(rest, abs=2e-4)


def test_the_command_sums_by_sentence() -> None:
    arguments = ["explain", TEXT, "--state", "--at", "singer", "--units", "sentence", "--top", "2"]
    result = CliRunner().invoke(application("explain"), arguments)
    assert result.exit_code == 0, result.output
    assert "the opera singer caught a soap bubble . " in result.output
    assert "weaker ones" in result.output


def test_the_texts_of_a_pair_are_on_lines_of_their_own_and_summed(analyzer: ns.Analyzer) -> None:
    pair = analyzer.explain(("Who sang?", "The opera singer."), direction="state", at=0)
    lines = _printed(pair).splitlines()
    assert "who sang ? [SEP]" in lines[1]
    assert lines[2].startswith("the opera singer")
    segments = pair.attribution["token_segment"].values
    kept = np.ones(len(segments), bool)
    kept[pair.sinks] = False
    for name, text in (("first text", 0), ("second text", 1), ("special tokens", -1)):
        share = float(pair.attribution.values[kept & (segments == text)].sum())
        assert any(name in line and f"{share:+.4f}" in line for line in lines)
