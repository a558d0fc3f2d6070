"""The methods that can be compared, by name: what there is, what each means, what it costs.

`available_methods()` lists them with their default options, `method(name, **options)` makes one of them. Methods are
listed in `declared`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import lazy_loader

from normscope.deprecated import warn_renamed
from normscope.errors import InputError, listing, unknown
from normscope.methods import declared
from normscope.methods.base import Gives, Method
from normscope.methods.registry import Registry

if TYPE_CHECKING:
    from normscope.methods.layer import LayerMethod, MapRequest
    from normscope.methods.norms import Decomposition
    from normscope.methods.prediction import Attribution
    from normscope.methods.propagated import Propagated

__all__ = [
    "METHODS",
    "Attribution",
    "Decomposition",
    "Gives",
    "LayerMethod",
    "MapRequest",
    "Method",
    "Propagated",
    "attribution",
    "available_methods",
    "check_method_options",
    "layer_method",
    "method",
    "methods",
    "read_method",
    "read_options",
]

METHODS: Registry[Method, Method] = Registry("method", declared)
"""Every method by name, in the order in which they are declared. The classes are imported when they are used."""

# The classes need torch, which takes seconds to import: a command line knows the names and options of methods without it.
__getattr__, _, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "prediction": ["Attribution"],
        "layer": ["LayerMethod", "MapRequest"],
        "norms": ["Decomposition"],
        "propagated": ["Propagated"],
    },
)

_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def available_methods(gives: Gives | None = None) -> list[Method]:
    """Every method with its default options, or only those whose result is `"layer maps"` or an `"attribution"`.

    Examples:
        >>> import normscope as ns
        >>> [method.name for method in ns.available_methods("layer maps")][:3]
        ['norms', 'projections', 'propagated']
    """
    return [kind() for kind in METHODS.values() if gives is None or kind.gives == gives]


def methods(gives: Gives | None = None) -> list[Method]:
    """Deprecated name of `available_methods`."""
    warn_renamed("methods", "available_methods")
    return available_methods(gives)


def method(name: str | Method, gives: Gives | None = None, **options: object) -> Method:
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
    kind = METHODS[_listed_name(name, gives)]
    check_method_options(kind.name, kind().options, options)
    return _fitting(kind(**options), gives)


def read_method(name: str, pairs: Sequence[str], gives: Gives | None = None) -> Method:
    """The method of a name with options as texts, `option=value`: numbers and truth values are read as such."""
    return method(name, gives, **read_options(pairs))


def attribution(name: str | Method, **options: object) -> Attribution:
    """The method of an explanation; of one that gives maps of layers, the row of its rollout."""
    from normscope.methods.layer import LayerMethod  # noqa: PLC0415  (which need torch)
    from normscope.methods.prediction import Attribution  # noqa: PLC0415
    from normscope.methods.rollout import RowOfRollout  # noqa: PLC0415

    requested = method(name, None, **options)
    if isinstance(requested, LayerMethod):
        return RowOfRollout(requested)
    assert isinstance(requested, Attribution)
    return requested


def layer_method(name: str | Method) -> LayerMethod:
    """The method of a name, if it gives maps of layers."""
    from normscope.methods.layer import LayerMethod  # noqa: PLC0415  (which needs torch)

    requested = method(name, "layer maps")
    assert isinstance(requested, LayerMethod)
    return requested


def check_method_options(name: str, defaults: Mapping[str, object], options: Mapping[str, object]) -> None:
    """Raise for options that a method with these defaults does not have, and for values of another type."""
    for option, value in options.items():
        if option not in defaults:
            there_are = f"it has {listing(defaults)}" if defaults else "it has none"
            raise InputError(f"The method {name!r} has no option {option!r}: {there_are}.")
        expected = type(defaults[option])
        fits = type(value) is expected or (expected is float and type(value) is int)
        if expected in _WORDS and not fits:
            raise InputError(f"The option {option!r} of the method {name!r} is {_WORDS[expected]}, not {value!r}.")


def read_options(pairs: Sequence[str]) -> dict[str, object]:
    """Options of a method from texts, `option=value`: numbers and truth values are read as such."""
    options: dict[str, object] = {}
    for pair in pairs:
        option, separator, value = pair.partition("=")
        if not separator:
            raise InputError(f"An option of a method is written name=value, not {pair!r}.")
        options[option.strip()] = _value(value)
    return options


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _listed_name(name: str, gives: Gives | None) -> str:
    """The name as it is listed; an unknown one is refused with those of the methods that fit."""
    try:
        return METHODS.listed_name(name)
    except InputError:
        known = [each.name for each in available_methods(gives)]
        raise InputError(unknown(f"There is no method {name!r}", name, "Methods", known)) from None


def _fitting(requested: Method, gives: Gives | None) -> Method:
    if gives is not None and requested.gives != gives:
        use = "explain" if requested.gives == "attribution" else "analyze"
        raise InputError(
            f"The method {requested.name!r} gives {_article(requested.gives)}, not {_article(gives)}: use `{use}`, or one "
            f"of {listing(each.name for each in available_methods(gives))}."
        )
    return requested


def _article(gives: Gives) -> str:
    return "an attribution" if gives == "attribution" else gives
