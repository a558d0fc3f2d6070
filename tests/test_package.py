"""The package as a whole: what its parts are called."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

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
