"""Tables and facts from the registries of normscope, as Markdown: experiments, architectures, methods, options."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from normscope.cli.models import describe
from normscope.corpora import Corpus
from normscope.experiments import EXPERIMENTS
from normscope.families import supported_models
from normscope.methods import available_methods
from normscope.options import documented_fields


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def experiment_names() -> list[str]:
    return list(EXPERIMENTS)


def experiment_table(_: str = "") -> str:
    """Every experiment: its page, its paper, what it shows."""
    rows = [
        [f"[`{name}`]({name}.md)", kind.paper, kind.shows, _escaped(kind.summary)] for name, kind in EXPERIMENTS.items()
    ]
    return table(["experiment", "paper", "shows", "says"], rows)


def experiment_facts(name: str) -> str:
    """What the code of an experiment says about itself: paper, options, columns of its tables."""
    kind = EXPERIMENTS[name]
    parts = [table(["paper", "shows"], [[kind.paper, kind.shows]])]
    options = [[f"`{option.name}`", f"`{_shown(option.default)}`"] for option in fields(kind)]
    if options:
        about = inspect.getdoc(EXPERIMENTS.declaration(name)) or ""
        parts += ["## Options", table(["option", "default"], options), _escaped(about)]
        example = fields(kind)[0]
        setting = f"{name}.{example.name}={_shown(example.default)}"
        parts.append(f"Options are given as `-O {setting}`, or in Python as `options={{...}}`.")
    columns = [[f"`{column}`", _escaped(text)] for column, text in kind.columns.items()]
    parts += ["## Columns of the tables", table(["column", "is"], columns)]
    return "\n\n".join(parts)


def architecture_table(_: str = "") -> str:
    """Every supported `model_type`, as `normscope models` lists them."""
    headings = ["`model_type`", "family", "kind", "topology", "feed-forward", "attention", "chain"]
    rows = [[f"`{model_type}`", *describe(model_type, family)] for model_type, family in supported_models().items()]
    return f"{len(rows)} architectures:\n\n" + table(headings, rows)


def method_table(_: str = "") -> str:
    """Every method: what a number means, what it costs, where it comes from."""
    rows = [
        [f"`{each.name}`", each.gives, _escaped(each.summary), each.cost, each.paper] for each in available_methods()
    ]
    return table(["method", "gives", "a number is", "cost", "paper"], rows)


def corpus_options(_: str = "") -> str:
    """The options of a corpus, which are the same in Python and on the command line."""
    rows = [
        [
            f"`{item.name}`",
            ", ".join(f"`{flag}`" for flag in item.documentation.flags or (f"--{item.name.replace('_', '-')}",)),
            f"`{_shown(item.default)}`",
            _escaped(item.documentation.text),
        ]
        for item in documented_fields(Corpus)
    ]
    return table(["Python", "command line", "default", "means"], rows)


def _shown(value: Any) -> str:
    return ",".join(str(item) for item in value) if isinstance(value, tuple) else str(value)


def _escaped(text: str) -> str:
    """Plain text that Markdown leaves as it is: `||f(x)||` is no table, `[CLS]` no link."""
    return text.replace("||", "‖").replace("[", "\\[").replace("*", "\\*").replace("<", "&lt;")
