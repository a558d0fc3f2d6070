"""What `--help` shows."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import normscope as ns
from normscope.cli import COMMANDS
from normscope.corpora import Corpus
from normscope.models.options import ModelOptions
from normscope.options import documented_fields

from .samples import Output


def test_version_and_help_name_the_commands(run: Callable[..., Output]) -> None:
    assert run("--version") == (0, f"normscope {ns.__version__}\n", "")
    code, out, _ = run("--help")
    assert code == 0
    commands = ("map", "mix", "growth", "check", "models", "explore", "serve", "experiments", "run", "report")
    assert all(re.search(rf"│ {command} ", out) for command in commands)


def test_the_help_of_run_has_every_option_that_python_documents(run: Callable[..., Output]) -> None:
    code, out, _ = run("run", "--help")
    assert code == 0
    shown = "".join(re.sub(r"[│╭╮╰╯─]", " ", out).split())
    for kind in (Corpus, ModelOptions):
        for field in documented_fields(kind):
            if field.name == "target_column":  # which says what is explained, and a run explains nothing
                continue
            flag = (field.documentation.flags or (f"--{field.name.replace('_', '-')}",))[0]
            assert flag in shown and "".join(field.documentation.text.split()) in "".join(out_columns(out)), field.name


def out_columns(out: str) -> list[str]:
    """The last column of every option in a help page, without spaces: its text runs over several lines."""
    return [re.split(r"\s{2,}", line.strip("│ ").strip())[-1].replace(" ", "") for line in out.splitlines()]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_two_examples(run: Callable[..., Output], command: str) -> None:
    code, out, _ = run(command, "--help")
    assert code == 0
    assert out.count(f"normscope {command}") >= 3  # the usage, and two examples
    usage, _, examples = out.partition("Examples")
    assert examples.count(f"normscope {command}") >= 2
    assert not re.search(r"[{}]|\[\[|\.\.\.\.", usage), "names stand there as they are typed"
    assert not re.search(r"--help .*<", usage), "a flag takes nothing"


def test_the_list_of_commands_has_a_short_line_for_each(run: Callable[..., Output]) -> None:
    _, out, _ = run("--help")
    lines = out[out.index("─ Commands") :].splitlines()[1:]
    listed = [line.strip("│ ") for line in lines[: next(n for n, line in enumerate(lines) if line.startswith("╰"))]]
    starts = [n for n, line in enumerate(listed) if line.split()[0] in COMMANDS]
    assert len(starts) == len(COMMANDS)
    for start, end in zip(starts, [*starts[1:], len(listed)], strict=True):
        assert end - start <= 2 and listed[end - 1].endswith("."), listed[start]
