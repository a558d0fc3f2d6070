"""The targets. Each draws what it does; whatever is drawn, it ends in a result that is right or in a refusal that says why.

A result that is wrong, an exception that is not normscope's own, a file that a refused command left behind, and a call
that takes a minute are `Fooled`.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import shutil
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import numpy as np
import torch
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from typer.main import get_command

import normscope as ns
from normscope.cli import main
from normscope.cli.application import application

from . import samples

LONGEST = 60
"""Seconds that one attempt may take."""

Outcome = Literal["done", "refused"]
Draw = Callable[[st.SearchStrategy[Any]], Any]


class Fooled(AssertionError):
    """What must never happen."""


@dataclass
class World:
    """Where attempts take place, and what is loaded once for all of them."""

    samples: Path
    folder: Path
    analyzers: dict[str, ns.Analyzer] = field(default_factory=dict)

    def fresh(self) -> Path:
        """The folder as it was at the start."""
        os.chdir(self.samples)  # the folder that is removed may be the present one
        return samples.copy(self.samples, self.folder)

    def analyzer(self, name: str) -> ns.Analyzer:
        """A model of the samples."""
        if name not in self.analyzers:
            self.analyzers[name] = ns.load(self.samples / name)
        return self.analyzers[name]


@contextmanager
def limited(what: str) -> Generator[None]:
    """A block that may not take longer than a minute."""

    def too_long(_: int, __: FrameType | None) -> None:
        raise Fooled(f"{what} takes longer than {LONGEST} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def standard_input(text: str) -> Generator[None]:
    """A block that reads this text where it reads standard input."""
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()))
    try:
        yield
    finally:
        sys.stdin = before


def attempt(what: str, call: Callable[[], Any]) -> tuple[Outcome, Any]:
    """Call, and tell a result from a refusal; everything else is `Fooled`."""
    try:
        with limited(what):
            return "done", call()
    except ns.CompletenessError as error:
        raise Fooled(f"{what}: an honest model fails its proof: {error}") from error
    except ns.NormscopeError as error:
        if len(str(error)) < 10:
            raise Fooled(f"{what}: {error!r} says nothing") from error
        return "refused", error
    except Fooled:
        raise
    except Exception as error:
        raise Fooled(f"{what}: {type(error).__name__}: {error}") from error


# ---- command lines -------------------------------------------------------------------------------------------------------

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


# ---- calls ---------------------------------------------------------------------------------------------------------------

_INPUTS = (
    *(samples.TEXT, "", " ", "the", "the " * 100, "\udcff", "\u200b", b"the", None, 3, 1.5, [], [samples.TEXT], [[]]),
    *(("the", "bubble"), [5, 6, 7], [[5, 6, 7]], [99], [-1], [5.5], np.array([5, 6, 7]), torch.tensor([[5, 6, 7]])),
    *(torch.tensor([5.0, 6.0]), {"input_ids": [[2, 5, 3]]}, {"input_ids": [[2, 5, 3]], "attention_mask": [[1, 2, 2]]}),
)
_NUMBERS = (
    *(
        None,
        0,
        1,
        2,
        3,
        -1,
        -3,
        99,
        -99,
        10**30,
        1.0,
        1.5,
        math.nan,
        math.inf,
        True,
        "1",
        "two",
        "",
        [],
        [1],
        [1, 1],
        [0],
    ),
    *([1, "2"], (1, 2), np.int64(1), np.float64(1.5), np.array([1, 2]), torch.tensor(1), torch.tensor([1, 2]), b"1"),
)
_WORDS = (
    *(
        None,
        "",
        "Attn",
        "AttnW",
        "attnresln-n",
        "Nowhere",
        "all",
        ["Attn", "AttnRes"],
        [],
        3,
        np.array(["Attn"]),
        [None],
    ),
    b"Attn",
)
_TARGETS = (
    *(
        None,
        "the",
        "bubble",
        " bubble",
        "nothing known",
        "",
        "LABEL_0",
        "label_1",
        "LABEL_9",
        0,
        1,
        99,
        -1,
        1.5,
        True,
        [5],
    ),
    *(
        [5, 6],
        [99],
        [],
        [5.5],
        np.int64(1),
        torch.tensor(1),
        torch.tensor([5, 6]),
        np.array([5, 6]),
        ["the", "a"],
        b"the",
    ),
)
_DIRECTIONS = (
    *(
        None,
        "state",
        "foo",
        3,
        torch.ones(12),
        torch.ones(5),
        torch.ones(12, dtype=torch.int64),
        torch.full((12,), math.nan),
    ),
    *(np.ones(12), np.ones((2, 12)), [1.0] * 12, torch.zeros(12)),
)
_DTYPES = (None, None, None, torch.float64, torch.float16, torch.bfloat16, torch.int8, "float64", "nothing", 3)
_BOOLEANS = (False, True)

_CALLS: dict[str, dict[str, tuple[Any, ...]]] = {
    "analyze": {
        "inputs": _INPUTS,
        "target": (None, None, *_INPUTS),
        "scopes": _WORDS,
        "layers": _NUMBERS,
        "queries": _NUMBERS,
        "heads": _BOOLEANS,
        "method": ("norms", "alti", "nothing", 3),
        "truncate": _BOOLEANS,
        "words": _BOOLEANS,
        "value_bias": ("token", "bias", "nothing", 3),
        "dtype": _DTYPES,
        "max_memory": _NUMBERS,
    },
    "mixing_ratios": {"inputs": _INPUTS, "scopes": _WORDS, "layers": _NUMBERS, "dtype": _DTYPES, "words": _BOOLEANS},
    "explain": {
        "inputs": _INPUTS,
        "target": _TARGETS,
        "against": _TARGETS,
        "at": _NUMBERS,
        "continue_for": (None, None, *_NUMBERS),
        "direction": (None, None, *_DIRECTIONS),
        "reply": (None, None, *_INPUTS),
        "method": ("pull-back", "gradient-x-input", "random", "nothing", 3),
        "heads": _BOOLEANS,
        "truncate": _BOOLEANS,
        "dtype": _DTYPES,
        "max_memory": _NUMBERS,
    },
    "estimate": {"inputs": (*_INPUTS, *_NUMBERS), "scopes": _WORDS, "layers": _NUMBERS, "timed": (False,)},
    "estimate_explanation": {"inputs": (*_INPUTS, *_NUMBERS), "values": _NUMBERS, "timed": (False,)},
}

_OF_RESULTS: dict[str, dict[str, tuple[Any, ...]]] = {
    "map": {"layer": _NUMBERS, "head": (None, None, *_NUMBERS), "normalise": ("none", "row", "column", "x", 3, None)},
    "mixing_ratio": {},
    "rollout": {},
}


def calls(world: World, draw: Draw) -> Outcome:
    """Calls of the analyzer and of its results: finite numbers with a proof, or an error of normscope."""
    analyzer = world.analyzer(draw(st.sampled_from(samples.MODELS)))
    name = draw(st.sampled_from(sorted(_CALLS)))
    arguments = _arguments(draw, _CALLS[name])
    inputs = arguments.pop("inputs", samples.TEXT)
    what = f"{analyzer.name}: {name}({inputs!r}, {arguments})"
    outcome, result = attempt(what, lambda: getattr(analyzer, name)(inputs, **arguments))
    if outcome == "refused":
        return outcome
    for each in result if isinstance(result, list) else [result]:
        _check_numbers(what, each)
        if isinstance(each, ns.Analysis):
            name = draw(st.sampled_from(sorted(_OF_RESULTS)))
            arguments = {"scope": draw(st.sampled_from(_WORDS)), **_arguments(draw, _OF_RESULTS[name])}
            outcome, _ = attempt(f"{what}.{name}({arguments})", lambda: getattr(each, name)(**arguments))
    return outcome


def _arguments(draw: Draw, known: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """At most three arguments: of more, one that is refused hides the others."""
    names = draw(st.lists(st.sampled_from(sorted(known)), max_size=3, unique=True))
    return {name: draw(st.sampled_from(known[name])) for name in names}


def _check_numbers(what: str, result: Any) -> None:
    dataset = getattr(result, "dataset", result)
    variables = getattr(dataset, "data_vars", None)
    for name, values in {} if variables is None else variables.items():
        if values.dtype.kind == "f" and np.isinf(values.values).any():
            raise Fooled(f"{what}: {name} is infinite")


# ---- files ---------------------------------------------------------------------------------------------------------------


def files(world: World, draw: Draw) -> Outcome:
    """Damaged results: opened as they were, or refused."""
    name = draw(st.sampled_from(["result.nc", "explanation.nc", "result.zarr"]))
    folder = world.fresh()
    path = folder / name
    before = ns.open(path)
    truth = before.dataset.load()
    damaged = draw(st.sampled_from(sorted(p for p in path.rglob("*") if p.is_file()))) if path.is_dir() else path
    what = f"{name}: {damaged.relative_to(folder)} {_damage(draw, damaged)}"

    def call() -> Any:
        opened: Any = ns.open(path)
        return opened.dataset.load()

    outcome, found = attempt(what, call)
    if outcome == "done" and not found.equals(truth):
        raise Fooled(f"{what}: opens with other numbers")
    return outcome


def _damage(draw: Draw, path: Path) -> str:
    """Damage a file, and say how."""
    content = bytearray(path.read_bytes())
    kind = draw(st.sampled_from(["flip", "flip", "cut", "remove", "empty", "zeros"]))
    place = draw(st.integers(0, max(0, len(content) - 1)))
    if kind == "remove":
        path.unlink()
        return "removed"
    if kind == "flip" and content:
        content[place] ^= 1 << draw(st.integers(0, 7))
    elif kind == "cut":
        content = content[:place]
    elif kind == "empty":
        content = bytearray()
    else:
        content[place : place + 64] = bytes(len(content[place : place + 64]))
    path.write_bytes(content)
    return f"{kind} at byte {place}"


# ---- models --------------------------------------------------------------------------------------------------------------

_SETTINGS = (None, 0, -1, 1, 7, 10**12, 1.5, True, "", "many", [], {}, [1, 2], "gelu", "nothing", float("nan"))


def models(world: World, draw: Draw) -> Outcome:
    """Damaged checkpoints: maps and explanations as before, or a refusal."""
    name = draw(st.sampled_from(samples.MODELS))
    folder = world.fresh() / name
    changed = draw(st.sampled_from(["weights", "weights", "config", "file"]))
    if changed == "weights":
        what = _drop_weight(draw, folder)
    elif changed == "config":
        what = _change_setting(draw, folder)
    else:
        damaged = draw(st.sampled_from(sorted(p for p in folder.iterdir() if p.suffix in {".json", ".safetensors"})))
        what = f"{damaged.name} {_damage(draw, damaged)}"
    what = f"{name}: {what}"
    options = {"target": samples.TEXT} if name == "seq2seq" else {}
    truth = world.analyzer(name).analyze(samples.TEXT, **options)

    def call() -> Any:
        return ns.load(folder).analyze(samples.TEXT, **options)

    outcome, found = attempt(what, call)
    if outcome == "done" and changed == "weights":
        for scope in truth.scopes:
            if not np.allclose(found.map(scope), truth.map(scope), rtol=1e-4, atol=1e-6):
                raise Fooled(f"{what}: the map {scope} is another")
    return outcome


def _drop_weight(draw: Draw, folder: Path) -> str:
    path = folder / "model.safetensors"
    weights = load_file(path)
    name = draw(st.sampled_from(sorted(weights)))
    kind = draw(st.sampled_from(["missing", "renamed", "nan", "infinite", "cut"]))
    weight = weights.pop(name)
    if kind == "renamed":
        weights[f"{name}_"] = weight
    elif kind in {"nan", "infinite"}:
        weight = weight.clone()
        weight.view(-1)[0] = math.nan if kind == "nan" else math.inf
        weights[name] = weight
    elif kind == "cut":
        weights[name] = weight[: len(weight) // 2].clone()
    save_file(weights, path, metadata={"format": "pt"})
    return f"{name} {kind}"


def _change_setting(draw: Draw, folder: Path) -> str:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    name = draw(st.sampled_from(sorted(config)))
    config[name] = draw(st.sampled_from(_SETTINGS))
    path.write_text(json.dumps(config))
    return f"config {name}={config[name]!r}"


# ---- corpora and runs ----------------------------------------------------------------------------------------------------


def corpora(world: World, draw: Draw) -> Outcome:
    """Corpora of any bytes: read, or refused with their name; with `bad_rows="skip"` too."""
    from normscope.experiments import run

    folder = world.fresh()
    ending = draw(st.sampled_from(["txt", "jsonl", "csv", "tsv", "conll", "parquet", "json"]))
    path = folder / f"corpus.{ending}"
    line = st.text(max_size=30).map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=30)
    value = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        max_leaves=5,
    )
    row = st.dictionaries(st.sampled_from(["text", "sentence", "label"]), value).map(lambda v: json.dumps(v).encode())
    path.write_bytes(b"\n".join(draw(st.lists(line | row | st.just(samples.TEXT.encode()), max_size=8))))
    how = draw(st.sampled_from(["refuse", "skip"]))
    what = f"a corpus .{ending} with bad_rows={how!r}: {path.read_bytes()!r}"
    options: Any = {"corpus": str(path), "out": folder / "new-run", "bad_rows": how}
    outcome, found = attempt(what, lambda: run(["mixing-ratio"], model=world.analyzer("classifier"), **options))
    if outcome == "refused" and "Traceback" in str(found):
        raise Fooled(f"{what}: {found}")
    return outcome


def runs(world: World, draw: Draw) -> Outcome:
    """Damaged run folders: resumed to the same tables, or refused; a report of them likewise."""
    from normscope.experiments import run

    folder = world.fresh()
    out = folder / "finished"
    truth = {path.name: path.read_bytes() for path in out.rglob("*.csv")}
    damaged = draw(st.sampled_from(sorted(path for path in out.rglob("*") if path.is_file())))
    if draw(st.booleans()):
        others = sorted(path for path in out.rglob("*") if path.suffix == damaged.suffix and path != damaged)
        other = draw(st.sampled_from(others or [damaged]))
        if other != damaged:
            shutil.copyfile(other, damaged)
        what = f"{damaged.relative_to(out)} replaced by {other.relative_to(out)}"
    else:
        what = f"{damaged.relative_to(out)} {_damage(draw, damaged)}"
    options: Any = {"corpus": str(world.samples / "texts.txt"), "out": out, "shard_size": 2}
    outcome, _ = attempt(what, lambda: run(["mixing-ratio"], model=world.analyzer("classifier"), **options))
    found = {path.name: path.read_bytes() for path in out.rglob("*.csv")}
    if outcome == "done" and found != truth:
        raise Fooled(f"{what}: resumed to other tables")
    return outcome


TARGETS: dict[str, Callable[[World, Draw], Outcome]] = {
    each.__name__: each for each in (commands, calls, files, models, corpora, runs)
}
