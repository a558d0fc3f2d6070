"""Models of two towers, one for images and one for texts, such as CLIP: each tower is a model of its own.

The model as a whole compares an image with a text, and no state depends on both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from transformers import PreTrainedModel

from normscope.families import family_of
from normscope.families.refused import TWO_TOWERS
from normscope.models.model import Model

_Model = TypeVar("_Model", bound=Model)

Tower = Literal["image", "text"]

_MODULES: dict[Tower, str] = {"image": "vision_model", "text": "text_model"}


@dataclass(frozen=True)
class Towers:
    """The two towers of a model, as models."""

    image: Model
    text: Model


def has_two_towers(model: PreTrainedModel) -> bool:
    """Whether a model has one tower for images and one for texts."""
    return any(ancestor.__name__ in TWO_TOWERS for ancestor in type(model).__mro__)


def towers_of(model: Model) -> Towers | None:
    """Both towers of a model; `None` for a model that has no two."""
    return Towers(tower_of(model, "image"), tower_of(model, "text")) if has_two_towers(model.module) else None


def tower_of(model: _Model, name: Tower) -> _Model:
    """One tower of a model that has two."""
    module = model.module.get_submodule(_MODULES[name])
    assert isinstance(module, PreTrainedModel)
    return replace(model, module=module, family=family_of(module.config.model_type))
