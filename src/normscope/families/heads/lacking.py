"""Weights of a task head that a checkpoint lacks: transformers draws them at random, which no prediction should be about.

They are noted when a model is loaded, which needs no head, and refused by name as soon as its head is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from normscope.errors import HeadError, few
from normscope.families.heads.spec import Head

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_BASE = "base_model"
_POOLER = "pooler"
"""What bare models call the part of a head that they hold themselves."""

_noted: WeakKeyDictionary[Any, frozenset[str]] = WeakKeyDictionary()


def note_lacking(model: PreTrainedModel, names: Iterable[str]) -> None:
    """Remember the weights of a model that are not those of its checkpoint."""
    _noted[model] = frozenset(names)


def made_up(model: PreTrainedModel) -> frozenset[str]:
    """The weights of a model that are not those of its checkpoint, but drawn at random when it was loaded."""
    return _noted.get(model, frozenset())


def is_of_head(model: PreTrainedModel, head: Head | None, name: str) -> bool:
    """Whether a weight belongs to the task head, and to nothing that states or maps are made of."""
    base = _path_of_base(model)
    if base and not _lies_in(name, base):
        return True
    described = [] if head is None else [path for path in _paths(head.parts) if not _lies_in(path, _BASE)]
    return _POOLER in name.split(".") or any(_lies_in(name, path) for path in described)


def refuse_lacking(model: PreTrainedModel, head: Head | None) -> None:
    """Refuse a head that has weights which were made up; without a description, any that were."""
    lacking = sorted(made_up(model))
    if head is not None:
        base = _path_of_base(model)
        paths = [
            path.replace(_BASE, base, 1).lstrip(".") if _lies_in(path, _BASE) else path for path in _paths(head.parts)
        ]
        lacking = [name for name in lacking if any(_lies_in(name, path) for path in paths)]
    if lacking:
        raise HeadError(
            f"The checkpoint of this {type(model).__name__} lacks weights of its task head: {few(lacking)}. They were made "
            f"up at random, so that no prediction of it means anything. Load a checkpoint that was trained for its task; "
            f"maps, and explanations along a direction, need no head."
        )


def _path_of_base(model: PreTrainedModel) -> str:
    """Where the bare model lies in a model; nowhere if that is the model itself."""
    return next((name for name, module in model.named_modules() if module is model.base_model), "")


def _lies_in(name: str, path: str) -> bool:
    return name == path or name.startswith(f"{path}.")


def _paths(described: object) -> Iterator[str]:
    """Every name in the description of some parts, also in that of their branches."""
    if isinstance(described, str):
        yield described
    elif isinstance(described, tuple):
        for item in cast("tuple[object, ...]", described):
            yield from _paths(item)
    elif is_dataclass(described):
        for item in fields(described):
            yield from _paths(getattr(described, item.name))
