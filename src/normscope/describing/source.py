"""Descriptions as Python: the text that would register a family or a head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from types import FunctionType
from typing import Any, cast

from normscope.families.heads.spec import Head
from normscope.families.spec import Family

_WIDTH = 100


def source_of(family: Family, head: Head | None, class_name: str) -> str:
    """The Python that registers a family and, where there is one, the head of a class."""
    lines = [f"family = {written(family)}", "ns.register_family(family)"]
    described: list[object] = [family]
    if head is not None:
        lines += [f"head = {written(head)}", f"ns.register_head(head, {class_name!r})"]
        described.append(head)
    imports = ["import normscope as ns"]
    names: dict[str, set[str]] = {}
    for value in described:
        for name, module in _names(value):
            names.setdefault(module, set()).add(name)
    imports += [f"from {module} import {', '.join(sorted(found))}" for module, found in sorted(names.items())]
    return "\n".join([*imports, "", *lines]) + "\n"


def written(value: object, indent: int = 0) -> str:
    """A value of a description as Python."""
    if is_dataclass(value) and not isinstance(value, type):
        pieces = [f"{item.name}={written(getattr(value, item.name), indent + 4)}" for item in _told(value)]
        return _call(type(value).__name__, pieces, indent)
    if isinstance(value, tuple):
        items = [written(item, indent + 4) for item in cast("tuple[object, ...]", value)]
        return _call("", items, indent, trailing=len(items) == 1)
    return value.__name__ if isinstance(value, FunctionType) else repr(value)


def _call(name: str, pieces: list[str], indent: int, *, trailing: bool = False) -> str:
    line = f"{name}({', '.join(pieces)}{',' if trailing else ''})"
    if len(line) + indent <= _WIDTH and "\n" not in line:
        return line
    inner = " " * (indent + 4)
    return f"{name}(\n" + "".join(f"{inner}{piece},\n" for piece in pieces) + " " * indent + ")"


def _told(value: object) -> Iterator[Field[Any]]:
    """The fields that are not as they are by default."""
    for item in fields(cast(Any, value)):
        if item.default is MISSING or getattr(value, item.name) != item.default:
            yield item


def _names(value: object) -> Iterator[tuple[str, str]]:
    """The names that a description needs, and where they are imported from."""
    if is_dataclass(value) and not isinstance(value, type):
        module = type(value).__module__
        yield (
            type(value).__name__,
            "normscope.families.heads.spec" if ".heads." in module else "normscope.families.spec",
        )
        for item in _told(value):
            yield from _names(getattr(value, item.name))
    elif isinstance(value, tuple):
        for item in cast("tuple[object, ...]", value):
            yield from _names(item)
    elif isinstance(value, FunctionType):
        yield value.__name__, "normscope.families.spec"
