"""The output of a run: tables as Parquet and CSV, figures as SVG and PNG, and the manifest that says how they came about."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from normscope.experiments.base import Outcome
from normscope.files import replacing

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


def write_outcome(folder: Path, outcome: Outcome) -> dict[str, list[str]]:
    """Write an experiment's tables and figures; their names."""
    for name in ("tables", "figures"):
        (folder / name).mkdir(exist_ok=True)
    for name, table in outcome.tables.items():
        with replacing(folder / "tables" / f"{name}.parquet") as path:
            pq.write_table(table, path)
        with replacing(folder / "tables" / f"{name}.csv") as path:
            pa_csv.write_csv(table, path)
    for name, draw in outcome.figures.items():
        figure = draw()
        with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
            for suffix, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
                with replacing(folder / "figures" / f"{name}.{suffix}") as path:
                    figure.savefig(path, format=suffix, dpi=150, metadata=metadata)
    return {"tables": list(outcome.tables), "figures": list(outcome.figures)}


def versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {package: version(package) for package in _PACKAGES}


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    whole = {**manifest, "versions": versions(), "finished": datetime.now(UTC).isoformat(timespec="seconds")}
    with replacing(folder / "manifest.json") as path:
        path.write_text(json.dumps(whole, indent=2, ensure_ascii=False, default=str) + "\n", encoding="utf-8")
