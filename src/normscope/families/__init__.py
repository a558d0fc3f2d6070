"""The architectures normscope knows. Each is one data value in a module of its kind; this is where they are looked up.

Other packages add theirs by calling `register`, or by an entry point of the group `normscope.families` that names a
`Family` (or a tuple of them).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import cast

from normscope.errors import UnsupportedArchitectureError, listing
from normscope.families import bert, deberta, encoder_decoder, gpt, llama, mixtures, modern_encoders, vision
from normscope.families.spec import Family

__all__ = ["Family", "families", "family_of", "register"]

ENTRY_POINTS = "normscope.families"

_BY_MODEL_TYPE: dict[str, Family] = {}


def register(family: Family) -> Family:
    """Make a family known under its model types (`config.model_type`); a later one replaces an earlier one.

    Examples:
        >>> from dataclasses import replace
        >>> import normscope as ns
        >>> ns.register(replace(ns.families()["bert"], name="my-bert", model_types=("my_bert",)))
        Family('my-bert', for my_bert)
    """
    for model_type in family.model_types:
        _BY_MODEL_TYPE[model_type] = family
    return family


def families() -> dict[str, Family]:
    """Every supported `config.model_type` and its family.

    Examples:
        >>> import normscope as ns
        >>> ns.families()["roberta"].name
        'roberta'
    """
    _register_installed()
    return dict(sorted(_BY_MODEL_TYPE.items()))


def family_of(model_type: str) -> Family:
    """The family of a model type; raises with what is supported and how to add another."""
    family = families().get(model_type)
    if family is None:
        raise UnsupportedArchitectureError(
            f"The architecture {model_type!r} is not supported: no family is registered for this config.model_type. "
            f"Supported: {listing(families())}. To add one, describe its blocks in a normscope.Family, "
            f"check it with normscope.testing.assert_family() and pass it to normscope.register()."
        )
    return family


@cache
def _register_installed() -> None:
    """Families of other packages, once, when first asked for."""
    from importlib.metadata import entry_points  # noqa: PLC0415  (a quarter of the time that this package takes to import)

    for entry_point in entry_points(group=ENTRY_POINTS):
        entry = entry_point.load()
        for family in [entry] if isinstance(entry, Family) else cast(Iterable[Family], entry):
            register(family)


for _module in (bert, deberta, modern_encoders, gpt, llama, mixtures, encoder_decoder, vision):
    for _family in _module.FAMILIES:
        register(_family)
