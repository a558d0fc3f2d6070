"""What is not analysed, and why: classes of described types, and types of transformers that no family describes."""

from __future__ import annotations

from normscope.errors import UnsupportedArchitectureError

_TOWERS = (
    "it has two towers, one for images and one for texts. Each is a model of its own: analyse model.vision_model or "
)

CLASSES = dict.fromkeys(
    ("CLIPModel", "SiglipModel", "MetaClip2Model"),
    f"{_TOWERS}model.text_model.",
)
"""Classes whose type is described, but not as a whole."""


def check_class(name: str) -> None:
    """Refuse a class that its family does not describe."""
    reason = CLASSES.get(name)
    if reason is not None:
        raise UnsupportedArchitectureError(f"{name} is not analysed as a whole: {reason}")
