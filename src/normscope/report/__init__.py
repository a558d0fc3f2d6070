"""One self-contained HTML page about one run or several, side by side: figures, tables, and how they came about.

Everything is inside the file (figures as data, styles inline, no script), and every text from a run is escaped.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial as bind
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from normscope.errors import FileError, InputError
from normscope.experiments.arrow import Table
from normscope.files import replacing
from normscope.report.tables import comparison, html_table

__all__ = ["write_report"]

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 100rem; padding: 0 1.5rem; }
h1 { font-size: 1.6rem; } h2 { margin-top: 3rem; border-bottom: 1px solid var(--line); } h3 { font-size: 1rem; }
.runs { display: grid; gap: 2rem; grid-template-columns: repeat(auto-fit, minmax(min(34rem, 100%), 1fr)); }
.runs > section { min-width: 0; }
img { background: #fff; max-width: 100%; border: 1px solid var(--line); border-radius: 4px; }
.scroll { overflow-x: auto; max-height: 34rem; overflow-y: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .6rem; border-bottom: 1px solid var(--soft); text-align: left; white-space: nowrap; }
th { position: sticky; top: 0; background: Canvas; } td.number { text-align: right; }
summary { cursor: pointer; } dt { font-weight: 600; } dl { font-size: 13px; } code { font-size: 13px; }
"""


@dataclass(frozen=True)
class FinishedRun:
    """A run's folder and its manifest."""

    folder: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, folder: str | Path) -> FinishedRun:
        path = Path(folder)
        manifest = path / "manifest.json"
        if not manifest.is_file():
            unfinished = " Its run is not finished: run the same command again." if (path / "run.json").exists() else ""
            raise InputError(f"{str(path)!r} holds no finished run (no manifest.json).{unfinished}")
        try:
            return cls(path, json.loads(manifest.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise FileError(f"{str(manifest)!r} cannot be read: {error}.") from error

    @property
    def title(self) -> str:
        return str(self.manifest["model"]["model"])

    @property
    def experiments(self) -> dict[str, Any]:
        return self.manifest["experiments"]

    def table(self, name: str) -> Table:
        try:
            return pq.read_table(self.folder / "tables" / f"{name}.parquet")
        except (OSError, pa.ArrowInvalid) as error:
            raise FileError(f"The table {name!r} of {str(self.folder)!r} cannot be read: {error}.") from error

    def figure(self, name: str) -> bytes:
        try:
            return (self.folder / "figures" / f"{name}.svg").read_bytes()
        except OSError as error:
            raise FileError(f"The figure {name!r} of {str(self.folder)!r} cannot be read: {error}.") from error


def write_report(runs: Sequence[str | Path], out: str | Path | None = None) -> Path:
    """Write the report of finished runs (default: `report.html` in the first run's folder)."""
    if not runs:
        raise InputError("Name at least one run's folder.")
    opened = [FinishedRun.open(folder) for folder in runs]
    path = opened[0].folder / "report.html" if out is None else Path(out)
    page = _page(opened)
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def _page(runs: list[FinishedRun]) -> str:
    names = list(dict.fromkeys(name for run in runs for name in run.experiments))
    title = "normscope: " + ", ".join(dict.fromkeys(run.title for run in runs))
    parts = [f"<h1>{escape(title)}</h1>", _side_by_side(runs, _facts)]
    for name in names:
        having = [run for run in runs if name in run.experiments]
        parts.append(f"<h2 id='{escape(name)}'>{escape(name)}</h2>")
        parts += _compared(having, name)
        parts.append(_side_by_side(having, bind(_experiment, name)))
        parts.append(_columns(having[0], name))
    listed = " · ".join(f"<a href='#{escape(name)}'>{escape(name)}</a>" for name in names)
    parts.insert(1, f"<p>{listed}</p>")
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _side_by_side(runs: list[FinishedRun], show: Callable[[FinishedRun], str]) -> str:
    return "<div class='runs'>" + "".join(f"<section>{show(run)}</section>" for run in runs) + "</div>"


def _facts(run: FinishedRun) -> str:
    manifest, settings = run.manifest, run.manifest["settings"]
    corpus = settings.get("corpus") or {}
    rows = {
        "model": run.title,
        "weights": f"{manifest['model']['fingerprint']} ({manifest['model']['dtype']})",
        "corpus": f"{corpus.get('path', 'none')} ({settings.get('corpus_fingerprint') or '-'})",
        "sequences": f"{manifest['sequences']} ({manifest['tokens']} tokens)",
        "left out or cut": ", ".join(f"{kind}: {n}" for kind, n in manifest["rows_left_out_or_changed"].items())
        or "none",
        "masking, seed": f"{settings['masking']}, {settings['seed']}",
        "worst completeness error": manifest["worst_completeness_error"],
        "normscope": manifest["versions"]["normscope"],
        "finished": manifest["finished"],
    }
    lines = "".join(f"<tr><th>{escape(key)}</th><td>{escape(str(value))}</td></tr>" for key, value in rows.items())
    whole = escape(json.dumps(manifest, indent=2, ensure_ascii=False))
    return (
        f"<h3>{escape(str(run.folder.name))}</h3><table>{lines}</table>"
        f"<details><summary>manifest</summary><div class='scroll'><pre><code>{whole}</code></pre></div></details>"
    )


def _compared(runs: list[FinishedRun], name: str) -> list[str]:
    """For several runs, the first table of the experiment with a column for each."""
    if len(runs) < 2:
        return []
    first = runs[0].experiments[name]["tables"][0]
    table = comparison([(f"{run.title} ({run.folder.name})", run.table(first)) for run in runs])
    return [] if table is None else [f"<h3>side by side: {escape(first)}</h3>", html_table(table)]


def _experiment(name: str, run: FinishedRun) -> str:
    parts = [f"<h3>{escape(run.title)}</h3>"]
    for figure in run.experiments[name]["figures"]:
        data = base64.b64encode(run.figure(figure)).decode()
        parts.append(f"<p><img alt='{escape(figure)}' src='data:image/svg+xml;base64,{data}'></p>")
    for place, table in enumerate(run.experiments[name]["tables"]):
        opened = " open" if place == 0 else ""
        parts.append(f"<details{opened}><summary>{escape(table)}</summary>{html_table(run.table(table))}</details>")
    return "".join(parts)


def _columns(run: FinishedRun, name: str) -> str:
    found = run.experiments[name].get("columns", {})
    entries = "".join(f"<dt>{escape(key)}</dt><dd>{escape(str(value))}</dd>" for key, value in found.items())
    return f"<details><summary>what the columns mean</summary><dl>{entries}</dl></details>"
