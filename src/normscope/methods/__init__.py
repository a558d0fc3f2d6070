"""The methods that can be compared, by name: what there is, what each means, what it costs.

`methods()` lists them with their default options, `method(name, **options)` gives one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from normscope.catalogue import folded, read_options, refuse_method_options
from normscope.errors import InputError, listing, unknown
from normscope.methods.base import Gives, Method
from normscope.methods.layer import LAYER_METHODS, LayerMethod, MapRequest, Propagated
from normscope.methods.prediction import (
    Attribution,
    GradientNorm,
    GradientTimesInput,
    IntegratedGradients,
    LeaveOneOut,
    PullBack,
    Random,
)
from normscope.methods.prediction_layers import AltiLogit, DecompX, RowOfRollout

__all__ = [
    "Attribution",
    "Gives",
    "LayerMethod",
    "MapRequest",
    "Method",
    "Propagated",
    "attribution",
    "layer_method",
    "method",
    "methods",
    "read_method",
]

_PREDICTION_METHODS: tuple[type[Attribution], ...] = (
    PullBack,
    DecompX,
    AltiLogit,
    GradientNorm,
    GradientTimesInput,
    IntegratedGradients,
    LeaveOneOut,
    Random,
)

_METHODS: tuple[type[Method], ...] = (*_PREDICTION_METHODS, *LAYER_METHODS)
"""Every method, in the order in which they are listed."""


def methods(gives: Gives | None = None) -> list[Method]:
    """Every method with its default options, or those that give layer maps, or attributions."""
    return [kind() for kind in _METHODS if gives is None or kind.gives == gives]


def method(name: str | Method, gives: Gives | None = None, **options: Any) -> Method:
    """The method of a name, with options other than its defaults; a method that is one already stays as it is.

    Args:
        name: as `normscope methods` lists them.
        gives: refuse a method that gives something else than `"layer maps"` or an `"attribution"`.
        options: options of the method.

    Examples:
        >>> import normscope as ns
        >>> ns.method("integrated-gradients", steps=20)
        IntegratedGradients(steps=20)
        >>> ns.load().analyze("A text.", method=ns.method("alti")).rollout().dims
        ('layer', 'query', 'key')
    """
    if isinstance(name, Method):
        return _fitting(name, gives)
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]  (users are not checked)
        raise InputError(f"A method is named, or made by normscope.method, not {name!r:.60}.")
    by_name = {kind.name: kind for kind in _METHODS}
    kind = by_name.get(folded(name))
    if kind is None:
        raise InputError(_unknown(name, {each.name: each for each in methods(gives)}))
    refuse_method_options(kind.name, kind().options, options)
    return _fitting(kind(**options), gives)


def read_method(name: str, pairs: Sequence[str], gives: Gives | None = None) -> Method:
    """The method of a name with options as texts, `option=value`: numbers and truth values are read as such."""
    return method(name, gives, **read_options(pairs))


def attribution(name: str | Method, **options: Any) -> Attribution:
    """The method of an explanation; of one that gives maps of layers, the row of its rollout."""
    asked = method(name, **options)
    if isinstance(asked, LayerMethod):
        return RowOfRollout(asked)
    assert isinstance(asked, Attribution)
    return asked


def layer_method(name: str | Method) -> LayerMethod:
    """The method of a name, if it gives maps of layers."""
    asked = method(name, "layer maps")
    assert isinstance(asked, LayerMethod)
    return asked


def _fitting(asked: Method, gives: Gives | None) -> Method:
    if gives is not None and asked.gives != gives:
        use = "explain" if asked.gives == "attribution" else "analyze"
        raise InputError(
            f"The method {asked.name!r} gives {_article(asked.gives)}, not {_article(gives)}: use `{use}`, or one of "
            f"{listing(each.name for each in methods(gives))}."
        )
    return asked


def _article(gives: Gives) -> str:
    return "an attribution" if gives == "attribution" else gives


def _unknown(name: str, known: Mapping[str, Method]) -> str:
    return unknown(f"There is no method {name!r}", name, "Methods", known)
