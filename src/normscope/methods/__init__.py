"""The methods that can be compared, by name: what there is, what each means, what it costs.

`methods()` lists them with their default options, `method(name, **options)` gives one of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

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
    by_name = {kind.name: kind for kind in _METHODS}
    kind = by_name.get(_folded(name))
    if kind is None:
        raise InputError(_unknown(name, {each.name: each for each in methods(gives)}))
    _check_options(kind, options)
    return _fitting(kind(**options), gives)


def read_method(name: str, pairs: Sequence[str], gives: Gives | None = None) -> Method:
    """The method of a name with options as texts, `option=value`: numbers and truth values are read as such."""
    options: dict[str, Any] = {}
    for pair in pairs:
        option, separator, value = pair.partition("=")
        if not separator:
            raise InputError(f"An option of a method is written name=value, not {pair!r}.")
        options[option.strip()] = _value(value)
    return method(name, gives, **options)


_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def _check_options(kind: type[Method], options: Mapping[str, Any]) -> None:
    known = kind().options
    for option, value in options.items():
        if option not in known:
            there_are = f"it has {listing(known)}" if known else "it has none"
            raise InputError(f"The method {kind.name!r} has no option {option!r}: {there_are}.")
        wanted = type(known[option])
        fits = type(value) is wanted or (wanted is float and type(value) is int)
        if wanted in _WORDS and not fits:
            raise InputError(f"The option {option!r} of the method {kind.name!r} is {_WORDS[wanted]}, not {value!r}.")


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


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


def _folded(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(" ", "-")


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
