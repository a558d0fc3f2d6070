"""Scope names: how chains make them, and how people may write them."""

from __future__ import annotations

import pytest

from normscope.errors import ScopeError
from normscope.scopes import component_words, described, resolve, resolve_all, scopes_of, weights_scope

POST_NORM = scopes_of(["Attn", "Res", "Ln", "Ff", "Res", "Ln"])
DECODER = scopes_of(["Attn", "Res", "Ln", "Cross", "Res", "Ln", "Ff", "Res", "Ln"])


def test_scopes_are_the_prefixes_of_the_chain_after_the_attention_weights() -> None:
    assert POST_NORM == [
        "AttnW",
        "Attn",
        "AttnRes",
        "AttnResLn",
        "AttnResLnFf",
        "AttnResLnFfRes",
        "AttnResLnFfResLn",
    ]


def test_a_cross_attention_has_its_weights_just_before_it() -> None:
    assert DECODER[4:7] == ["CrossW", "AttnResLnCross", "AttnResLnCrossRes"]


@pytest.mark.parametrize(
    ("scope", "whole", "words"),
    [
        ("AttnW", "", "attention weights"),
        ("AttnResLnFf", "", "attention + residual + norm + feed-forward"),
        (
            "AttnResLnFfRes",
            "",
            "attention + residual + norm + feed-forward + residual",
        ),  # unknown whether a norm follows
        ("AttnResLnFfRes", "AttnResLnFfRes", "whole layer"),
        ("AttnResLnFfRes", "AttnResLnFfResLn", "attention + residual + norm + feed-forward + residual"),
        ("AttnResLnFfResLn", "", "whole layer"),
        ("AttnRes", "AttnRes", "attention + residual"),  # a layer of one component says which
    ],
)
def test_a_scope_in_words_is_the_whole_layer_only_where_that_is_known(scope: str, whole: str, words: str) -> None:
    assert described(scope, whole) == words


def test_numbered_components_have_words_too() -> None:
    assert [component_words(name) for name in ("ATTN", "RES1", "Ln2", "FF")] == [
        *("attention", "residual 1", "norm 2", "feed-forward")
    ]


def test_weights_can_be_left_out() -> None:
    assert scopes_of(["Attn", "Cross"], weights=False) == ["Attn", "AttnCross"]


@pytest.mark.parametrize(("attention", "scope"), [("Attn", "AttnW"), ("Cross", "CrossW")])
def test_an_attention_names_the_scope_of_its_weights(attention: str, scope: str) -> None:
    assert weights_scope(attention) == scope


@pytest.mark.parametrize("scope", DECODER)
def test_every_scope_is_found_by_its_own_name_in_any_case(scope: str) -> None:
    for written in (scope, scope.lower(), scope.upper(), f" {scope} "):
        assert resolve(written, DECODER) == scope


@pytest.mark.parametrize(
    ("alias", "scope"),
    [
        ("Attn-W", "AttnW"),
        ("ATTN-W", "AttnW"),
        ("attn_w", "AttnW"),
        ("Attn-N", "Attn"),
        ("ATTN-N", "Attn"),
        ("AttnRes-N", "AttnRes"),
        ("AttnResLn-N", "AttnResLn"),
        ("AttnResLnFf-N", "AttnResLnFf"),
        ("ATTNRESLNFFRESLN-N", "AttnResLnFfResLn"),
        ("attn-res-ln", "AttnResLn"),
        ("Attn Res Ln", "AttnResLn"),
    ],
)
def test_the_papers_names_are_aliases(alias: str, scope: str) -> None:
    assert resolve(alias, POST_NORM) == scope


@pytest.mark.parametrize(
    ("alias", "scope"),
    [
        ("Cross", "AttnResLnCross"),
        ("cross", "AttnResLnCross"),
        ("CROSS-N", "AttnResLnCross"),
        ("CrossW", "CrossW"),
        ("Cross-W", "CrossW"),
    ],
)
def test_cross_is_short_for_the_cross_attention_alone(alias: str, scope: str) -> None:
    assert resolve(alias, DECODER) == scope


PRE_NORM = scopes_of(["Attn", "Res", "Ln", "Ff", "Res"])
SANDWICH = scopes_of(["Attn", "Ln", "Res", "Ln", "Ff", "Ln", "Res"])
PARALLEL = scopes_of(["Attn", "Ff", "Res"])


@pytest.mark.parametrize(
    ("available", "alias", "scope"),
    [
        (POST_NORM, "ATB", "AttnResLn"),
        (POST_NORM, "ATBFF", "AttnResLnFf"),
        (POST_NORM, "AtbFfRes", "AttnResLnFfRes"),
        (POST_NORM, "atb-ff-res-ln", "AttnResLnFfResLn"),
        (POST_NORM, "ATBFF-N", "AttnResLnFf"),
        (PRE_NORM, "ATB", "AttnRes"),
        (PRE_NORM, "ATBLN", "AttnResLn"),
        (PRE_NORM, "ATBLNFF", "AttnResLnFf"),
        (PRE_NORM, "ATBFF", "AttnResLnFf"),
        (PRE_NORM, "ATBFFRES", "AttnResLnFfRes"),
        (SANDWICH, "ATB", "AttnLnRes"),
        (SANDWICH, "ATBFF", "AttnLnResLnFf"),
        (DECODER, "ATB", "AttnResLn"),
        (["Attn", "AttnResLnFf"], "ATBFF", "AttnResLnFf"),
    ],
)
def test_the_2024_papers_names_start_with_the_attention_block(available: list[str], alias: str, scope: str) -> None:
    assert resolve(alias, available) == scope


@pytest.mark.parametrize(
    ("available", "alias"),
    [
        (PRE_NORM, "ATBFFRESLN"),
        (PARALLEL, "ATB"),
        (["AttnRes", "AttnResLn"], "ATB"),  # the norm may be that of the attention or that of the feed-forward
        (POST_NORM[:-1][2:4], "ATB"),
        (POST_NORM, "ATBLN"),
        (POST_NORM, "ATBRES"),
    ],
)
def test_a_name_that_may_mean_two_scopes_or_none_is_refused(available: list[str], alias: str) -> None:
    with pytest.raises(ScopeError, match=f"There is no scope '{alias}' here. Available scopes"):
        resolve(alias, available)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("AtnRes", "AttnRes"),
        ("AttnResLnFff", "AttnResLnFf"),
        ("AttnRessLn", "AttnResLn"),
        ("AttnResLnFfResL", None),  # the one before it is as near as the one after it
        ("AttnResFf", None),  # spelt as scopes are: this one is not there, and another is another
        ("AttnLn", None),
        ("AttnResLnFfResLnRes", None),
        ("ATBLN", None),
        ("Attn2", None),
        ("Ff", None),
        ("whole layer", None),
    ],
)
def test_only_a_misspelt_name_gets_a_hint_and_only_at_the_scope_that_was_meant(name: str, meant: str | None) -> None:
    with pytest.raises(ScopeError) as raised:
        resolve(name, POST_NORM)
    hint = f"Did you mean {meant!r}?" if meant else "Did you mean"
    assert (hint in str(raised.value)) is (meant is not None)


@pytest.mark.parametrize("name", ["AttnResLnFfResLnRes", "Attn2", "Ff", "", "-N", "Cross", "CrossW"])
def test_an_unknown_scope_is_an_error_that_says_what_was_asked_and_lists_what_there_is(name: str) -> None:
    with pytest.raises(ScopeError) as raised:
        resolve(name, POST_NORM)
    message = str(raised.value)
    assert repr(name) in message
    for scope in POST_NORM:
        assert scope in message


def test_a_prefix_or_an_extension_of_a_scope_is_not_that_scope() -> None:
    available = ["Attn", "AttnResLn"]
    for name in ("AttnRes", "AttnResLnFf", "AttnW", "Att"):
        with pytest.raises(ScopeError, match="Available scopes: Attn, AttnResLn"):
            resolve(name, available)


def test_scopes_come_in_chain_order_and_once() -> None:
    assert resolve_all(["AttnResLn-N", "attn", "ATTN-N", "AttnW"], POST_NORM) == ["AttnW", "Attn", "AttnResLn"]


def test_one_scope_may_be_a_bare_string() -> None:
    assert resolve_all("Attn-N", POST_NORM) == ["Attn"]


def test_none_means_every_scope() -> None:
    assert resolve_all(None, POST_NORM) == POST_NORM


def test_asking_for_no_scope_is_an_error_that_lists_what_there_is() -> None:
    with pytest.raises(ScopeError, match="AttnResLnFfResLn"):
        resolve_all([], POST_NORM)
