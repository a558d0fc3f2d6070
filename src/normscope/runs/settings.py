"""Everything that the tables of a run depend on, as one value: written beside them, and compared before a run resumes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import torch

from normscope.corpora import Corpus
from normscope.errors import InputError
from normscope.experiments import Experiment, check_approximable
from normscope.options import ApproximationName, Arithmetic, FeedForwardBaseline, Masking, StackName, ValueBias

LAYOUT = 2
"""The layout of `run.json`. The first had no number."""


@dataclass(frozen=True)
class Settings:
    """The settings of a run; `dtype` is that of the arithmetic, `stack` the one of two that is looked at.

    `model`, the facts that identify its weights, is known once the model is loaded, and the fingerprint of all tokens once
    the corpus is read.
    """

    experiments: tuple[Experiment, ...]
    corpus: Corpus | None = None
    masking: Masking = "paper"
    seed: int = 0
    shard_size: int = 16
    corpus_name: str = ""
    ranks: str | None = None
    value_bias: ValueBias = "token"
    ff_baseline: FeedForwardBaseline = "zero"
    dtype: Arithmetic | None = None
    stack: StackName | None = None
    approximate: ApproximationName | None = None
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
        check_choice("masking", self.masking, get_args(Masking))
        check_choice("value_bias", self.value_bias, get_args(ValueBias))
        check_choice("ff_baseline", self.ff_baseline, get_args(FeedForwardBaseline))
        check_choice("The stack", self.stack, (None, *get_args(StackName)))
        check_choice("The arithmetic", self.dtype, (None, *get_args(Arithmetic)))
        check_choice("approximate", self.approximate, (None, *get_args(ApproximationName)))
        if self.approximate is not None:
            check_approximable([item.name for item in self.experiments if not item.ranks_only], self.approximate)

    @property
    def torch_dtype(self) -> torch.dtype | None:
        return None if self.dtype is None else {"float32": torch.float32, "float64": torch.float64}[self.dtype]

    @property
    def conventions(self) -> str:
        """What is counted otherwise than in the papers."""
        given = {"value_bias": self.value_bias != "token", "ff_baseline": self.ff_baseline != "zero"}
        return " and ".join(f"{name}='bias'" for name, otherwise in given.items() if otherwise)

    def record(self) -> dict[str, Any]:
        """The settings as JSON values."""
        values = {
            "layout": LAYOUT,
            "normscope": version("normscope"),
            "experiments": {item.name: item.options() for item in self.experiments},
            "model": self.model,
            "corpus": None if self.corpus is None else self.corpus.settings(),
            "corpus_fingerprint": None if self.corpus is None else self.corpus.fingerprint(),
            "tokens_fingerprint": self.tokens_fingerprint,
            "masking": self.masking,
            "seed": self.seed,
            "shard_size": self.shard_size,
            "corpus_name": self.corpus_name,
            "ranks": self.ranks,
            "ranks_fingerprint": None if self.ranks is None else _fingerprint(Path(self.ranks)),
            "value_bias": self.value_bias,
            "ff_baseline": self.ff_baseline,
            "dtype": self.dtype,
            "stack": self.stack,
            "approximate": self.approximate,
        }
        return json.loads(json.dumps(values, default=str))


def identity(record: dict[str, Any]) -> str:
    """A hash of the settings of a run, by which its shards are known."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]


def check_choice(what: str, value: object, choices: tuple[object, ...]) -> None:
    """Refuse a value that a setting does not have."""
    if value not in choices:
        *others, last = [str(choice) for choice in choices if choice is not None]
        raise InputError(f"{what} is {', '.join(others)} or {last}, not {value!r}.")


def arithmetic(dtype: torch.dtype | str | None) -> Arithmetic | None:
    """The name of the arithmetic that a dtype stands for; refuses those in which nothing is decomposed."""
    match str(dtype).removeprefix("torch."):
        case "None":
            return None
        case "float32" | "float64" as name:
            return name
        case other:
            raise InputError(f"The decomposition runs in float32 or float64, not in {other}.")


_ABSENT = object()
"""A setting that a record lacks, such as one of an earlier version: it is not the same as none."""


def differences(first: Any, second: Any, prefix: str = "") -> list[str]:
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
