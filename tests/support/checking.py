"""Annotations of normscope checked at every call: types by beartype, shapes by jaxtyping.

jaxtyping's own decorator checks the parameters of a call twice and prepares its checks anew wherever a nested function is
defined, which took half the time of the tests. The one here checks parameters and result once each; checks are prepared at
the first call of a function, and once for all closures of the same code. Nothing here is a test.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, cast, get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype

_BEARTYPE = beartype(conf=BeartypeConf(violation_type=jaxtyping.TypeCheckError))
_SHAPES = jaxtyping.jaxtyped("context")
"""Within it, an axis of the same name has the same size everywhere."""


def install(package: str) -> None:
    """Check all functions and dataclasses of a package that is not imported yet."""
    jaxtyping.install_import_hook(package, "beartype.beartype")
    # What the hook writes above every function and every class.
    jaxtyping.jaxtyped = lambda *, typechecker: checked  # type: ignore[assignment]


def checked(decorated: Any) -> Any:
    """A function that checks its annotations when it is called, or a dataclass that does when it is made."""
    if not inspect.isclass(decorated):
        return _checked_function(decorated)
    if dataclasses.is_dataclass(decorated) and "__init__" in vars(decorated):
        decorated.__init__ = _checked_function(decorated.__init__)
    return decorated


def _checked_function(function: Any) -> Any:
    if hasattr(function, "__wrapped__"):  # the `__init__` that a dataclass has of its own body
        return function
    prepared: list[tuple[Check, Check]] = []
    if "<locals>" in function.__qualname__:
        key = (function.__module__, function.__qualname__, function.__code__.co_firstlineno)
        prepared = _of_closures.setdefault(key, prepared)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        if not prepared:
            prepared.append(_checks(function))
        check_parameters, check_result = prepared[0]
        with _SHAPES:
            check_parameters(*args, **kwargs)
            return check_result(function(*args, **kwargs))

    return call


Check = Callable[..., Any]
_of_closures: dict[tuple[str, str, int], list[tuple[Check, Check]]] = {}


def _checks(function: Any) -> tuple[Check, Check]:
    """A function with the same parameters that does nothing, and one that gives back what it is given, both checked."""
    signature = inspect.signature(function)
    parameters = [
        each.replace(annotation=_resolved(each.annotation, function)) for each in signature.parameters.values()
    ]
    result = inspect.Parameter("result", inspect.Parameter.POSITIONAL_ONLY, annotation=Any)
    returned = _resolved(signature.return_annotation, function)
    return _like(function, parameters, Any, "pass"), _like(function, [result], returned, "return result")


def _resolved(annotation: Any, function: Any) -> Any:
    """What an annotation means where the function is defined; anything, where its names are for type checkers alone."""
    if annotation is inspect.Parameter.empty:
        return Any
    bare = cast(Any, lambda: None)
    bare.__annotations__ = {"hint": annotation}
    try:
        return get_type_hints(bare, function.__globals__, include_extras=True)["hint"]
    except Exception:  # a name that is not there, in an expression of any kind
        return Any


class _Name(str):
    """A name that stands in a signature as it is."""

    __slots__ = ()
    __repr__ = str.__str__


def _like(function: Any, parameters: list[inspect.Parameter], returned: Any, body: str) -> Check:
    """A checked function of the same name with these parameters, for messages that name the one that was called."""
    scope: dict[str, Any] = {"returned": returned}
    named = list[inspect.Parameter]()
    for index, each in enumerate(parameters):
        scope[f"hint_{index}"], scope[f"default_{index}"] = each.annotation, each.default
        default = each.default if each.default is each.empty else _Name(f"default_{index}")
        named.append(each.replace(annotation=_Name(f"hint_{index}"), default=default))
    signature = inspect.Signature(named, return_annotation=_Name("returned"))
    exec(f"def stand_in{signature}: {body}", scope)  # beartype reads parameters from code alone
    stand_in = scope.pop("stand_in")
    stand_in.__module__, stand_in.__name__, stand_in.__qualname__ = (
        function.__module__,
        function.__name__,
        function.__qualname__,
    )
    return _BEARTYPE(stand_in)
