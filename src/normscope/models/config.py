"""What the `config.json` of a saved model says before the model is loaded: its family, scopes and number of layers.

Nothing large is imported. What `config.json` does not say is `None`, and is checked once the model is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from normscope.errors import InputError, SelectionError
from normscope.families import family_of, supported_models
from normscope.scopes import HALF_ATTENTION_WEIGHTS, Scope, resolve, scopes_of

if TYPE_CHECKING:
    from normscope.families.spec import Family, Stack

_Value = TypeVar("_Value")


class _MissingEntryError(LookupError):
    """A configuration has no such entry: only transformers knows its default.

    It is not an `AttributeError`, so that `getattr` with a default does not hide it.
    """


@dataclass(frozen=True)
class _SavedConfig:
    """A `config.json` with its entries as attributes."""

    entries: dict[str, object]

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self.entries:
            raise _MissingEntryError(name)
        return self.entries[name]


@dataclass(frozen=True)
class Outline:
    """The configuration of a saved model, and the name by which messages call it."""

    name: str
    family: Family
    config: Any

    @classmethod
    def read(cls, folder: Path, name: str, *, registered: bool = False, stage: int | None = None) -> Outline | None:
        """The outline of the model in a folder, if its configuration can be read and its `model_type` is registered.

        Raises `UnsupportedArchitectureError` for another type if the model has to be of a `registered` one.
        """
        try:
            entries = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(entries, dict) or not isinstance(entries.get("model_type"), str):
            return None
        model_type = entries["model_type"]
        family = family_of(model_type) if registered else supported_models().get(model_type)
        if family is None:
            return None
        config = _SavedConfig(entries)
        if stage is not None and family.pyramid is None:
            family.at_stage(config, stage)  # raises: there are no stages
        if family.pyramid is not None:
            family = _if_known(partial(family.at_stage, config, stage)) or family
        return cls(name, family, config)

    @property
    def layers(self) -> int | None:
        """The number of layers of the main stack."""
        depth: object = _if_known(lambda: self.family.stack.depth(self.config))
        return depth if isinstance(depth, int) else None

    def scopes(self, *, encoder: bool = False) -> list[Scope] | None:
        """All scopes of a stack that `--scope` may name."""
        if encoder:
            return None if self.family.encoder is None else self._scopes_of(self.family.encoder)
        own = self._scopes_of(self.family.stack)
        if own is None or self.family.encoder is None:
            return own
        # A class may have only the encoder or only the decoder, which is known once the model is loaded.
        alone = [self._scopes_of(stack) for stack in (self.family.encoder, self.family.stack.without_cross())]
        return (
            None
            if None in alone
            else list(dict.fromkeys([*own, *(scope for scopes in alone for scope in scopes or [])]))
        )

    def _scopes_of(self, stack: Stack) -> list[Scope] | None:
        components = _fixed(stack) or _if_known(lambda: stack.components(self.config))
        return None if components is None else [*scopes_of(components), HALF_ATTENTION_WEIGHTS]


def _fixed(stack: Stack) -> list[str] | None:
    """The components of a stack, if they are those of every model of its family."""
    from normscope.families.spec import Topology  # noqa: PLC0415  (descriptions take a while to import)

    return stack.topology.components() if isinstance(stack.topology, Topology) else None


def _if_known(read: Callable[[], _Value]) -> _Value | None:
    try:
        return read()
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):  # missing, or not what it should be
        return None


def scopes_anywhere() -> list[Scope]:
    """The scopes of all architectures whose blocks do not depend on the configuration."""
    stacks = [
        stack for family in supported_models().values() for stack in (family.stack, family.encoder) if stack is not None
    ]
    chains = [components for stack in stacks if (components := _fixed(stack)) is not None]
    return [*dict.fromkeys(scope for chain in chains for scope in scopes_of(chain)), HALF_ATTENTION_WEIGHTS]


def check_scope(name: str, outline: Outline | None, *, encoder: bool = False) -> None:
    """Raise for a scope that the model, as far as is known, does not have."""
    available = scopes_anywhere() if outline is None else outline.scopes(encoder=encoder)
    if available is not None:
        resolve(name, available)


def refuse_layer(layer: int, outline: Outline | None) -> None:
    """Raise for a layer that the model, as far as is known, does not have."""
    count = None if outline is None else outline.layers
    if outline is not None and count is not None and not 1 <= layer <= count:
        raise SelectionError(no_layer(layer, outline.name, count))
    if layer < 1:
        raise SelectionError(f"There is no layer {layer}: layers are counted from 1.")


def no_layer(layer: int, name: str, count: int) -> str:
    """The message for a layer that a model does not have."""
    return f"There is no layer {layer}: {name} has layers 1 to {count}."


def check_stacks(outline: Outline | None, *, encoder: bool, decoder_text: str | None) -> None:
    """Raise for options that only encoder-decoder models have."""
    if outline is None or outline.family.encoder is not None:
        return
    if encoder:
        raise SelectionError(no_encoder(outline.name))
    if decoder_text is not None:
        raise InputError(no_decoder(outline.name))


def no_encoder(name: str) -> str:
    return f"{name} has no separate encoder: leave out --encoder."


def no_decoder(name: str) -> str:
    return f"A text for a decoder was given, but {name} has no encoder and decoder: leave out decoder_text (--decoder-text)."
