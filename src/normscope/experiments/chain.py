"""Which scopes of a model an experiment means: the papers' words, for any topology."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from normscope.errors import ScopeError, listing
from normscope.scopes import weights_scope

_WEIGHTS = (weights_scope("Attn"), weights_scope("Cross"))


def feed_forward(scopes: Sequence[str]) -> tuple[str, str]:
    """The scopes just before and just after the feed-forward: `AttnResLn` and `AttnResLnFf` in a BERT."""
    norms = [scope for scope in scopes if scope not in _WEIGHTS]
    for before, after in pairwise(norms):
        if after.endswith("Ff"):
            return before, after
    raise ScopeError(f"No scope ends with a feed-forward here. Available scopes: {listing(scopes)}.")


def feed_forward_group(scopes: Sequence[str]) -> tuple[str, str]:
    """The scopes around the feed-forward with its norms and residual: `AttnRes` and the whole layer in a BERT."""
    before, _ = feed_forward(scopes)
    norms = [scope for scope in scopes if scope not in _WEIGHTS]
    if before.endswith("Ln"):
        before = norms[norms.index(before) - 1]
    return before, norms[-1]


def mixing(scopes: Sequence[str]) -> list[str]:
    """The scopes of the mixing-ratio tables: everything up to the state that enters the feed-forward."""
    last = next((place for place, scope in enumerate(scopes) if scope.endswith("Ff")), len(scopes))
    return [scope for scope in scopes[:last] if scope != weights_scope("Cross")]
