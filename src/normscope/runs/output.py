"""The output of a run: tables as Parquet and CSV, figures as SVG and PNG, and the manifest.

The manifest records what was requested, what was found, and what was done with the sequences.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import torch

from normscope.errors import FileError
from normscope.experiments import Experiment
from normscope.experiments.base import Approximated, Outcome
from normscope.experiments.observer import Plan
from normscope.paths import MANIFEST, checksum
from normscope.plots.picture import legible
from normscope.plots.style import publication
from normscope.results.files import replacing
from normscope.runs.driver import Driver


def manifest_of(
    driver: Driver, record: dict[str, object], outcomes: Mapping[str, Outcome], seconds: float
) -> dict[str, object]:
    """The manifest without the names of written tables and figures."""
    worst = driver.completeness.moments.get("worst")
    experiments = driver.settings.experiments
    masking = {item.name: _masking(item, driver.plan) for item in experiments}
    return {
        "settings": record,
        "model": driver.analyzer.facts,
        "sequences": driver.spool.sequences,
        "tokens": driver.spool.tokens,
        "rows_left_out_or_changed": driver.problems.counts,
        "problems": driver.problems.examples,
        "worst_completeness_error": None if worst is None else float(worst.maximum()[0]),
        "approximate": None
        if driver.approximated is None
        else {**asdict(driver.approximated), "note": str(driver.approximated)},
        "masked": any(facts["masked"] for facts in masking.values()),
        "threads": torch.get_num_threads(),
        "seconds": round(seconds, 1),
        "experiments": {
            item.name: {
                **masking[item.name],
                "notes": _unmasked(item, driver.plan) + outcomes[item.name].notes,
                "columns": {**item.columns, **(Approximated.columns if driver.approximated is not None else {})},
            }
            for item in experiments
        },
    }


def _unmasked(item: Experiment, plan: Plan) -> list[str]:
    """A note where tokens should have been masked and could not be."""
    needs = item.needs(plan.model)
    if not needs.masked or plan.masks(needs) or plan.settings.masking == "none":
        return []
    return [f"No tokens were masked, as the paper does: {_cannot_mask(plan)}."]


def _cannot_mask(plan: Plan) -> str:
    if plan.mask_id is None:
        return f"{plan.model.name} has no mask token"
    return f"{plan.model.name} is causal and not trained on masked tokens (--masking all masks them all the same)"


def _masking(item: Experiment, plan: Plan) -> dict[str, object]:
    """Whether an experiment saw masked sequences, and why (not)."""
    needs = item.needs(plan.model)
    if not needs.corpus:
        reason = "it reads no sequences"
    elif plan.masks(needs):
        reason = "requested for all experiments" if plan.settings.masking == "all" else "as in the paper"
    elif plan.settings.masking == "none":
        reason = "masking was switched off"
    elif needs.masked:
        reason = f"the paper masks tokens, but {_cannot_mask(plan)}"
    else:
        reason = "the experiment masks no tokens"
    return {"masked": plan.masks(needs), "masking": reason}


# ---- Tables and figures ----------------------------------------------------------------------------------------------

_PACKAGES = (
    "normscope",
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "scipy",
    "xarray",
    "pyarrow",
    "duckdb",
    "matplotlib",
)


def write(folder: Path, outcomes: Mapping[str, Outcome], manifest: dict[str, Any]) -> None:
    """Writes tables and figures, records their names and checksums in the manifest, and writes the manifest last."""
    try:
        for name in ("tables", "figures"):
            (folder / name).mkdir(exist_ok=True)
    except OSError as error:
        raise FileError(f"The folder {str(folder)!r} cannot be written: {error.strerror or error}.") from error
    files: dict[str, object] = {}
    for name, outcome in outcomes.items():
        files |= {str(path.relative_to(folder)): checksum(path) for path in _write_outcome(folder, outcome)}
        written = {"tables": list(outcome.tables), "figures": list(outcome.figures)}
        manifest["experiments"][name] = {**written, **manifest["experiments"][name]}
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    whole = {**manifest, "versions": versions(), "finished": finished, "files": files}
    with replacing(folder / MANIFEST) as path:
        path.write_text(json.dumps(whole, indent=2, ensure_ascii=False, default=str) + "\n", encoding="utf-8")


def _write_outcome(folder: Path, outcome: Outcome) -> list[Path]:
    """Writes the tables and figures of an experiment; returns their paths."""
    written: list[Path] = []
    for name, table in outcome.tables.items():
        for suffix, write_table in (("parquet", pq.write_table), ("csv", pa_csv.write_csv)):
            written.append(folder / "tables" / f"{name}.{suffix}")
            with replacing(written[-1]) as path:
                write_table(table, path)
    for name, draw in outcome.figures.items():
        with publication(), mpl.rc_context({"svg.hashsalt": name}):
            figure = draw()
            for suffix, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
                written.append(folder / "figures" / f"{name}.{suffix}")
                with replacing(written[-1]) as path, legible(figure, text_stays=suffix == "svg"):
                    figure.savefig(path, format=suffix, dpi=150, metadata=metadata)
    return written


def versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {package: version(package) for package in _PACKAGES}
