"""From tokens to words, on datasets made and computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

import normscope as ns

NAN = np.nan

TOKENS = ["[CLS]", "un", "##do", "it", "[SEP]"]
WORDS = [-1, 0, 0, 1, -1]
TEXTS = ["[CLS]", "undo", "undo", "it", "[SEP]"]
SPECIAL = [True, False, False, False, True]

MAP = [
    [1, 2, 3, 4, 5],
    [6, 7, 8, 9, 10],
    [11, 12, 13, 14, 15],
    [16, 17, 18, 19, 20],
    [21, 22, 23, 24, 25],
]
CAUSAL_MAP = [
    [1, NAN, NAN, NAN, NAN],
    [6, 7, NAN, NAN, NAN],
    [11, 12, 13, NAN, NAN],
    [16, 17, 18, 19, NAN],
    [21, 22, 23, 24, 25],
]
RATIOS = [0.1, 0.2, 0.4, 0.5, 0.6]


def tokens_along(dimension: str, places: list[int], groups: list[str] | None = None) -> dict[str, Any]:
    """The coordinates of some of the tokens."""

    def along(values: list[Any]) -> tuple[str, list[Any]]:
        return dimension, [values[place] for place in places]

    found: dict[str, Any] = {
        dimension: places,
        f"{dimension}_token": along(TOKENS),
        f"{dimension}_word": along(WORDS),
        f"{dimension}_word_text": along(TEXTS),
        f"{dimension}_special": along(SPECIAL),
    }
    return found | ({"key_group": along(groups or ["self"] * len(TOKENS))} if dimension == "key" else {})


def analysis(values: list[Any] = MAP, queries: list[int] | None = None, groups: list[str] | None = None) -> ns.Analysis:
    """One scope and one layer of a result, with a head whose map is twice the whole."""
    rows = list(range(len(TOKENS))) if queries is None else queries
    array = np.array(values, dtype=float)[rows]
    dataset = xr.Dataset(
        {
            "map": (("scope", "layer", "query", "key"), array[None, None]),
            "head_map": (("head_scope", "layer", "head", "query", "key"), 2 * array[None, None, None]),
            "mixing_ratio": (("scope", "layer", "query"), np.array(RATIOS)[rows][None, None]),
            "completeness": ("layer", [1e-7]),
        },
        {
            "scope": ["Attn"],
            "head_scope": ["Attn"],
            "layer": [1],
            "head": [1],
            **tokens_along("query", rows),
            **tokens_along("key", list(range(len(TOKENS))), groups),
        },
        {"model": "by hand"},
    )
    return ns.Analysis(dataset)


def only_map(found: ns.Analysis, **options: Any) -> np.ndarray:
    return found.map("Attn", **options).sel(layer=1).values


# ---- words -------------------------------------------------------------------------------------------------------------


def test_key_tokens_of_a_word_are_summed_and_query_tokens_averaged() -> None:
    expected = [[1, 5, 4, 5], [8.5, 20, 11.5, 12.5], [16, 35, 19, 20], [21, 45, 24, 25]]
    np.testing.assert_allclose(only_map(analysis().words()), expected)


@pytest.mark.parametrize(
    ("keys", "queries", "row_of_undo"),
    [
        ("sum", "sum", [17, 40, 23, 25]),
        ("sum", "max", [11, 25, 14, 15]),
        ("mean", "mean", [8.5, 10, 11.5, 12.5]),
        ("mean", "sum", [17, 20, 23, 25]),
        ("max", "mean", [8.5, 10.5, 11.5, 12.5]),
        ("max", "max", [11, 13, 14, 15]),
    ],
)
def test_words_are_combined_as_asked(keys: Any, queries: Any, row_of_undo: list[float]) -> None:
    np.testing.assert_allclose(only_map(analysis().words(keys=keys, queries=queries))[1], row_of_undo)


def test_maps_of_heads_are_combined_like_the_map() -> None:
    words = analysis().words()
    np.testing.assert_allclose(only_map(words, heads=True), 2 * only_map(words)[None])


def test_mixing_ratios_are_averaged_over_the_tokens_of_a_word_whatever_the_maps_do() -> None:
    for queries in ("mean", "sum", "max"):
        ratios = analysis().words(queries=queries).mixing_ratio("Attn").sel(layer=1)
        np.testing.assert_allclose(ratios, [0.1, 0.3, 0.5, 0.6])


def test_what_has_neither_queries_nor_keys_stays_as_it_is() -> None:
    words = analysis().words()
    assert words.completeness.values.tolist() == [1e-7]
    assert words.layers == [1]


def test_words_take_the_names_of_tokens_and_special_tokens_stay_units() -> None:
    dataset = analysis().words().dataset
    for dimension in ("query", "key"):
        assert dataset[f"{dimension}_token"].values.tolist() == ["[CLS]", "undo", "it", "[SEP]"]
        assert dataset[f"{dimension}_special"].values.tolist() == [True, False, False, True]
        assert dataset[f"{dimension}_word"].values.tolist() == [-1, 0, 1, -1]
        assert dataset[dimension].values.tolist() == [0, 1, 3, 4]
    assert dataset.attrs == {"model": "by hand", "unit": "word"}


def test_words_of_words_are_the_words() -> None:
    words = analysis().words()
    assert words.words().dataset.identical(words.dataset)


def test_the_tokens_are_untouched() -> None:
    found = analysis()
    before = found.dataset.copy(deep=True)
    found.words()
    assert found.dataset.identical(before)


def test_keys_that_do_not_exist_for_a_query_do_not_count() -> None:
    expected = [[1, NAN, NAN, NAN], [8.5, 16, NAN, NAN], [16, 35, 19, NAN], [21, 45, 24, 25]]
    np.testing.assert_allclose(only_map(analysis(CAUSAL_MAP).words()), expected)


def test_words_of_selected_queries_combine_only_those() -> None:
    words = analysis(queries=[3, 2]).words()
    np.testing.assert_allclose(only_map(words), [[16, 35, 19, 20], [11, 25, 14, 15]])
    assert words.dataset["query_token"].values.tolist() == ["it", "undo"]


def test_words_of_two_groups_of_keys_stay_apart_though_their_numbers_agree() -> None:
    groups = ["target", "target", "source", "source", "source"]
    words = analysis(groups=groups).words()
    assert words.dataset["key_group"].values.tolist() == ["target", "target", "source", "source", "source"]
    np.testing.assert_allclose(only_map(words)[0], [1, 2, 3, 4, 5])


@pytest.mark.parametrize("options", [{"keys": "median"}, {"queries": "median"}])
@pytest.mark.usefixtures("unchecked_types")
def test_an_unknown_way_to_combine_is_refused(options: Any) -> None:
    with pytest.raises(ns.InputError, match="by 'sum', 'mean' or 'max', not by 'median'"):
        analysis().words(**options)


# ---- special tokens ----------------------------------------------------------------------------------------------------


def test_special_tokens_go_and_values_stay() -> None:
    plain = analysis().without_special_tokens()
    np.testing.assert_array_equal(only_map(plain), [[7, 8, 9], [12, 13, 14], [17, 18, 19]])
    assert plain.mixing_ratio("Attn").sel(layer=1).values.tolist() == RATIOS[1:4]
    assert plain.tokens == ["un", "##do", "it"]
    assert plain.dataset["query"].values.tolist() == [1, 2, 3]


def test_words_and_special_tokens_may_go_in_any_order() -> None:
    found = analysis()
    one, other = found.words().without_special_tokens(), found.without_special_tokens().words()
    np.testing.assert_allclose(only_map(one), [[20, 11.5], [35, 19]])
    assert one.dataset.identical(other.dataset)
