"""Damaged results, model folders and run folders."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import normscope as ns
from normscope.runs import run

from . import samples
from .attempts import Draw, Fooled, Outcome, World, attempt, damage


def files(world: World, draw: Draw) -> Outcome:
    """Damaged results: opened as they were, or refused."""
    name = draw(st.sampled_from(["result.nc", "explanation.nc", "result.zarr"]))
    folder = world.fresh()
    path = folder / name
    before = ns.open(path)
    truth = before.dataset.load()
    damaged = draw(st.sampled_from(sorted(p for p in path.rglob("*") if p.is_file()))) if path.is_dir() else path
    what = f"{name}: {damaged.relative_to(folder)} {damage(draw, damaged)}"

    def call() -> Any:
        opened: Any = ns.open(path)
        return opened.dataset.load()

    outcome, found = attempt(what, call)
    if outcome == "done" and not found.equals(truth):
        raise Fooled(f"{what}: opens with other numbers")
    return outcome


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
        what = f"{damaged.name} {damage(draw, damaged)}"
    what = f"{name}: {what}"
    options = {"decoder_text": samples.TEXT} if name == "seq2seq" else {}
    truth = world.analyzer(name).analyze(samples.TEXT, **options)

    def call() -> Any:
        return ns.load(folder).analyze(samples.TEXT, **options)

    outcome, found = attempt(what, call)
    if outcome == "done" and changed == "weights":
        for scope in truth.scopes:
            if not np.allclose(found.map(scope), truth.map(scope), rtol=1e-4, atol=1e-6, equal_nan=True):
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


def runs(world: World, draw: Draw) -> Outcome:
    """Damaged run folders: resumed to the same tables, or refused; a report of them likewise."""
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
        what = f"{damaged.relative_to(out)} {damage(draw, damaged)}"
    options: Any = {"corpus": str(world.samples / "texts.txt"), "out": out, "shard_size": 2}
    outcome, _ = attempt(what, lambda: run(["mixing-ratio"], model=world.analyzer("classifier"), **options))
    found = {path.name: path.read_bytes() for path in out.rglob("*.csv")}
    if outcome == "done" and found != truth:
        raise Fooled(f"{what}: resumed to other tables")
    return outcome
