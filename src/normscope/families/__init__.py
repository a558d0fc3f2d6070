"""The architectures normscope knows. Each is one data value in a module of its kind; this is where they are looked up.

Other packages add theirs by calling `register_family`, or by an entry point of the group `normscope.families` that names a
`Family` (or a tuple of them).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, cast

import lazy_loader

from normscope.deprecated import warn_renamed
from normscope.errors import UnsupportedArchitectureError
from normscope.families.refused import refused_models

if TYPE_CHECKING:
    from normscope.families.spec import Family

__all__ = ["Family", "families", "family_of", "register", "register_family", "supported_models"]

ENTRY_POINTS = "normscope.families"

_KINDS = (
    "bert",
    "modern_encoders",
    "gpt",
    "llama",
    "plain_decoders",
    "mixtures",
    "hybrids",
    "state_spaces",
    "unusual_decoders",
    "encoder_decoder",
    "probed",
    "vision",
    "pyramids",
    "audio",
    "multimodal",
)
"""The modules of this package that hold families. A later one replaces what an earlier one has."""

# `import normscope` imports this module, and descriptions take a while to make: they come when they are first used.
__getattr__, _, _ = lazy_loader.attach(__name__, submod_attrs={"spec": ["Family"]})


def register_family(family: Family) -> Family:
    """Make a family known under its model types (`config.model_type`); a later one replaces an earlier one.

    Examples:
        >>> from dataclasses import replace
        >>> import normscope as ns
        >>> ns.register_family(replace(ns.supported_models()["bert"], name="my-bert", model_types=("my_bert",)))
        Family('my-bert', for my_bert)
    """
    for model_type in family.model_types:
        _registry()[model_type] = family
    return family


def supported_models() -> dict[str, Family]:
    """Every supported `config.model_type` and its family.

    Examples:
        >>> import normscope as ns
        >>> ns.supported_models()["roberta"].name
        'roberta'
    """
    _register_installed()
    return dict(sorted(_registry().items()))


def register(family: Family) -> Family:
    """Deprecated name of `register_family`."""
    warn_renamed("register", "register_family")
    return register_family(family)


def families() -> dict[str, Family]:
    """Deprecated name of `supported_models`."""
    warn_renamed("families", "supported_models")
    return supported_models()


def family_of(model_type: str) -> Family:
    """The family of a model type; raises with what is supported and how to add another."""
    family = supported_models().get(model_type)
    if family is None:
        reason = refused_models().get(model_type, "no family is registered for this config.model_type")
        raise UnsupportedArchitectureError(
            f"The architecture {model_type!r} is not supported: {reason}. `normscope models` lists the "
            f"{len(supported_models())} that are. To add one, describe its blocks in a normscope.Family, "
            f"check it with normscope.testing.assert_family() and pass it to normscope.register_family()."
        )
    return family


@cache
def _registry() -> dict[str, Family]:
    """Families by model type, from the start those of this package."""
    modules = [import_module(f"{__name__}.{kind}") for kind in _KINDS]
    own: list[Family] = [family for module in modules for family in module.FAMILIES]
    return {model_type: family for family in own for model_type in family.model_types}


@cache
def _register_installed() -> None:
    """Families of other packages, once, when first requested."""
    from importlib.metadata import entry_points  # noqa: PLC0415  (not before they are used)

    from normscope.families.spec import Family  # noqa: PLC0415  (as above)

    for entry_point in entry_points(group=ENTRY_POINTS):
        entry = entry_point.load()
        for family in [entry] if isinstance(entry, Family) else cast(Iterable[Family], entry):
            register_family(family)
