"""Old names that still work for one minor version, each with a `DeprecationWarning`: modules, functions and keywords."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from normscope.errors import InputError

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

MOVED_MODULES = {
    "normscope.corpus_run": "normscope.runs",
    "normscope.corpus_run.cluster": "normscope.runs.ray",
    "normscope.explain.export": "normscope.output.explanation_export",
    "normscope.explain.explanation": "normscope.results.explanation",
    "normscope.explain.flow": "normscope.results.flow",
    "normscope.export": "normscope.output.export",
    "normscope.files": "normscope.results.files",
    "normscope.materialised": "normscope.testing.oracle",
    "normscope.measures": "normscope.methods",
    "normscope.model_options": "normscope.models.options",
    "normscope.planner": "normscope.estimate",
    "normscope.selection": "normscope.results.select",
    "normscope.terminal": "normscope.output.terminal",
    "normscope.trace": "normscope.chain.trace",
}
"""The modules of version 0.2 that have moved, by their old names."""


class MovedModules(MetaPathFinder, Loader):
    """Imports a module that has moved under its old name: both names are the same module."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in MOVED_MODULES else None

    def exec_module(self, module: ModuleType) -> None:
        new_name = MOVED_MODULES[module.__name__]
        warn_renamed(module.__name__, new_name)
        sys.modules[module.__name__] = import_module(new_name)


def warn_renamed(old: str, new: str, *, frames: int = 1) -> None:
    """Warn of an old name, at the line that calls the function which calls this one, or that many frames further out."""
    message = f"{old} is deprecated and will be removed in the next minor version: use {new}."
    warnings.warn(message, DeprecationWarning, stacklevel=2 + frames)


def renamed_keywords(
    **new_names: str,
) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """Decorator: a function also takes keywords by their old names, given as `old="new"`."""

    def decorate(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        @wraps(function)
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            for old in new_names.keys() & keywords.keys():
                if new_names[old] in keywords:
                    raise InputError(
                        f"{function.__name__} got {new_names[old]!r} twice, also by its old name {old!r}: leave out {old!r}."
                    )
                warn_renamed(f"The keyword {old!r} of {function.__name__}", repr(new_names[old]))
                keywords[new_names[old]] = keywords.pop(old)
            return function(*arguments, **keywords)

        return wrapper

    return decorate
