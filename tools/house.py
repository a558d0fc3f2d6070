"""Measures of the source tree next to their goals: size, shape, import knots, and how often one thing is written.

Run with `python tools/house.py`, from anywhere. An import knot is a set of modules each of which reaches every other one
through imports, counting those inside functions and those for type checkers only. Lines of code include imports.

The goals of 190 modules and 23,000 lines were set for a tree of 279 modules and 25,000 lines, "for the same features". That
tree had grown to 308 modules and 28,800 lines when its redesign began; the same reduction of it, to about 210 modules and
26,300 lines, is the goal. It holds for the features of that time: modules that came with later ones are listed in `ADDED`,
and are counted separately. What later features added to modules that were there before (families, components, options) is
still counted with the old ones, so that the two totals are upper bounds.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src"
PACKAGE = "normscope"
OPTIONS = ("value_bias", "ff_baseline", "products", "approximate", "truncate", "max_memory", "device_map")
"""Options of the library whose declarations are counted."""

ADDED: Mapping[str, tuple[str, ...]] = {
    "answers": (
        "cli.answer",
        "corpora.answers",
        "corpora.facts",
        "experiments.faithfulness.answers",
        "experiments.faithfulness.asked",
        "explain.answering",
        "explain.spans",
        "explorer.answer_payload",
        "inputs.generation",
        "inputs.prompt",
        "inputs.units",
        "methods.answers",
        "output.answer_export",
        "output.answer_terminal",
        "plots.answer",
        "results.answer",
        "results.answer_schema",
        "results.answer_text",
        "results.reasoning",
        "results.sentences",
        "results.spans",
    ),
    "similarity": (
        "cli.similar",
        "corpora.text_pairs",
        "decompose.head",
        "experiments.faithfulness.cosine_gradients",
        "experiments.faithfulness.text_similarity",
        "experiments.faithfulness.word_table",
        "explorer.similarity_payload",
        "models.towers",
        "output.similarity_export",
        "output.similarity_terminal",
        "plots.patches",
        "plots.ribbons",
        "plots.similarity",
        "pullback.many",
        "results.similarity",
        "results.similarity_schema",
        "similarity",
    ),
    "counted weights": (
        "capture.scores",
        "chain.joint_gates",
        "chain.scores",
        "explain.weightings",
        "pullback.counting",
        "results.routing",
        "testing.counting",
    ),
    "mixers": (
        "capture.absent",
        "capture.gates",
        "capture.mixers",
        "capture.mixing_calls",
        "capture.scans",
        "capture.side_by_side",
        "families.hybrids",
        "families.state_spaces",
    ),
    "describing": ("describing", "testing.tiny"),
    "more architectures": (
        "capture.experts",
        "capture.grids",
        "capture.loose",
        "capture.probing",
        "capture.windows",
        "families.heads.multimodal",
        "families.multimodal",
        "families.plain_decoders",
        "families.probed",
        "families.pyramids",
        "families.refused",
        "families.unusual_decoders",
        "models.gguf",
        "models.saving",
    ),
    "sounds": ("families.audio", "families.heads.sounds", "inputs.audio", "inputs.sounds"),
    "long and many inputs": ("chain.packing", "explain.batch", "explain.streaming", "pullback.flows"),
    "chats": ("inputs.chat", "results.turns"),
    "explanations of a corpus": ("cli.explained_corpus", "runs.explained_rows", "runs.explaining"),
    "verification": ("explain.cutting", "results.verification"),
}
"""Modules and packages that came with features added after the redesign."""

_NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}

Tree = Mapping[str, "Module"]
"""The modules of a package by their dotted names."""


@dataclass(frozen=True)
class Module:
    """One source file, parsed."""

    name: str
    is_package: bool
    text: str
    syntax: ast.Module


@dataclass(frozen=True)
class Measure:
    """A number of the source tree, with the goal that it is compared to."""

    name: str
    value: float
    goal: str
    note: str = ""

    def __str__(self) -> str:
        goal = f"goal {self.goal}" if self.goal else ""
        return f"{self.name:<58}{self.value:>10,.6g}   {goal:<17}{self.note}".rstrip()


def read_tree(sources: Path = SOURCES, package: str = PACKAGE) -> dict[str, Module]:
    """Every module of a package below a folder of sources."""
    modules: dict[str, Module] = {}
    for path in sorted((sources / package).rglob("*.py")):
        parts = path.relative_to(sources).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        text = path.read_text(encoding="utf-8")
        modules[name] = Module(name, is_package, text, ast.parse(text))
    return modules


def measures(tree: Tree) -> list[Measure]:
    """Every measure of a source tree."""
    code = sum(code_lines(module) for module in tree.values())
    added = {feature: _below(tree, names) for feature, names in ADDED.items()}
    later = {name: tree[name] for names in added.values() for name in names}
    later_code = sum(code_lines(module) for module in later.values())
    shares = ", ".join(f"{feature} {len(names)}" for feature, names in added.items())
    knot = largest_knot(imports(tree))
    option, declared = max(((name, declarations(tree, name)) for name in OPTIONS), key=lambda item: item[1])
    forks = _count(tree, lambda node: isinstance(node, ast.MatchClass) and ast.unparse(node.cls).endswith("Fork"))
    untyped = _count(tree, lambda node: isinstance(node, ast.Name) and node.id == "Any")
    return [
        Measure("modules of the features at the redesign", len(tree) - len(later), "about 210"),
        Measure("modules of features added since", len(later), "", shares),
        Measure("modules at the root", sum(_is_at_root(module) for module in tree.values()), "<= 10"),
        Measure("code lines (no blanks, comments, docstrings)", code, ""),
        Measure("... in modules of the features at the redesign", code - later_code, "<= 26,300"),
        Measure("... in modules of features added since", later_code, ""),
        Measure("modules in the largest import knot", len(knot), "<= 2", ", ".join(sorted(knot))),
        Measure("places with `case Fork()`", forks, "3"),
        Measure("declarations of the option declared most often", declared, "<= 6", option),
        Measure("lines of `run_command`", function_length(tree, "run_command"), "< 40"),
        Measure("`Any` for every 1,000 code lines", 1000 * untyped / max(1, code), "<= 8"),
    ]


def _below(tree: Tree, names: Iterable[str]) -> set[str]:
    """The modules of these names, those of packages included. Names are without the package itself."""
    whole = {f"{PACKAGE}.{name}" for name in names}
    return {module for module in tree if whole & {module, *_packages(module)}}


def _packages(name: str) -> Iterator[str]:
    """The packages that a module lies in, the innermost first."""
    while name := name.rpartition(".")[0]:
        yield name


def code_lines(module: Module) -> int:
    """The lines of a module that hold code: no blanks, no comments, no docstrings."""
    documented = {
        line
        for node in ast.walk(module.syntax)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in _NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


def imports(tree: Tree) -> dict[str, set[str]]:
    """The modules of the package that each module imports, wherever in the file it does."""
    return {name: {target for target in _imported(module, tree) if target != name} for name, module in tree.items()}


def _imported(module: Module, tree: Tree) -> Iterator[str]:
    for node in ast.walk(module.syntax):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in tree)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node)
            for alias in node.names:
                yield from [name for name in (f"{base}.{alias.name}", base) if name in tree][:1]


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    package = parts[: len(parts) - node.level + module.is_package]
    return ".".join([*package, *([node.module] if node.module else [])])


def largest_knot(graph: Mapping[str, set[str]]) -> set[str]:
    """The largest set of modules that all reach each other; a single module if there is no cycle."""
    reached = {name: _reached(graph, name) for name in graph}
    knots = ({name, *(other for other in reached[name] if name in reached[other])} for name in graph)
    return max(knots, key=len, default=set())


def _reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def declarations(tree: Tree, option: str) -> int:
    """How often a name is declared: as a parameter of a function, or as an annotated field of a class."""
    return _count(tree, lambda node: isinstance(node, ast.arg) and node.arg == option) + _count(
        tree,
        lambda node: (
            isinstance(node, ast.ClassDef)
            and any(
                isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.target.id == option
                for item in node.body
            )
        ),
    )


def function_length(tree: Tree, name: str) -> int:
    """The lines of the longest function of a name, signature included; 0 if there is none."""
    found = (
        (node.end_lineno or node.lineno) - node.lineno + 1
        for module in tree.values()
        for node in ast.walk(module.syntax)
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    return max(found, default=0)


def _is_at_root(module: Module) -> bool:
    """Whether a file lies in the package's own folder."""
    depth = module.name.count(".")
    return depth == 0 or (depth == 1 and not module.is_package)


def _count(tree: Tree, matches: Callable[[ast.AST], bool]) -> int:
    return sum(matches(node) for module in tree.values() for node in ast.walk(module.syntax))


if __name__ == "__main__":
    print(*measures(read_tree()), sep="\n")
