"""Argument vectors of the command line."""

from __future__ import annotations

import contextlib
import io
import os
from typing import Any

from hypothesis import strategies as st
from typer.main import get_command

from normscope.cli import main
from normscope.cli.application import application

from . import samples
from .attempts import Draw, Fooled, Outcome, World, attempt, standard_input

_VALUES = (
    *("", " ", "-", "-1", "0", "1", "2", "7", "99", "1.5", "1e400", "nan", "inf", "9" * 400, "two", "all", "none"),
    *("\u200b", "\udcff", "\u2028", "\x1b[31m", "a" * 300, "ä & <b>'\"", "the", "[MASK]", " bubble", "LABEL_0", "row"),
    *("texts.txt", "rows.jsonl", "missing.txt", "result.nc", "explanation.nc", "damaged.nc", "missing.nc", "folder.nc"),
    *("result.zarr", "finished", "classifier", "causal", "seq2seq", "no/such/folder", "Attn", "AttnResLnFf", "attnw"),
    *("fp16", "bfloat16", "float64", "meta", "cpu", "cuda:99", "bias", "token", "pull-back", "random", "sentence"),
)
_OUTPUTS = (
    *("new.svg", "new.nc", "new.json", "new.csv", "new.html", "new.png", "new.zarr", "new", "new.xyz", "ä & b.svg"),
    *(
        "fifo.svg",
        "folder.nc",
        "link.svg",
        "loop.svg",
        "no/such/new.svg",
        "a" * 250 + ".svg",
        "result.nc",
        "\udcff.svg",
    ),
)
_BEGINNINGS: dict[str, list[str]] = {
    "map": [samples.TEXT],
    "growth": [samples.TEXT, "--out", "new.svg"],
    "explain": [samples.TEXT],
    "methods": [],
    "mix": [samples.TEXT],
    "estimate": [],
    "check": [],
    "models": [],
    "convert": ["--out", "new-model"],
    "explore": [samples.TEXT, "--out", "new.html"],
    "experiments": [],
    "run": ["mixing-ratio", "--corpus", "texts.txt", "--out", "new-run"],
    "report": ["finished", "--out", "new.html"],
}
"""A command line that each command takes, which is then varied. Without `serve`, which does not end."""

_LEFT_OUT = {
    "--engine",
    "--ray-address",
    "--jobs",
    "--workers",
    "--device-map",
    "--help",
    "--trust-remote-code",
    "--open",
}
"""Options that start processes, browsers or clusters."""


def commands(world: World, draw: Draw) -> Outcome:
    """Argument vectors: an exit code of 0 or 2, no traceback, and no file left by what was refused."""
    name = draw(st.sampled_from(sorted(_BEGINNINGS)))
    arguments = [name, *_varied(draw, _BEGINNINGS[name])]
    if "model" in _options(name) and draw(st.booleans()):
        arguments += ["--model", draw(st.sampled_from(samples.MODELS))]
    for _ in range(draw(st.integers(0, 3))):
        arguments += _option(draw, name)
    os.chdir(world.fresh())
    before = samples.contents(world.folder)
    output, errors = io.StringIO(), io.StringIO()

    def call() -> int:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors), standard_input(samples.TEXT):
            try:
                main(arguments)
            except SystemExit as end:
                return int(end.code or 0)
        return 0

    what = "normscope " + " ".join(map(repr, arguments))
    _, code = attempt(what, call)
    said = errors.getvalue()
    if "Traceback" in said + output.getvalue() or code not in {0, 2}:
        raise Fooled(f"{what}: exit code {code}: {said[-500:]}")
    after = samples.contents(world.folder)
    for path in ("fifo.svg", "link.svg", "loop.svg", "texts.txt"):
        if after.get(path) != before[path]:
            raise Fooled(f"{what}: {path} was replaced")
    if code == 2:
        if not said.strip():
            raise Fooled(f"{what}: exit code 2 without a word")
        changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
        if name != "run" and changed:  # a run keeps what is finished, to be resumed
            raise Fooled(f"{what}: refused, but changed {sorted(changed)}")
    return "refused" if code else "done"


def _options(command: str) -> dict[str, Any]:
    group: Any = get_command(application())
    return {parameter.name: parameter for parameter in group.commands[command].params}


def _option(draw: Draw, command: str) -> list[str]:
    known = [
        parameter
        for parameter in _options(command).values()
        if parameter.param_type_name == "option" and not _LEFT_OUT & set(parameter.opts)
    ]
    if not known:
        return []
    option = draw(st.sampled_from(known))
    if option.is_flag:
        return [option.opts[0]]
    choices = list(getattr(option.type, "choices", ()))
    pool = _OUTPUTS if option.name == "out" else (*_VALUES, *map(str, choices))
    return [option.opts[0], draw(st.sampled_from(pool))]


def _varied(draw: Draw, arguments: list[str]) -> list[str]:
    """The arguments, perhaps with one of them replaced."""
    if not arguments or not draw(st.booleans()):
        return arguments
    index = draw(st.integers(0, len(arguments) - 1))
    outputs = index > 0 and arguments[index - 1] == "--out"
    other = draw(
        st.sampled_from(_OUTPUTS if outputs else _VALUES) | (st.nothing() if outputs else st.text(max_size=20))
    )
    if other.startswith("-") and other != "-":
        other = " " + other
    return [*arguments[:index], other.replace("\0", ""), *arguments[index + 1 :]]
