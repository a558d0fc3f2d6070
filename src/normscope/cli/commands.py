"""Adds commands to the application: `--help` shows their docstrings, options and examples.

Paragraphs are joined to one line each, which the terminal wraps; names and flags are shown as they are typed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class _PlainHelp:
    """Help without what users do not type: braces around a required argument, the type of a flag."""

    def collect_usage_pieces(self, ctx: object) -> list[str]:
        pieces: list[str] = super().collect_usage_pieces(ctx)  # pyright: ignore[reportAttributeAccessIssue]
        return [piece.replace("{", "").replace("}", "") for piece in pieces]

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # pyright: ignore[reportAttributeAccessIssue]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters


class PlainCommand(_PlainHelp, TyperCommand):
    """A command with plain help."""


class PlainGroup(_PlainHelp, TyperGroup):
    """The application itself with plain help."""


def add_command(app: typer.Typer, name: str, command: Callable[..., None], *examples: str) -> None:
    """Add a command to the application: its help is its docstring, with examples below."""
    epilog = "\n\n".join(["[bold]Examples[/bold]", *examples])
    app.command(name, cls=PlainCommand, help=_paragraphs(command.__doc__ or ""), epilog=epilog)(command)


def _paragraphs(docstring: str) -> str:
    """A docstring without the line ends inside its paragraphs."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(docstring).split("\n\n"))
