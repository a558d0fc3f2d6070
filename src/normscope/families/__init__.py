"""The architectures normscope knows. Each is one data value in a module of its kind; this is where they are looked up."""

from __future__ import annotations

from normscope.errors import UnsupportedArchitectureError, listing
from normscope.families import bert, deberta, encoder_decoder, gpt, llama, modern_encoders, vision
from normscope.families.spec import Family

__all__ = ["Family", "families", "family_of", "register"]

_BY_MODEL_TYPE: dict[str, Family] = {}


def register(family: Family) -> Family:
    """Make a family known under its model types (`config.model_type`); a later one replaces an earlier one."""
    for model_type in family.model_types:
        _BY_MODEL_TYPE[model_type] = family
    return family


def families() -> dict[str, Family]:
    """Every supported `config.model_type` and its family."""
    return dict(sorted(_BY_MODEL_TYPE.items()))


def family_of(model_type: str) -> Family:
    """The family of a model type; raises with what is supported and how to add another."""
    family = _BY_MODEL_TYPE.get(model_type)
    if family is None:
        raise UnsupportedArchitectureError(
            f"The architecture {model_type!r} is not supported: no family is registered for this config.model_type. "
            f"Supported: {listing(families())}. To add one, describe its blocks in a normscope.Family "
            f"and pass it to normscope.register()."
        )
    return family


for _module in (bert, deberta, modern_encoders, gpt, llama, encoder_decoder, vision):
    for _family in _module.FAMILIES:
        register(_family)
