"""Scope names: a scope is a prefix of a block's chain of components, named by joining the components' names.

Owns the names and their aliases. What a component computes is `decompose`; which components a model has is its family.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from normscope.errors import ScopeError, listing

ATTENTION_WEIGHTS = "AttnW"
"""Attention weights, mean over heads."""

HALF_ATTENTION_WEIGHTS = "AttnResW"
"""Half attention weights, half identity (Abnar & Zuidema 2020); derived from `AttnW`."""

HEAD_SCOPES = ("AttnW", "Attn", "CrossW", "Cross")
"""The scopes that exist for each head on its own; from the residual on, heads are no longer apart."""

_ATTENTIONS = ("Attn", "Cross")


def weights_scope(attention: str) -> str:
    """The scope of an attention's weights: `Attn` has `AttnW`, `Cross` has `CrossW`."""
    return f"{attention}W"


def scopes_of(components: Iterable[str], *, weights: bool = True) -> list[str]:
    """The scopes of a chain of component names: every prefix, with the weights of an attention just before its own."""
    scopes: list[str] = []
    prefix = ""
    for component in components:
        prefix += component
        if weights and component in _ATTENTIONS:
            scopes.append(weights_scope(component))
        scopes.append(prefix)
    return scopes


def _key(name: str) -> str:
    """Fold case and punctuation, and drop the papers' `-N` (norm) suffix: `ATTN-N` is `attn`, `Attn-W` is `attnw`."""
    folded = name.strip().lower()
    folded = re.sub(r"[-_ ]n$", "", folded)
    return re.sub(r"[^a-z0-9]", "", folded)


def resolve(name: str, available: Sequence[str]) -> str:
    """The canonical name of a scope, accepting the papers' aliases in any case; raises with what exists."""
    by_key = {_key(scope): scope for scope in available}
    by_key |= {_key(scope[-len("Cross") :]): scope for scope in available if scope.endswith("Cross")}
    found = by_key.get(_key(name))
    if found is None:
        raise ScopeError(f"There is no scope {name!r} here. Available scopes: {listing(available)}.")
    return found


def resolve_all(names: str | Iterable[str] | None, available: Sequence[str]) -> list[str]:
    """Canonical scope names in chain order, without repeats; `None` means all of them."""
    if names is None:
        return list(available)
    asked = [names] if isinstance(names, str) else list(names)
    if not asked:
        raise ScopeError(f"No scope was asked for. Available scopes: {listing(available)}.")
    chosen = {resolve(name, available) for name in asked}
    return [scope for scope in available if scope in chosen]
