"""One self-contained HTML page about one run or several, side by side: figures, tables, and manifests.

The file is self-contained: figures as data, styles inline, and one small script, allowed by its hash, that sorts tables.
The page is a template that escapes every text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files as resources
from io import BytesIO
from itertools import combinations
from pathlib import Path
from typing import Any

from normscope.errors import InputError, require_corpus_extra

require_corpus_extra("A report about runs")

from jinja2 import Environment, PackageLoader
from matplotlib.figure import Figure

from normscope.experiments import EXPERIMENTS
from normscope.experiments.base import name_as_words
from normscope.experiments.published import agreement
from normscope.paths import PAGES, ending
from normscope.plots.style import publication
from normscope.report.across import Across, across_models, omitted_across
from normscope.report.across_figures import (
    drawn_across,
    drawn_effects,
    effects_across,
    effects_title,
    omitted_effects,
)
from normscope.report.run import Run
from normscope.report.tables import ShownTable, comparison, drawn, pooled_tables
from normscope.results.files import replacing

__all__ = ["Across", "tables_across", "write_report"]


def tables_across(runs: Sequence[str | Path], *, together: bool = False) -> list[Across]:
    """The tables that span the models of several finished runs, as the papers print them: a row for each model.

    Examples:
        >>> from normscope.runs import run
        >>> from normscope.report import tables_across
        >>> for seed in (0, 1):
        ...     _ = run(["mixing-ratio"], corpus=["The opera singer caught a soap bubble."], seed=seed, out=f"runs/{seed}")
        >>> (table,) = tables_across(["runs/0", "runs/1"])
        >>> table.columns
        ['AttnW', 'Attn', 'AttnResW', 'AttnRes', 'AttnResLn']
    """
    return across_models([Run.open(folder) for folder in runs], together=together)


def write_report(runs: Sequence[str | Path], out: str | Path | None = None, *, together: bool = False) -> Path:
    """Write the report of finished runs (default: `report.html` in the first run's folder).

    Several runs have figures and tables that span their models. `together` shows several runs as one: the mean and the
    deviation of every number over the runs (seeds, or models); across models, the seeds of each model are one row.

    Examples:
        >>> from normscope.runs import run
        >>> from normscope.report import write_report
        >>> _ = run(["ff-norms"], corpus=["The opera singer caught a soap bubble."], out="runs/norms")
        >>> write_report(["runs/norms"]).name
        'report.html'
    """
    if not runs:
        raise InputError("Name at least one run's folder.")
    if together and len(runs) < 2:
        raise InputError("Pooling (together) needs several runs: name at least two.")
    finished = [Run.open(folder) for folder in runs]
    if together:
        _refuse_twins(finished)
    path = finished[0].folder / "report.html" if out is None else Path(out)
    ending(path, PAGES)
    page = _page(finished, together=together)
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def _refuse_twins(runs: list[Run]) -> None:
    """Refuse to pool a run with itself or with a copy: its deviation would be none, whatever that of the model is."""
    for first, second in combinations(runs, 2):
        if all(first.manifest[name] == second.manifest[name] for name in ("model", "settings")):
            raise InputError(
                f"{str(first.folder)!r} and {str(second.folder)!r} are the same run: same weights, same settings, same seed."
                f" Runs that are pooled (together) differ in their model or in their seed."
            )


def _page(runs: list[Run], *, together: bool) -> str:
    environment = Environment(
        loader=PackageLoader("normscope.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["cell"] = _cell
    environment.tests["number"] = _is_number
    script = (resources("normscope.report") / "templates" / "report.js").read_text(encoding="utf-8")
    names = list(dict.fromkeys(name for run in runs for name in run.experiments))
    return environment.get_template("report.html").render(
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        title="normscope: " + ", ".join(dict.fromkeys(run.title for run in runs)),
        runs=[
            {
                "name": run.folder.name,
                "facts": run.facts(),
                "manifest": json.dumps(run.manifest, indent=2, ensure_ascii=False),
            }
            for run in runs
        ],
        across=_across(runs, together=together),
        experiments=[
            _shown(name, [run for run in runs if name in run.experiments], together=together) for name in names
        ],
    )


def _across(runs: list[Run], *, together: bool) -> list[dict[str, object]]:
    """The tables and figures that span the models of several runs."""
    sections: list[dict[str, Any]] = [
        {"title": table.title, "table": table, "figure": _encoded(drawn_across(table)), "note": table.note}
        | {"caption": EXPERIMENTS[table.experiment].across_caption}
        for table in across_models(runs, together=together)
    ]
    sections += [
        {"title": effects_title(effects.experiment), "table": None, "note": effects.note}
        | {"figure": _encoded(drawn_effects(effects)), "caption": EXPERIMENTS[effects.experiment].across_caption}
        for effects in effects_across(runs, together=together)
    ]
    omitted = omitted_across(runs) | omitted_effects(runs)
    return sections + [{"title": title, "note": note} for title, note in omitted.items()]


def _shown(name: str, runs: list[Run], *, together: bool) -> dict[str, object]:
    """The section of one experiment; a single run is shown as it is."""
    return _pooled(name, runs) if together and len(runs) > 1 else _experiment(name, runs)


def _pooled(name: str, runs: list[Run]) -> dict[str, Any]:
    """The section of an experiment over several runs as one."""
    tables = pooled_tables(runs, name)
    figures = {title: drawn(title, table) for title, table in tables.items()}
    outcome = {
        "title": f"mean ± deviation over {len(runs)} runs",
        "notes": list(dict.fromkeys(note for run in runs for note in run.experiments[name].get("notes", []))),
        "figures": [
            {"caption": _caption(name, title), "data": _encoded(figure)}
            for title, figure in figures.items()
            if figure is not None
        ],
        "tables": [ShownTable.of(title, table) for title, table in tables.items()],
    }
    return {
        "name": name,
        "summary": _summary(name),
        "comparison": None,
        "runs": [outcome],
        "columns": runs[0].experiments[name].get("columns", {}),
    }


def _encoded(figure: Figure) -> str:
    with publication():
        stream = BytesIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return base64.b64encode(stream.getvalue()).decode()


def _experiment(name: str, runs: list[Run]) -> dict[str, Any]:
    """The section of an experiment; with several runs, also its first table with a column for each of them."""
    return {
        "name": name,
        "summary": _summary(name),
        "comparison": _comparison(name, runs) if len(runs) > 1 else None,
        "runs": [_outcome(name, run) for run in runs],
        "columns": runs[0].experiments[name].get("columns", {}),
    }


def _comparison(name: str, runs: list[Run]) -> ShownTable | None:
    """Columns are named by model and folder, with the full path where names of folders are not unique."""
    first = runs[0].experiments[name]["tables"][0]
    alike = len({(run.title, run.folder.name) for run in runs}) < len(runs)
    names = [f"{run.title} ({run.folder if alike else run.folder.name})" for run in runs]
    table = comparison([(name, run.table(first)) for name, run in zip(names, runs, strict=True)])
    return None if table is None else ShownTable.of(first, table)


def _outcome(name: str, run: Run) -> dict[str, Any]:
    contents = run.experiments[name]
    tables = [run.table(table) for table in contents["tables"]]
    return {
        "title": run.title,
        "finding": None if name not in EXPERIMENTS else EXPERIMENTS[name].finding(tables),
        "agreement": agreement(tables),
        "notes": contents.get("notes", []),
        "figures": [
            {"caption": _caption(name, figure), "data": base64.b64encode(run.figure(figure)).decode()}
            for figure in contents["figures"]
        ],
        "tables": [ShownTable.of(title, table) for title, table in zip(contents["tables"], tables, strict=True)],
    }


def _summary(experiment: str) -> str:
    """What the experiment is about, if this version knows it."""
    known = EXPERIMENTS.get(experiment)
    if known is None:
        return ""
    sentence = known.summary[:1].upper() + known.summary[1:]
    return sentence if sentence.endswith("?") else f"{sentence}."


def _caption(experiment: str, figure: str) -> str:
    """What a figure shows, if this version knows the experiment; else its name as words."""
    known = EXPERIMENTS.get(experiment)
    return name_as_words(figure) if known is None else known.caption(figure)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: object) -> str:
    """A value of a table as text; autoescaping follows."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
