"""Credit handed on through generated text: conserved, and by hand in a model of two known steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.chat_model import two_step_analyzer

import normscope as ns
from normscope.results.reasoning import handed_on

PROMPT, WRITTEN = 4, 5
OUTPUTS = np.array([-1] * PROMPT + list(range(WRITTEN)))


def planted(numbers: list[float]) -> np.ndarray:
    """A table in which every written token is explained by earlier ones alone; missing where they come later."""
    table = np.full((WRITTEN, PROMPT + WRITTEN), np.nan)
    for row in range(WRITTEN):
        table[row, : PROMPT + row] = numbers[row * (PROMPT + WRITTEN) :][: PROMPT + row]
    return table


numbers = st.lists(st.floats(-5, 5), min_size=WRITTEN * (PROMPT + WRITTEN), max_size=WRITTEN * (PROMPT + WRITTEN))
credits = st.lists(st.floats(-5, 5), min_size=PROMPT + WRITTEN, max_size=PROMPT + WRITTEN)


@given(numbers, credits, st.one_of(st.none(), st.integers(0, 8)))
def test_credit_is_conserved(table: list[float], credit: list[float], hops: int | None) -> None:
    given_out = handed_on(np.array(credit), planted(table), OUTPUTS, hops)
    assert given_out.sum() == pytest.approx(np.sum(credit), abs=1e-9)


@given(numbers, credits)
def test_all_hops_are_as_many_as_there_are_written_tokens_and_the_triangular_solve(
    table: list[float], credit: list[float]
) -> None:
    everything = handed_on(np.array(credit), planted(table), OUTPUTS)
    np.testing.assert_allclose(everything, handed_on(np.array(credit), planted(table), OUTPUTS, WRITTEN), atol=1e-9)
    positive = np.maximum(np.nan_to_num(planted(table)), 0)
    sums = positive.sum(-1, keepdims=True)
    if (sums > 0).all():
        shares = positive / sums
        passed = np.array(credit)[PROMPT:] @ np.linalg.inv(np.eye(WRITTEN) - shares[:, PROMPT:])
        np.testing.assert_allclose(
            everything[:PROMPT], np.array(credit)[:PROMPT] + passed @ shares[:, :PROMPT], atol=1e-8
        )
        np.testing.assert_allclose(everything[PROMPT:], 0, atol=1e-12)


@given(numbers, st.lists(credits, min_size=1, max_size=3), st.one_of(st.none(), st.integers(0, 8)))
def test_several_answers_are_handed_on_together_as_each_by_itself(
    table: list[float], credit: list[list[float]], hops: int | None
) -> None:
    together = handed_on(np.array(credit), planted(table), OUTPUTS, hops)
    alone = [handed_on(np.array(each), planted(table), OUTPUTS, hops) for each in credit]
    np.testing.assert_allclose(together, alone, atol=1e-9)


def test_no_hop_changes_nothing_and_one_hop_goes_one_step() -> None:
    table = np.full((2, 3), np.nan)
    table[0, 0], table[1, :2] = 2.0, (-1.0, 3.0)
    outputs = np.array([-1, 0, 1])
    credit = np.array([0.0, 0.0, 1.0])
    assert handed_on(credit, table, outputs, 0).tolist() == [0, 0, 1]
    assert handed_on(credit, table, outputs, 1).tolist() == [0, 1, 0]
    assert handed_on(credit, table, outputs, 2).tolist() == handed_on(credit, table, outputs).tolist() == [1, 0, 0]


def test_a_token_that_nothing_speaks_for_keeps_its_credit() -> None:
    table = np.array([[-1.0, np.nan, np.nan], [0.0, 1.0, np.nan]])
    credit = np.array([0.0, 0.0, 1.0])
    assert handed_on(credit, table, np.array([-1, 0, 1])).tolist() == [0, 1, 0]


def test_a_table_that_looks_ahead_or_a_negative_number_of_hops_is_refused() -> None:
    with pytest.raises(ns.InputError, match="by a later one"):
        handed_on(np.zeros(2), np.array([[0.0, 1.0]]), np.array([-1, 0]))
    with pytest.raises(ns.InputError, match="not -1 times"):
        handed_on(np.zeros(2), np.array([[1.0, np.nan]]), np.array([-1, 0]), -1)


def test_an_answer_that_copies_a_generated_token_goes_back_to_the_prompt_in_two_steps() -> None:
    answer = two_step_analyzer().explain_answer(
        context="four key five", question="six", layout="{context} {question}", objective="logit", max_new_tokens=2
    )
    assert answer.text == "one two"
    last = answer.of("two")
    direct = {token: float(share) for token, share in zip(last.tokens, last.attribution.values, strict=True)}
    assert direct["one"] == pytest.approx(last.value, rel=1e-5) and abs(direct["key"]) < 1e-5 * last.value
    through = last.through_reasoning()
    handed = {token: float(share) for token, share in zip(through.tokens, through.attribution.values, strict=True)}
    assert handed["key"] == pytest.approx(last.value, rel=1e-5) and abs(handed["one"]) < 1e-5 * last.value
    assert through.words()[0].text == "key"
    assert last.words().left_out[-2].text in ("answer so far", "template")
    assert through.spans().total == pytest.approx(last.value, rel=1e-5)
