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

from normscope.checksums import checksum
from normscope.errors import FileError
from normscope.experiments.base import Outcome
from normscope.files import replacing
from normscope.plots.glyphs import legible
from normscope.plots.style import publication
from normscope.run_files import MANIFEST

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
    """Write tables and figures, note their names and checksums in the manifest, and write that last."""
    try:
        for name in ("tables", "figures"):
            (folder / name).mkdir(exist_ok=True)
    except OSError as error:
        raise FileError(f"The folder {str(folder)!r} cannot be written: {error.strerror or error}.") from error
    files: dict[str, Any] = {}
    for name, outcome in outcomes.items():
        files |= {str(path.relative_to(folder)): checksum(path) for path in _write_outcome(folder, outcome)}
        written = {"tables": list(outcome.tables), "figures": list(outcome.figures)}
        manifest["experiments"][name] = {**written, **manifest["experiments"][name]}
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    whole = {**manifest, "versions": versions(), "finished": finished, "files": files}
    with replacing(folder / MANIFEST) as path:
        path.write_text(json.dumps(whole, indent=2, ensure_ascii=False, default=str) + "\n", encoding="utf-8")


def _write_outcome(folder: Path, outcome: Outcome) -> list[Path]:
    """Write the tables and figures of an experiment; where they are."""
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
