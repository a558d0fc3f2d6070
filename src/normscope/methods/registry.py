"""Classes by name: listed once as `name -> "module:Class"`, and imported when they are first used.

A command line has to know the options of a class, and their defaults, long before it imports torch. It reads them from the
class statement itself: `Declaration` parses the source of a module and never runs it. So the fields of a dataclass are the
only place where its options are written.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar

from normscope.errors import InputError, unknown

_Kind = TypeVar("_Kind")

_REQUIRED = object()
"""The default of a constant that has to be declared."""


class Registry(Mapping[str, type[_Kind]], Generic[_Kind]):
    """Classes of one kind by name, in the order in which they are listed. A lookup imports the class.

    `what` names the kind in error messages, such as "method".
    """

    def __init__(self, what: str, classes: Mapping[str, str]) -> None:
        self.what = what
        self._classes = classes

    def __getitem__(self, name: str) -> type[_Kind]:
        module, _, class_name = self._classes[name].partition(":")
        kind: Any = getattr(import_module(module), class_name)
        if kind.name != name:
            raise TypeError(f"{class_name} is registered as the {self.what} {name!r}, but its name is {kind.name!r}.")
        return kind

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)

    def __contains__(self, name: object) -> bool:
        return name in self._classes

    def listed_name(self, name: str) -> str:
        """The name as it is listed, from any case and with `_` or a space for `-`; raises with the names there are."""
        listed = name.strip().lower().replace("_", "-").replace(" ", "-")
        if listed not in self:
            title = f"{self.what.capitalize()}s"
            raise InputError(unknown(f"There is no {self.what} {name!r}", name, title, self))
        return listed

    def declaration(self, name: str) -> Declaration:
        """What the class of a name declares. Nothing is imported."""
        module, _, class_name = self._classes[name].partition(":")
        return Declaration(_Source.of(module), class_name)


@dataclass(frozen=True)
class Declaration:
    """What a class statement and those of its bases say: dataclass fields with defaults, and constants."""

    source: _Source
    name: str

    @property
    def options(self) -> dict[str, object]:
        """The fields of the dataclass, with their defaults."""
        values: dict[str, object] = {}
        for source, statement in self._assignments():
            if isinstance(statement, ast.AnnAssign) and not _is_class_variable(statement):
                values[_target(statement)] = source.value(statement.value)
        return values

    def constant(self, name: str, default: object = _REQUIRED) -> Any:
        """The value of a class variable."""
        for source, statement in reversed(self._assignments()):
            if _target(statement) == name and statement.value is not None:
                return source.value(statement.value)
        if default is _REQUIRED:
            raise AttributeError(f"{self.name} declares no {name!r}.")
        return default

    def _assignments(self) -> list[tuple[_Source, ast.AnnAssign | ast.Assign]]:
        """The assignments in the class, those of its bases first."""
        statement = self.source.definition(self.name)
        if not isinstance(statement, ast.ClassDef):
            return []
        known: list[tuple[_Source, ast.AnnAssign | ast.Assign]] = []
        for base in statement.bases:
            place = self.source.origin(base.id) if isinstance(base, ast.Name) else None
            if place is not None:
                known += Declaration(*place)._assignments()
        own = [each for each in statement.body if isinstance(each, ast.AnnAssign | ast.Assign)]
        return [*known, *((self.source, each) for each in own)]


@dataclass(frozen=True)
class _Source:
    """The source of a module."""

    module: str

    @staticmethod
    @cache
    def of(module: str) -> _Source:
        """One value for each module, so that its source is parsed once."""
        return _Source(module)

    @cached_property
    def _statements(self) -> dict[str, ast.stmt]:
        """The classes, assignments and imports at the top of the module, by the names they define."""
        named: dict[str, ast.stmt] = {}
        for statement in ast.parse(_file(self.module).read_text(encoding="utf-8")).body:
            match statement:
                case ast.ClassDef(name=name):
                    named[name] = statement
                case ast.Assign() | ast.AnnAssign():
                    named[_target(statement)] = statement
                case ast.ImportFrom(names=names):
                    named.update({each.asname or each.name: statement for each in names})
                case _:
                    pass
        return named

    def definition(self, name: str) -> ast.stmt | None:
        return self._statements.get(name)

    def origin(self, name: str) -> tuple[_Source, str] | None:
        """The module of this package that defines a name, and the name there; `None` if it is another package's."""
        match self.definition(name):
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("normscope."):
                return _Source.of(module), next(each.name for each in names if name in (each.asname, each.name))
            case None | ast.ImportFrom():
                return None
            case _:
                return self, name

    def value(self, node: ast.expr | None) -> Any:
        """The value of a literal, which may contain names of constants and of class variables."""
        match node:
            case ast.Name(id=name):
                source, own_name = self.origin(name) or (self, name)
                defined = source.definition(own_name)
                if isinstance(defined, ast.Assign | ast.AnnAssign):
                    return source.value(defined.value)
            case ast.Attribute(value=ast.Name(id=owner), attr=constant) if (defined := self.origin(owner)) is not None:
                return Declaration(*defined).constant(constant)
            case ast.Tuple(elts=items):
                several = (self.value(i.value) if isinstance(i, ast.Starred) else (self.value(i),) for i in items)
                return tuple(value for values in several for value in values)
            case ast.Dict(keys=keys, values=values):
                return {self.value(key): self.value(value) for key, value in zip(keys, values, strict=True)}
            case ast.expr():
                return ast.literal_eval(node)
            case None:
                pass
        raise ValueError(
            f"{self.module}: a default is a literal or the name of one, not {ast.unparse(node or ast.Pass())}."
        )


def _file(module: str) -> Path:
    """The source file of a module. The packages that it is in are not imported either, as `find_spec` would do."""
    top, *path = module.split(".")
    spec = find_spec(top)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"There is no source of the module {module!r}.", name=module)
    inside = Path(spec.origin).parent.joinpath(*path)
    file = Path(spec.origin) if not path else inside.with_suffix(".py")
    return file if file.is_file() else inside / "__init__.py"


def _target(statement: ast.AnnAssign | ast.Assign) -> str:
    """The name that an assignment defines; empty if it is not one name."""
    target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
    return target.id if isinstance(target, ast.Name) else ""


def _is_class_variable(statement: ast.AnnAssign) -> bool:
    return "ClassVar" in ast.dump(statement.annotation)
