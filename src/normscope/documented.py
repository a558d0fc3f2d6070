"""Dataclass fields that carry their own documentation, written once for the Python API and for the command line.

A field is annotated with `Documentation`; `with_documentation` puts the texts of all fields into the docstring. How they
look on a command line is the business of `cli`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

_Class = TypeVar("_Class", bound=type)


@dataclass(frozen=True)
class Documentation:
    """What a field means; its names on the command line, where they are not made of its own; and its type there."""

    text: str
    flags: tuple[str, ...] = ()
    command_line_type: Any = None


@dataclass(frozen=True)
class DocumentedField:
    """A field of a dataclass with its type, default and documentation."""

    name: str
    type: Any
    default: Any
    documentation: Documentation


def documented_fields(kind: type) -> Iterator[DocumentedField]:
    """The documented fields of a dataclass, in their order."""
    annotations = get_type_hints(kind, include_extras=True)
    for item in fields(kind):
        annotation = annotations[item.name]
        if get_origin(annotation) is Annotated:
            actual, documentation = get_args(annotation)
            yield DocumentedField(item.name, actual, item.default, documentation)


def with_documentation(kind: _Class) -> _Class:
    """Class decorator: the texts of the documented fields, below the docstring."""
    lines = [f"        {item.name}: {item.documentation.text}" for item in documented_fields(kind)]
    kind.__doc__ = "\n".join([(kind.__doc__ or "").rstrip(), "", "    Args:", *lines, "    "])
    return kind
