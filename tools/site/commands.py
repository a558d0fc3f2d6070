"""The reference of the command line, from the commands themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer
from registries import table

from normscope.cli.application import application

_MARKUP = re.compile(r"\[/?(?:bold|italic|dim)\]")


def all_commands() -> dict[str, Any]:
    """Every command by its name, in the order in which `--help` lists them."""
    return dict(typer.main.get_command(application()).commands)  # pyright: ignore[reportAttributeAccessIssue]


def command_table(_: str = "") -> str:
    """Every command in one line each, linked to its place in the reference."""
    rows = [
        [f"[`{name}`](reference/commands.md#normscope-{name})", _first_sentence(command)]
        for name, command in all_commands().items()
    ]
    return table(["command", "does"], rows)


def page() -> str:
    """The page with every command, its arguments, options and examples."""
    parts = [
        "# All commands and options",
        "Made from the commands themselves: what `normscope COMMAND --help` prints. [The command line](../cli.md) explains "
        "them with examples.",
    ]
    for name, command in all_commands().items():
        parts += _section(name, command)
    return "\n\n".join(parts) + "\n"


def _section(name: str, command: Any) -> Iterator[str]:
    yield f"## normscope {name}"
    yield _plain(command.help or "")
    context = typer.Context(command, info_name=f"normscope {name}")
    yield f"```\n{command.get_usage(context).removeprefix('Usage: ').strip()}\n```"
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    if arguments:
        rows = [[f"`{item.metavar or item.name.upper()}`", _plain(item.help or "")] for item in arguments]
        yield table(["argument", "is"], rows)
    options = [item for item in command.params if item.param_type_name == "option"]
    if options:
        rows = [
            [_flags(item), f"`{_default(item)}`" if _default(item) else "", _plain(item.help or "")] for item in options
        ]
        yield table(["option", "default", "means"], rows)
    examples = _examples(command.epilog or "")
    if examples:
        yield "```\n" + "\n".join(examples) + "\n```"


def _flags(option: Any) -> str:
    return ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))


def _default(option: Any) -> str:
    """What an option is if it is not given, where that says something."""
    if isinstance(option.show_default, str):
        return option.show_default
    return "" if option.default in (None, False, [], ()) or callable(option.default) else str(option.default)


def _examples(epilog: str) -> list[str]:
    return [line.strip() for line in _MARKUP.sub("", epilog).splitlines() if line.strip().startswith("normscope ")]


def _first_sentence(command: Any) -> str:
    return re.split(r"(?<=[.:]) |\n\n", _plain(command.help or ""))[0].rstrip(".:")


def _plain(text: str) -> str:
    """Help as a line of Markdown: without markup and without line ends inside a paragraph."""
    paragraphs = _MARKUP.sub("", inspect.cleandoc(text)).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs).replace("[", "\\[").replace("*", "\\*")
