"""Options of commands from the fields of dataclasses: what the Python API documents is what `--help` shows.

`expanded` replaces a parameter of a command by one option for each documented field of a dataclass.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from normscope.errors import listing
from normscope.options import DocumentedField, documented_fields

_MOST_CHOICES_IN_A_COLUMN = 4


@dataclass(frozen=True)
class Expansion:
    """The options that stand for one parameter: the dataclass they come from, what builds the parameter, and their panel.

    `only` names the fields that have an option here, and `without` those that have none; by default all have one.
    """

    kind: type
    build: Callable[..., Any]
    panel: str | None = None
    without: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None

    def fields(self) -> dict[str, DocumentedField]:
        """The fields that have an option, by the names of their parameters."""
        known = [field for field in documented_fields(self.kind) if field.name not in self.without]
        return {_parameter_name(field): field for field in known if self.only is None or field.name in self.only}


def expanded(command: Callable[..., None], **expansions: Expansion) -> Callable[..., None]:
    """A command whose named parameters are replaced by options; their values are built from the options in use."""
    options = {parameter: expansion.fields() for parameter, expansion in expansions.items()}

    @wraps(command)
    def wrapper(**values: Any) -> None:
        for parameter, expansion in expansions.items():
            given = {field.name: (values.pop(name), field.default) for name, field in options[parameter].items()}
            values[parameter] = expansion.build(**{name: v for name, (v, default) in given.items() if v != default})
        command(**values)

    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in expansions:
            panel = expansions[parameter.name].panel
            fields = options[parameter.name].items()
            parameters += [_parameter(name, field, panel) for name, field in fields]
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[parameter.name]))
    wrapper.__dict__["__signature__"] = inspect.Signature(parameters)
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def _parameter_name(field: DocumentedField) -> str:
    """The name of an option's parameter, made of its flag: no two options of a command share it."""
    return _flags(field)[0].removeprefix("--").replace("-", "_")


def _flags(field: DocumentedField) -> tuple[str, ...]:
    return field.documentation.flags or (f"--{field.name.replace('_', '-')}",)


def _parameter(name: str, field: DocumentedField, panel: str | None) -> inspect.Parameter:
    simpler = field.documentation.command_line_type
    kind = field.type if simpler is None else simpler | None if field.default is None else simpler
    annotation = Annotated[kind, _option(field, panel)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=annotation)


def _option(field: DocumentedField, panel: str | None) -> object:
    flag = isinstance(field.default, bool)
    text, metavar = field.documentation.text, None
    if get_origin(field.type) is Literal and len(get_args(field.type)) > _MOST_CHOICES_IN_A_COLUMN:
        text, metavar = f"{text} One of {listing(get_args(field.type))}.", f"<{field.name}>"
    return typer.Option(
        *_flags(field),
        help=text,
        show_default=field.default not in (None, "") and not flag,
        metavar=metavar,
        rich_help_panel=field.documentation.panel or panel,
        hidden=field.documentation.hidden,
    )
