"""Which scopes of a model an experiment means: the papers' words, for any topology."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from normscope.errors import ScopeError, listing
from normscope.scopes import CROSS_WEIGHTS, Scope

_NUMBERED = ("Res", "Ln")
"""Components that have a number even where a chain has one of them, as the papers write them."""


def feed_forward(scopes: Sequence[Scope]) -> tuple[Scope, Scope]:
    """The scopes just before and just after the feed-forward: `AttnResLn` and `AttnResLnFf` in a BERT."""
    for before, after in pairwise(_norms(scopes)):
        if after.last == "Ff":
            return before, after
    raise ScopeError(f"No scope ends with a feed-forward here. Available scopes: {listing(scopes)}.")


def feed_forward_group(scopes: Sequence[Scope]) -> tuple[Scope, Scope]:
    """The scopes around the feed-forward with its norms and residual: `AttnRes` and the whole layer in a BERT."""
    before, _ = feed_forward(scopes)
    norms = _norms(scopes)
    if before.last == "Ln":
        before = norms[norms.index(before) - 1]
    return before, norms[-1]


def norm_after_feed_forward(scopes: Sequence[Scope]) -> tuple[Scope, Scope] | None:
    """The scopes around the norm that follows the feed-forward, where there is one."""
    norms = _norms(scopes)
    later = norms[norms.index(feed_forward(scopes)[1]) :]
    return next(((before, after) for before, after in pairwise(later) if after.last == "Ln"), None)


def mixing(scopes: Sequence[Scope]) -> list[Scope]:
    """The scopes of the mixing-ratio tables: everything up to the state that enters the feed-forward."""
    last = next((index for index, scope in enumerate(scopes) if scope.last == "Ff"), len(scopes))
    return [scope for scope in scopes[:last] if scope != CROSS_WEIGHTS]


def steps(scopes: Sequence[Scope]) -> dict[str, tuple[Scope, Scope]]:
    """The components that a map goes through, by the papers' names, with the scopes before and after each: ATTN (from the
    weights to the norms), RES1, LN1, FF, RES2, LN2 in a BERT."""
    return {name: (before, after) for before, after in pairwise(scopes) if (name := component_name(after)) is not None}


def component_name(scope: Scope) -> str | None:
    """What the 2024 paper calls the component at the end of a scope: ATTN, RES1, LN1, FF, RES2, LN2, counted along the
    chain. `None` where the scope is that of weights, which no component makes."""
    if scope.quantity == "weight":
        return None
    count = scope.components.count(scope.last)
    return scope.last.upper() + (str(count) if scope.last in _NUMBERED or count > 1 else "")


def _norms(scopes: Sequence[Scope]) -> list[Scope]:
    return [scope for scope in scopes if scope.quantity == "norm"]
