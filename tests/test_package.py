"""The package as a whole: what its parts are called, and what it imports before it needs it."""

from __future__ import annotations

import ast
import resource
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType

import pytest
from packaging.specifiers import SpecifierSet

import normscope as ns
from normscope.cli import COMMANDS
from normscope.cli.application import application

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


IMPORT_EACH_FIRST = """
import sys
from importlib import import_module
from typing import get_args

from normscope.results.views import View

for name in sorted({each.partition(":")[0] for each in get_args(View)}):
    for module in [each for each in sys.modules if each.partition(".")[0] == "normscope"]:
        del sys.modules[module]
    import_module(f"normscope.{name}")
"""


def test_whatever_shows_a_result_can_be_the_first_to_be_imported() -> None:
    process = subprocess.run([sys.executable, "-c", IMPORT_EACH_FIRST], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


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
    "pydantic",
}
"""What takes long to import."""

MISTAKES = """
from normscope.cli import COMMANDS, main

for arguments in (["--version"], ["--help"], ["nosuch"], *([c, o] for c in COMMANDS for o in ("--help", "--nosuch"))):
    try:
        main(arguments)
    except SystemExit as end:
        assert end.code == (2 if "nosuch" in arguments[-1] else 0), (arguments, end.code)
"""

ENDED = "from normscope.cli import main\ntry:\n    main({!r})\nexcept SystemExit:\n    pass"


def imported_by(code: str) -> set[str]:
    """The modules that are there after some code was run in a process of its own."""
    shown = "import sys; print('imported:', *sys.modules)"
    result = subprocess.run([sys.executable, "-c", f"{code}\n{shown}"], capture_output=True, text=True, check=True)
    modules = set(result.stdout.rpartition("imported:")[2].split())
    assert "normscope" in modules
    return modules


@pytest.mark.parametrize("code", ["import normscope", MISTAKES], ids=["import", "help and mistakes"])
def test_nothing_large_is_imported_before_there_is_work(code: str) -> None:
    assert not HEAVY.intersection(imported_by(code))


def test_a_missing_argument_imports_nothing_that_a_model_needs() -> None:
    assert not HEAVY.intersection(imported_by(ENDED.format(["map"])))


@pytest.mark.parametrize("command", ["methods", "models", "experiments"])
def test_a_list_is_printed_without_importing_what_computes(command: str) -> None:
    assert not HEAVY.intersection(imported_by(ENDED.format([command])))


@pytest.mark.parametrize("arguments", [["--version"], ["nosuch"]], ids=" ".join)
def test_what_needs_no_options_is_answered_without_reading_any(arguments: list[str]) -> None:
    assert not {"typer", "normscope.families.spec"}.intersection(imported_by(ENDED.format(arguments)))


ALONE = """
import importlib, pkgutil, sys
import normscope

for module in [each.name for each in pkgutil.walk_packages(normscope.__path__, "normscope.")]:
    if module.startswith({packages!r}) and not module.endswith("__main__"):
        for loaded in [name for name in sys.modules if name.partition(".")[0] == "normscope"]:
            del sys.modules[loaded]
        importlib.import_module(module)
"""


@pytest.mark.parametrize(
    "packages",
    [("normscope.output", "normscope.plots"), pytest.param(("normscope.",), marks=pytest.mark.slow)],
    ids=["what shows results", "all"],
)
def test_every_module_can_be_imported_first(packages: tuple[str, ...]) -> None:
    """A command imports only what it needs, so that any module may be the first of an import circle."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE.format(packages=packages)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def cpu_seconds(*arguments: str) -> float:
    """The least that a Python process took of five."""

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], capture_output=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return min(once() for _ in range(5))


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        *("--version", "--help", "nosuch", "run --help", "run --nosuch", "run", "map text --layer x"),
        *("methods", "models", "experiments"),
    ],
)
def test_an_answer_takes_little_more_than_what_reads_options_takes_to_import(line: str) -> None:
    """Seconds differ between machines and with what else they do: this is 0.3 s where typer and rich take 0.17."""
    options = cpu_seconds("-c", "import typer, typer.rich_utils")
    assert cpu_seconds("-m", "normscope", *line.split()) < 1.8 * options


def test_every_command_is_where_it_is_looked_for() -> None:
    for command, module in COMMANDS.items():
        assert command in {each.name for each in application(module).registered_commands}
    assert set(COMMANDS) == {each.name for each in application().registered_commands}


def test_every_public_name_is_there_and_listed() -> None:
    assert set(ns.__all__) <= set(dir(ns))
    assert not [name for name in ns.__all__ if isinstance(getattr(ns, name), ModuleType)]


def test_what_is_pinned_runs_on_every_release_of_the_supported_pythons() -> None:
    """Debian's `python3` is an early 3.11: a pin that asks for a later one would leave `make` without an environment."""
    lines = (PACKAGE.parents[1] / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0] for line in lines if "==" in line and not line.startswith("#")}
    asked = {
        each.name: each.metadata["Requires-Python"]
        for each in distributions()
        if each.name in pinned and "Requires-Python" in each.metadata
    }
    assert len(asked) > len(pinned) / 2
    for release in ("3.11.0", "3.12.0", "3.13.0"):
        assert [name for name, pythons in asked.items() if release not in SpecifierSet(pythons)] == []


# ---- which module can be imported first --------------------------------------------------------------------------------


def eager_imports(path: Path, modules: set[str]) -> set[str]:
    """The modules of the package that a module imports when it is imported, with the packages that these are in.

    Its own packages are left out: they are being imported when it is.
    """
    name = module_name(path)
    named: set[str] = set()
    statements = list(ast.parse(path.read_text(encoding="utf-8")).body)
    while statements:
        node = statements.pop()
        if isinstance(node, ast.ImportFrom):
            named |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
        elif isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Try) or (isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.dump(node.test)):
            statements += node.body
    packages = {".".join(target.split(".")[:length]) for target in named for length in range(1, 9)}
    return {target for target in packages & modules if not f"{name}.".startswith(f"{target}.")}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def test_no_modules_import_each_other_so_that_any_can_be_the_first() -> None:
    paths = {module_name(path): path for path in PACKAGE.rglob("*.py")}
    waiting = {name: eager_imports(path, set(paths)) for name, path in paths.items()}
    assert "normscope.errors" in waiting["normscope.paths"]
    while ready := {name for name, imported in waiting.items() if not imported & set(waiting)}:
        waiting = {name: imported for name, imported in waiting.items() if name not in ready}
    assert not waiting


@pytest.mark.parametrize("script", ["examples/demo.py", "tools/docs_assets.py", "tools/fuzz.py", "benchmarks/bench.py"])
def test_scripts_beside_the_package_start_with_its_present_names(script: str) -> None:
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, script, "--help"], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("before", "frozen"), [("pass", 0), ("gc.disable()", 0), ("gc.freeze()", 1)])
def test_importing_leaves_the_collector_of_garbage_as_it_was(before: str, frozen: int) -> None:
    code = (
        f"import gc; import normscope; {before}; was = gc.isenabled(), bool(gc.get_freeze_count()); normscope.Analyzer; "
        f"assert was == (gc.isenabled(), bool(gc.get_freeze_count())); assert bool(gc.get_freeze_count()) == {bool(frozen)}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_terminal_needs_only_the_colours_of_matplotlib() -> None:
    code = "import sys; import normscope.output.terminal; assert 'matplotlib.figure' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
