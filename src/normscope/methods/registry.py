"""Classes by name: each is declared once, in a light module; the class that computes is imported when it is first used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, Generic, TypeVar

from normscope.errors import InputError, unknown


@dataclass(frozen=True)
class Declaration:
    """What is known of a class before it is imported: its name, its facts (class variables) and its options (fields)."""

    name: ClassVar[str]
    module: ClassVar[str]
    """Where the class of the same name is that computes it."""

    @classmethod
    def defaults(cls) -> dict[str, object]:
        """The options with their defaults."""
        return {option.name: option.default for option in fields(cls)}


_Declared = TypeVar("_Declared", bound=Declaration)
_Kind = TypeVar("_Kind")


class Registry(Mapping[str, type[_Kind]], Generic[_Kind, _Declared]):
    """Classes of one kind by name, in the order in which a module declares them. A lookup imports the class.

    `what` names the kind in error messages, such as "method". Declarations without a name are bases of others.
    """

    def __init__(self, what: str, declared: ModuleType) -> None:
        self.what = what
        kinds = [kind for kind in vars(declared).values() if isinstance(kind, type) and issubclass(kind, Declaration)]
        self._declarations: dict[str, Any] = {kind.name: kind for kind in kinds if "name" in vars(kind)}

    def __getitem__(self, name: str) -> type[_Kind]:
        declared = self._declarations[name]
        kind: Any = getattr(import_module(declared.module), declared.__name__)
        return kind

    def __iter__(self) -> Iterator[str]:
        return iter(self._declarations)

    def __len__(self) -> int:
        return len(self._declarations)

    def __contains__(self, name: object) -> bool:
        return name in self._declarations

    def listed_name(self, name: str) -> str:
        """The name as it is listed, from any case and with `_` or a space for `-`; raises with the names there are."""
        listed = name.strip().lower().replace("_", "-").replace(" ", "-")
        if listed not in self:
            title = f"{self.what.capitalize()}s"
            raise InputError(unknown(f"There is no {self.what} {name!r}", name, title, self))
        return listed

    def declaration(self, name: str) -> type[_Declared]:
        """What is declared of the class of a name. Nothing is imported."""
        return self._declarations[name]
