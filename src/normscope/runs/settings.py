"""Everything that the tables of a run depend on, as one value: written next to them, and compared before a run resumes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Literal, get_args, get_origin

import torch

from normscope.corpora import Corpus
from normscope.errors import InputError
from normscope.experiments import Experiment, check_approximable
from normscope.options import Arithmetic, documented_fields
from normscope.request import RunSettings

LAYOUT = 2
"""The layout of `run.json`. The first had no number."""


@dataclass(frozen=True)
class Settings(RunSettings):
    """All settings of a run: those of `RunSettings`, its experiments and its corpus.

    `model`, the facts that identify its weights, is known once the model is loaded, and the fingerprint of all tokens once
    the corpus is read.
    """

    experiments: tuple[Experiment, ...]
    corpus: Corpus | None = None
    model: dict[str, str | int | float] = field(default_factory=dict[str, str | int | float])
    tokens_fingerprint: str = ""

    def __post_init__(self) -> None:
        names = {item.name for item in self.experiments}
        if not names or len(names) < len(self.experiments):
            raise InputError("Name at least one experiment, and each only once.")
        if self.shard_size < 1:
            raise InputError(f"shard_size is at least 1, not {self.shard_size}.")
        if self.seed < 0:
            raise InputError(f"seed is at least 0, not {self.seed}.")
        for setting in documented_fields(RunSettings):
            choices = choices_of(setting.type)
            if choices:
                check_choice(setting.name, getattr(self, setting.name), choices)
        if self.approximate is not None:
            check_approximable([item.name for item in self.experiments if not item.ranks_only], self.approximate)

    @property
    def conventions(self) -> str:
        """What is computed differently from the papers."""
        given = {"value_bias": self.value_bias != "token", "ff_baseline": self.ff_baseline != "zero"}
        names = [f"{name}='bias'" for name, otherwise in given.items() if otherwise]
        return " and ".join([*names, *(["gates='joint'"] if self.gates != "fixed" else [])])

    def record(self) -> dict[str, object]:
        """The settings as JSON values."""
        values = {
            "layout": LAYOUT,
            "normscope": version("normscope"),
            "experiments": {item.name: item.options() for item in self.experiments},
            "model": self.model,
            "corpus": None if self.corpus is None else self.corpus.settings(),
            "corpus_fingerprint": None if self.corpus is None else self.corpus.fingerprint(),
            "tokens_fingerprint": self.tokens_fingerprint,
            "ranks_fingerprint": None if self.ranks is None else _fingerprint(Path(self.ranks)),
            **{setting.name: getattr(self, setting.name) for setting in fields(RunSettings)},
        }
        return json.loads(json.dumps(values, default=str))


def identity(record: dict[str, object]) -> str:
    """A hash of the settings of a run, by which its shards are known."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]


def choices_of(kind: object) -> tuple[object, ...]:
    """The values of a `Literal`, or of one that may be `None`; none for other types."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    named = [choice for part in get_args(kind) for choice in choices_of(part)]
    return (None, *named) if named else ()


def check_choice(what: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise for a value that a setting does not have."""
    if value not in choices:
        *others, last = [str(choice) for choice in choices if choice is not None]
        raise InputError(f"{what} is {', '.join(others)} or {last}, not {value!r}.")


def arithmetic(dtype: torch.dtype | str | None) -> Arithmetic | None:
    """The name of the arithmetic that a dtype stands for; raises for one in which nothing can be decomposed."""
    match str(dtype).removeprefix("torch."):
        case "None":
            return None
        case "float32" | "float64" as name:
            return name
        case other:
            raise InputError(f"The decomposition runs in float32 or float64, not in {other}.")


_ABSENT = object()
"""A setting that a record lacks, such as one of an earlier version: it is not the same as none."""


def differences(first: object, second: object, prefix: str = "") -> list[str]:
    """The settings in which two records differ, by their dotted names."""
    if not isinstance(first, dict) or not isinstance(second, dict):
        return [] if first == second else [prefix or "its settings"]
    names: list[str] = sorted({*first, *second})
    return [
        difference
        for name in names
        for difference in differences(
            first.get(name, _ABSENT), second.get(name, _ABSENT), f"{prefix}.{name}".lstrip(".")
        )
    ]


def _fingerprint(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
