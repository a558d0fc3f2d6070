"""Scopes: a scope is a prefix of a block's chain of components, and what is measured there.

Owns their names, aliases and parts. What a component computes is `decompose`; which components a model has is its family.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from normscope.errors import ScopeError, listing, unknown

ScopeQuantity = Literal["weight", "norm"]
"""What a scope measures: attention weights, or the norms of the parts."""

_WEIGHTS = "W"
ATTENTIONS = ("Attn", "Cross")
"""The components that bring something from other tokens."""


class Scope(str):
    """A scope by its name: `AttnResLn` has the components `Attn`, `Res` and `Ln`, and measures norms.

    It is a string, so that it stands for itself in files, tables and messages; everything else is read off its parts.
    `AttnW` and `CrossW` are the weights of one attention, whatever comes before it in the chain.
    """

    __slots__ = ("components", "quantity")

    components: tuple[str, ...]
    quantity: ScopeQuantity

    def __new__(cls, name: str) -> Scope:
        scope = super().__new__(cls, name)
        words = re.findall("[A-Z][a-z0-9]*", name)
        weights = words[-1:] == [_WEIGHTS]
        scope.components = tuple(words[:-1] if weights else words)
        scope.quantity = "weight" if weights else "norm"
        return scope

    @classmethod
    def of(cls, components: Iterable[str], quantity: ScopeQuantity = "norm") -> Scope:
        """The scope of some components."""
        return cls("".join(components) + (_WEIGHTS if quantity == "weight" else ""))

    def __getnewargs__(self) -> tuple[str]:
        return (str(self),)

    @property
    def last(self) -> str:
        """The last component, at whose end the scope measures."""
        return self.components[-1] if self.components else ""


ATTENTION_WEIGHTS = Scope("AttnW")
"""Attention weights, mean over heads."""

CROSS_WEIGHTS = Scope("CrossW")
"""The weights of a decoder's attention to the encoder, mean over heads."""

HALF_ATTENTION_WEIGHTS = Scope("AttnResW")
"""Half attention weights, half identity (Abnar & Zuidema 2020); derived from `AttnW`."""


def weights_scope(attention: str) -> Scope:
    """The scope of an attention's weights: `Attn` has `AttnW`, `Cross` has `CrossW`."""
    return Scope.of([attention], "weight")


def scopes_of(components: Iterable[str], *, weights: bool = True) -> list[Scope]:
    """The scopes of a chain of component names: every prefix, with the weights of an attention just before its own."""
    scopes: list[Scope] = []
    prefix: list[str] = []
    for component in components:
        prefix.append(component)
        if weights and component in ATTENTIONS:
            scopes.append(weights_scope(component))
        scopes.append(Scope.of(prefix))
    return scopes


def components_needed(scopes: Iterable[Scope], components: Sequence[str]) -> int:
    """How many components of a chain the scopes reach through."""
    return max((_end(scope, components) for scope in scopes), default=1)


def _end(scope: Scope, components: Sequence[str]) -> int:
    return list(components).index(scope.last) + 1 if scope.quantity == "weight" else len(scope.components)


def with_derived(scopes: Iterable[str]) -> list[Scope]:
    """Scopes that were computed, and those that follow from them."""
    computed = [Scope(scope) for scope in scopes]
    return [*computed, HALF_ATTENTION_WEIGHTS] if ATTENTION_WEIGHTS in computed else computed


def basis(scope: Scope) -> Scope:
    """The scope that another is derived from; a scope that is computed is its own basis."""
    return ATTENTION_WEIGHTS if scope == HALF_ATTENTION_WEIGHTS else scope


def _key(name: str) -> str:
    """Fold case and punctuation, and drop the papers' `-N` (norm) suffix: `ATTN-N` is `attn`, `Attn-W` is `attnw`."""
    folded = name.strip().lower()
    folded = re.sub(r"[-_ ]n$", "", folded)
    return re.sub(r"[^a-z0-9]", "", folded)


def resolve(name: str, available: Sequence[str]) -> Scope:
    """The scope that a name stands for, accepting the papers' aliases in any case; raises with what exists."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]  (users are not checked)
        raise ScopeError(f"A scope is a name, not {name!r:.60}. Available scopes: {listing(available)}.")
    scopes = [Scope(scope) for scope in available]
    by_key = {_key(scope): scope for scope in scopes}
    by_key |= {_key(scope.last): scope for scope in scopes if scope.last == "Cross" and scope.quantity == "norm"}
    scope = by_key.get(_key(name))
    if scope is None:
        raise ScopeError(unknown(f"There is no scope {name!r} here", name, "Available scopes", available))
    return scope


def resolve_all(names: str | Iterable[str] | None, available: Sequence[str]) -> list[Scope]:
    """The scopes that names stand for, in chain order, without repeats; `None` means all of them."""
    if names is None:
        return [Scope(scope) for scope in available]
    single = isinstance(names, str) or not hasattr(names, "__iter__")
    asked: list[Any] = [names] if single else list(names)
    if not asked:
        raise ScopeError(f"No scope was asked for. Available scopes: {listing(available)}.")
    wanted = {resolve(name, available) for name in asked}
    return [Scope(scope) for scope in available if scope in wanted]
