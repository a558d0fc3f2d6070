"""The package as a whole: what its parts are called, and what it imports before it needs it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import normscope as ns
from normscope.cli import _COMMANDS, application

PACKAGE = Path(__file__).parents[1] / "src" / "normscope"


def names_taken_from_elsewhere(package: Path) -> set[str]:
    """The names that a package's own file defines, or imports from elsewhere than itself and the module of that name."""
    itself = ".".join(("normscope", *package.relative_to(PACKAGE).parts))
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if node.module not in (itself, f"{itself}.{alias.name}")
    }
    return imported | {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@pytest.mark.parametrize(
    "package",
    [path.parent for path in PACKAGE.rglob("__init__.py")],
    ids=lambda path: str(path.relative_to(PACKAGE.parent)),
)
def test_no_module_takes_a_name_that_its_package_uses(package: Path) -> None:
    modules = {path.stem for path in package.glob("*.py")} | {
        path.parent.name for path in package.glob("*/__init__.py")
    }
    assert not modules & names_taken_from_elsewhere(package)


HEAVY = {
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "xarray",
    "pyarrow",
    "scipy",
    "matplotlib",
    "duckdb",
    "ray",
    "PIL",
}
"""What takes long to import."""

MISTAKES = """
import sys
from normscope.cli import _COMMANDS, main

for arguments in (["--version"], ["--help"], ["nosuch"], *([c, o] for c in _COMMANDS for o in ("--help", "--nosuch"))):
    try:
        main(arguments)
    except SystemExit as end:
        assert end.code == (2 if "nosuch" in arguments[-1] else 0), (arguments, end.code)
"""


@pytest.mark.parametrize("code", ["import normscope", MISTAKES], ids=["import", "help and mistakes"])
def test_nothing_large_is_imported_before_there_is_work(code: str) -> None:
    shown = "import sys; print('imported:', *sorted({name.partition('.')[0] for name in sys.modules}))"
    command = [sys.executable, "-c", f"{code}\n{shown}"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = result.stdout.rpartition("imported:")[2].split()
    assert "normscope" in imported
    assert not HEAVY.intersection(imported)


def test_every_command_is_where_it_is_looked_for() -> None:
    for command, module in _COMMANDS.items():
        assert command in {each.name for each in application(module).registered_commands}
    assert set(_COMMANDS) == {each.name for each in application().registered_commands}


def test_every_public_name_is_there_and_listed() -> None:
    assert set(ns.__all__) <= set(dir(ns))
    assert not [name for name in ns.__all__ if isinstance(getattr(ns, name), ModuleType)]
