"""Scopes: a scope is a prefix of a block's chain of components, and what is measured there.

Owns their names, aliases and parts. What a component computes is `decompose`; which components a model has is its family.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from normscope.errors import ScopeError, listing

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
    def words(self) -> list[str]:
        """Its components in words, as figures and pages call them.

        Examples:
            >>> Scope("AttnResLn").words
            ['attention', 'residual', 'norm']
        """
        return [word(component) for component in self.components]

    @property
    def last(self) -> str:
        """The last component, at whose end the scope measures."""
        return self.components[-1] if self.components else ""


WHOLE_LAYER, ENCODER_WHOLE = "whole_layer", "encoder_whole_layer"
"""What results and their makers call the scope of a whole layer, and that of the encoder's layers."""

ATTENTION_WEIGHTS = Scope("AttnW")
"""Attention weights, mean over heads."""

CROSS_WEIGHTS = Scope("CrossW")
"""The weights of a decoder's attention to the encoder, mean over heads."""

HALF_ATTENTION_WEIGHTS = Scope("AttnResW")
"""Half attention weights, half identity (Abnar & Zuidema 2020); derived from `AttnW`."""


_WORDS = {"Attn": "attention", "Cross": "cross-attention", "Res": "residual", "Ln": "norm", "Ff": "feed-forward"}


def word(component: str) -> str:
    """A component as readers call it."""
    return _WORDS.get(component, component)


def described(scope: str, whole: str = "") -> str:
    """A scope in words: how far along the chain, of which the end is the whole layer.

    `whole` is the scope of a whole layer. Where it is not known, as in results of earlier versions, a chain that ends with a
    norm after the last residual connection is one; another may go on.

    Examples:
        >>> described("AttnRes"), described("AttnResLnFfRes", whole="AttnResLnFfRes")
        ('attention + residual', 'whole layer')
    """
    asked = Scope(scope)
    ended = "Ff" in asked.components and asked.components[-2:] == ("Res", "Ln")
    if len(asked.components) > 2 and (scope == whole if whole else ended):
        return "whole layer"
    first, *others = asked.words or [str(scope)]
    return " + ".join([f"{first} weights" if asked.quantity == "weight" else first, *others])


def added(before: str, after: str) -> str:
    """What a scope adds to one before it, in words.

    Examples:
        >>> added("AttnResLn", "AttnResLnFf"), added("", "AttnW")
        ('+ feed-forward', 'weights')
    """
    first, last = Scope(before), Scope(after)
    if last.quantity == "weight":
        return " + ".join(["weights", *last.words[1:]])
    if first.quantity == "weight" and first.last == last.last:
        return "\u00d7 values"
    known = len(first.components)
    more = last.components[known:] if known and last.components[:known] == first.components else ()
    return f"+ {' + '.join(map(word, more))}" if more else " + ".join(last.words)


def component_words(name: str) -> str:
    """A numbered component as readers call it, from its name in tables.

    Examples:
        >>> component_words("LN2"), component_words("Attn")
        ('norm 2', 'attention')
    """
    letters = name.rstrip("0123456789")
    return f"{word(letters.capitalize())} {name.removeprefix(letters)}".strip()


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


_BLOCK = "atb"
"""What the 2024 paper calls the attention block: attention and residual, with the norm of post-norm models."""

_COMPONENT = re.compile("attn|cross|res|ln|ff|w")
_FEWEST_LETTERS, _MOST_WRONG = 4, 2


def _of_attention_block(rest: str, scopes: Sequence[Scope]) -> Scope | None:
    """The scope that the 2024 paper calls `ATB` and some components after it: `ATB`, `ATBFF`, `ATBFFRES`, `ATBFFRESLN`.

    Which components the block has shows only in a whole layer: in a model whose layer ends with a norm (post-norm), that of
    the attention belongs to the block; in others, the first norm after it is the feed-forward's.
    """
    norms = {_key(scope): scope for scope in scopes if scope.quantity == "norm"}
    chain = max(norms.values(), key=lambda scope: len(scope.components), default=Scope(""))
    prefixes = [Scope.of(chain.components[:count]) for count in range(1, 1 + len(chain.components))]
    after_ff = chain.components[1 + chain.components.index("Ff") :] if "Ff" in chain.components else ()
    is_whole = "Res" in after_ff and all(_key(prefix) in norms for prefix in prefixes)
    if is_whole and "Res" in chain.components[: chain.components.index("Ff")]:
        end = 1 + chain.components.index("Res")
        end += chain.components[-1] == "Ln" and chain.components[end] == "Ln"
        blocks = ["".join(chain.components[:end]).lower()]
    else:  # without the whole layer, only a name that goes on to the feed-forward is clear
        blocks = ["attnresln", "attnres", "attnlnres"] if "ff" in rest else []
    names = [block + part + rest for block in blocks for part in ("", "ln" if rest.startswith("ff") else "")]
    found = {norms[name] for name in names if name in norms}
    return found.pop() if len(found) == 1 else None


def _misspelt(name: str, available: Sequence[str]) -> str:
    """A hint at the scope that was meant, if only one is that near; none for a name that is spelt as scopes are."""
    key = _key(name)
    if len(key) < _FEWEST_LETTERS or not _COMPONENT.sub("", key.replace(_BLOCK, "attn")):
        return ""
    distances = sorted((_distance(key, _key(scope)), str(scope)) for scope in available)
    near = [scope for distance, scope in distances if distance == distances[0][0] <= _MOST_WRONG]
    return f" Did you mean {near[0]!r}?" if len(near) == 1 else ""


def _distance(one: str, other: str) -> int:
    """How many letters have to be put in, left out or replaced to make one name of another."""
    row = list(range(len(other) + 1))
    for count, letter in enumerate(one, 1):
        before, row[0] = row[0], count
        for index, wanted in enumerate(other, 1):
            before, row[index] = row[index], min(row[index] + 1, row[index - 1] + 1, before + (letter != wanted))
    return row[-1]


def resolve(name: str, available: Sequence[str]) -> Scope:
    """The scope that a name stands for, accepting the papers' aliases in any case; raises with what exists."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]  (users are not checked)
        raise ScopeError(f"A scope is a name, not {name!r:.60}. Available scopes: {listing(available)}.")
    scopes = [Scope(scope) for scope in available]
    by_key = {_key(scope): scope for scope in scopes}
    by_key |= {_key(scope.last): scope for scope in scopes if scope.last == "Cross" and scope.quantity == "norm"}
    key = _key(name)
    scope = by_key.get(key)
    if scope is None and key.startswith(_BLOCK):
        scope = _of_attention_block(key.removeprefix(_BLOCK), scopes)
    if scope is None:
        hint = _misspelt(name, available)
        raise ScopeError(f"There is no scope {name!r} here.{hint} Available scopes: {listing(available) or 'none'}.")
    return scope


def resolve_all(names: str | Iterable[str] | None, available: Sequence[str]) -> list[Scope]:
    """The scopes that names stand for, in chain order, without repeats; `None` means all of them."""
    if names is None:
        return [Scope(scope) for scope in available]
    single = isinstance(names, str) or not hasattr(names, "__iter__")
    asked: list[Any] = [names] if single else list(names)
    if not asked:
        raise ScopeError(f"No scope was requested. Available scopes: {listing(available)}.")
    wanted = {resolve(name, available) for name in asked}
    return [Scope(scope) for scope in available if scope in wanted]
