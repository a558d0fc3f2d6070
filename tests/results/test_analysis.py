"""Maps, normalisations and ratios of a result, by hand on two tokens and as laws on a real one."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import normscope as ns

WEIGHTS = [[0.75, 0.25], [0.5, 0.5]]
NORMS = [[1.0, 3.0], [4.0, 1.0]]


@pytest.fixture
def by_hand() -> ns.Analysis:
    """Two tokens, one layer, two scopes."""
    dataset = xr.Dataset(
        {
            "map": (("scope", "layer", "query", "key"), np.array([[WEIGHTS], [NORMS]])),
            "mixing_ratio": (("scope", "layer", "query"), np.array([[[0.25, 0.5]], [[0.75, 0.8]]])),
            "completeness": ("layer", [2e-7]),
        },
        {
            "scope": ["AttnW", "Attn"],
            "layer": [4],
            "query": [0, 1],
            "key": [0, 1],
            "key_token": ("key", ["a", "b"]),
        },
        {"model": "by hand"},
    )
    return ns.Analysis(dataset)


@pytest.fixture(scope="module")
def real(analyzer: ns.Analyzer) -> ns.Analysis:
    return analyzer.analyze("The cat sat on the unaffable mat.")


# ---- what there is -----------------------------------------------------------------------------------------------------


def test_a_result_lists_what_it_holds(by_hand: ns.Analysis) -> None:
    assert by_hand.tokens == ["a", "b"]
    assert by_hand.layers == [4]
    assert by_hand.scopes == ["AttnW", "Attn", "AttnResW"]
    assert by_hand.attrs == {"model": "by hand"}


def test_its_representation_says_how_large_and_how_right_it_is(by_hand: ns.Analysis) -> None:
    assert repr(by_hand) == (
        "Analysis(2 tokens, 1 layers, model='by hand', completeness error 2.0e-07)\nscopes: AttnW, Attn, AttnResW"
    )


def test_changing_the_attributes_it_gives_out_changes_nothing(by_hand: ns.Analysis) -> None:
    by_hand.attrs["model"] = "another"
    assert by_hand.attrs["model"] == "by hand"


def test_the_half_identity_exists_only_with_the_weights(by_hand: ns.Analysis) -> None:
    without = ns.Analysis(by_hand.dataset.sel(scope=["Attn"]))
    assert without.scopes == ["Attn"]
    with pytest.raises(ns.ScopeError, match=r"no scope 'AttnResW' here\..* Available scopes: Attn"):
        without.map("AttnResW")


def test_a_model_without_encoder_has_no_encoder_result(by_hand: ns.Analysis) -> None:
    assert not by_hand.has_encoder
    with pytest.raises(ns.SelectionError, match="no encoder here"):
        _ = by_hand.encoder


# ---- maps --------------------------------------------------------------------------------------------------------------


def test_a_map_is_found_under_the_names_of_the_papers_too(by_hand: ns.Analysis) -> None:
    for name in ("Attn", "attn", "ATTN-N"):
        np.testing.assert_array_equal(by_hand.map(name).sel(layer=4), NORMS)
    np.testing.assert_array_equal(by_hand.map("Attn-W").sel(layer=4), WEIGHTS)


def test_an_unknown_scope_is_refused_with_those_that_exist(by_hand: ns.Analysis) -> None:
    for ask in (by_hand.map, by_hand.mixing_ratio, by_hand.normalised):
        with pytest.raises(ns.ScopeError, match=r"no scope 'AttnRes' here\..* Available scopes: AttnW, Attn, AttnResW"):
            ask("AttnRes")


def test_the_half_identity_is_half_of_the_weights_and_half_of_the_token_itself(by_hand: ns.Analysis) -> None:
    found = by_hand.map("AttnResW")
    assert found.dims == ("layer", "query", "key")
    np.testing.assert_array_equal(found.sel(layer=4), [[0.875, 0.125], [0.25, 0.75]])


# ---- normalisation -----------------------------------------------------------------------------------------------------


def test_rows_and_columns_are_normalised_by_hand(by_hand: ns.Analysis) -> None:
    np.testing.assert_allclose(by_hand.normalised("Attn", "row").sel(layer=4), [[0.25, 0.75], [0.8, 0.2]])
    np.testing.assert_allclose(by_hand.normalised("Attn", "column").sel(layer=4), [[0.2, 0.75], [0.8, 0.25]])
    np.testing.assert_array_equal(by_hand.normalised("Attn", "none").sel(layer=4), NORMS)


def test_rows_are_normalised_unless_otherwise_asked(by_hand: ns.Analysis) -> None:
    assert by_hand.normalised("Attn").equals(by_hand.normalised("Attn", "row"))


def test_normalised_rows_sum_to_one_at_every_scope(real: ns.Analysis) -> None:
    for scope in real.scopes:
        rows = real.normalised(scope)
        assert rows.dims == ("layer", "query", "key")
        np.testing.assert_allclose(rows.sum("key"), 1, rtol=1e-5)


def test_normalised_columns_sum_to_one_at_every_scope(real: ns.Analysis) -> None:
    for scope in real.scopes:
        columns = real.normalised(scope, "column")
        assert columns.dims == ("layer", "query", "key")
        np.testing.assert_allclose(columns.sum("query"), 1, rtol=1e-5)


def test_keys_that_do_not_exist_stay_missing_and_do_not_count(by_hand: ns.Analysis) -> None:
    missing = by_hand.dataset.copy(deep=True)
    missing["map"][:, :, 0, 1] = np.nan
    found = ns.Analysis(missing)
    np.testing.assert_allclose(found.normalised("Attn").sel(layer=4), [[1, np.nan], [0.8, 0.2]])
    np.testing.assert_allclose(found.normalised("Attn", "column").sel(layer=4), [[0.2, np.nan], [0.8, 1]])


@pytest.mark.usefixtures("unchecked_types")
def test_an_unknown_axis_is_refused(by_hand: ns.Analysis) -> None:
    with pytest.raises(ns.InputError):
        by_hand.normalised("Attn", "rows")  # pyright: ignore[reportArgumentType]


# ---- amplification -----------------------------------------------------------------------------------------------------


def test_amplification_is_the_difference_of_normalised_maps(by_hand: ns.Analysis) -> None:
    found = by_hand.amplification("AttnW", "Attn", axis="row")
    np.testing.assert_allclose(found.sel(layer=4), [[-0.5, 0.5], [0.3, -0.3]])
    assert found.name == "Attn - AttnW"
    columns = by_hand.amplification("AttnW", "Attn").sel(layer=4)
    np.testing.assert_allclose(columns, [[0.2 - 0.6, 0.75 - 1 / 3], [0.8 - 0.4, 0.25 - 2 / 3]])


def test_columns_of_an_amplification_sum_to_zero(real: ns.Analysis) -> None:
    found = real.amplification("AttnResLn", "AttnResLnFf")
    assert found.dims == ("layer", "query", "key")
    np.testing.assert_allclose(found.sum("query"), 0, atol=1e-5)
    assert float(np.abs(found).max()) > 1e-3


def test_amplification_between_a_scope_and_itself_is_nothing(real: ns.Analysis) -> None:
    assert bool((real.amplification("AttnRes", "AttnRes") == 0).all())


# ---- mixing ratios -----------------------------------------------------------------------------------------------------


def test_a_mixing_ratio_is_read_by_scope_and_layer(by_hand: ns.Analysis) -> None:
    assert by_hand.mixing_ratio("Attn").sel(layer=4).values.tolist() == [0.75, 0.8]


def test_the_mixing_ratio_of_the_half_identity_is_half_of_that_of_the_weights(by_hand: ns.Analysis) -> None:
    found = by_hand.mixing_ratio("AttnResW").sel(layer=4)
    assert found.values.tolist() == [0.125, 0.25]
    own = np.diag(by_hand.map("AttnResW").sel(layer=4).values)
    np.testing.assert_allclose(found, 1 - own)


def test_the_mixing_ratio_of_the_weights_is_what_is_not_on_the_diagonal(real: ns.Analysis) -> None:
    own = np.diagonal(real.map("AttnW").values, axis1=1, axis2=2)
    np.testing.assert_allclose(real.mixing_ratio("AttnW"), 1 - own, rtol=1e-5, atol=1e-6)


def test_shares_of_own_and_other_tokens_sum_to_one(real: ns.Analysis) -> None:
    for scope in real.scopes:
        shares = real.mixing_shares(scope)
        assert shares["share"].values.tolist() == ["own", "others", "source"]
        np.testing.assert_allclose(shares.sum("share"), 1, rtol=1e-6)
        np.testing.assert_array_equal(shares.sel(share="others"), real.mixing_ratio(scope))
        assert bool((shares.sel(share="source") == 0).all())
