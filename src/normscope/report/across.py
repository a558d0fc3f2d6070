"""Runs of several models as the papers print them: a row for each model, and a column for each component or scope.

The papers' own models are rows of their own, from what was published. A run that lacks an experiment is not in its table.
With `together`, the seeds of one model are one row: their mean, and their deviation (n - 1).
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from normscope.experiments.chain import component_name
from normscope.experiments.expansion import published_rates
from normscope.experiments.mixing import published_ratio
from normscope.experiments.published import TITLES, WIKIPEDIA, Paper
from normscope.experiments.scope_similarity import published_similarity
from normscope.experiments.similarity import PUBLISHED, MapComparison
from normscope.experiments.tables import Row
from normscope.models.source import short_name
from normscope.report.run import Run
from normscope.scopes import Scope, scopes_of

_SEED = re.compile(r"[-_]seed[-_]?\d+$")
"""How the name of a model ends that differs from others in its seed alone."""

_BERT = scopes_of(["Attn", "Res", "Ln", "Ff", "Res", "Ln"])


@dataclass(frozen=True)
class Number:
    """A measured or published value; the error is its standard error over sequences or, for several runs, the deviation
    over them. `published` is the paper's value for the same model, corpus and masking."""

    value: float
    error: float | None = None
    published: float | None = None


@dataclass(frozen=True)
class ModelRow:
    """A model: its numbers by column, over `runs` runs, or as a paper has them."""

    name: str
    numbers: dict[str, Number]
    runs: int = 1
    of_paper: bool = False


@dataclass(frozen=True)
class Across:
    """One table across models; `digits` are those after the point, of values as they are shown (`percent` or not)."""

    experiment: str
    title: str
    columns: list[str]
    rows: list[ModelRow]
    note: str = ""
    percent: bool = False
    digits: int = 3

    @property
    def measured(self) -> list[ModelRow]:
        return [row for row in self.rows if not row.of_paper]

    @property
    def published(self) -> list[ModelRow]:
        return [row for row in self.rows if row.of_paper]

    def shown(self, value: float) -> float:
        """A value in the unit of the table."""
        return 100 * value if self.percent else value

    def cell(self, row: ModelRow, column: str, *, error: bool = True) -> str:
        """A number as text, with its error or without it; a published one as the papers print it."""
        number = row.numbers.get(column)
        if number is None:
            return ""
        if row.of_paper:
            return f"{self.shown(number.value):.{1 if self.percent else 2}f}"
        within = number.error if error else None
        suffix = "" if within is None else f" ± {_rounded(self.shown(within), self.digits)}"
        return f"{self.shown(number.value):.{self.digits}f}{suffix}"


def _rounded(error: float, digits: int) -> str:
    """An error in as many digits as its value, or in one that is not zero."""
    return f"{error:.{digits}f}" if error >= 0.5 * 10**-digits else f"{error:.1g}"


@dataclass(frozen=True)
class _Form:
    """How an experiment becomes tables: its numbers in a run, by the variant they are of, and those of a paper's model."""

    experiment: str
    title: str
    read: Callable[[Run], dict[str, dict[str, Number]]]
    of_paper: Callable[[Paper, str], dict[str, float | None]]
    percent: bool = False
    digits: int = 3


def across_models(runs: Sequence[Run], *, together: bool = False) -> list[Across]:
    """All tables that span the runs, of those experiments that at least two rows have."""
    return [table for form in _FORMS for table in _tables(form, runs, together=together)]


def omitted_across(runs: Sequence[Run]) -> dict[str, str]:
    """Titles of tables that do not exist because too few runs can be read, each with a sentence that says so."""
    omitted: dict[str, str] = {}
    for form in _FORMS:
        readable, unreadable = _read(form, runs)
        if unreadable and len(readable) < 2 <= len(readable) + len(unreadable):
            omitted[form.title] = left_out(unreadable, form.experiment)
    return omitted


def _tables(form: _Form, runs: Sequence[Run], *, together: bool) -> Iterable[Across]:
    readable, unreadable = _read(form, runs)
    for variant in dict.fromkeys(variant for _, variants in readable for variant in variants):
        having = [(run, variants[variant]) for run, variants in readable if variants.get(variant)]
        if len(having) < 2:
            continue
        rows = _rows(having, together=together)
        columns = list(dict.fromkeys(column for row in rows for column in row.numbers))
        title = f"{form.title}, {variant}" if variant else form.title
        rows += _of_papers(form, variant, [run for run, _ in having])
        notes = differing([run for run, _ in having], form.experiment), left_out(unreadable, form.experiment)
        yield Across(form.experiment, title, columns, rows, " ".join(filter(None, notes)), form.percent, form.digits)


def having_table(runs: Sequence[Run], experiment: str) -> list[Run]:
    """The runs that have an experiment, with the table of its name."""
    return [run for run in runs if experiment in run.experiments.get(experiment, {}).get("tables", [])]


def _read(form: _Form, runs: Sequence[Run]) -> tuple[list[tuple[Run, dict[str, dict[str, Number]]]], list[Run]]:
    """The runs that have the table, with their numbers by variant; and those whose table lacks a column, as tables of
    another version of normscope may."""
    readable: list[tuple[Run, dict[str, dict[str, Number]]]] = []
    unreadable: list[Run] = []
    for run in having_table(runs, form.experiment):
        try:
            readable.append((run, form.read(run)))
        except (KeyError, TypeError, ValueError):
            unreadable.append(run)
    return readable, unreadable


def left_out(runs: Sequence[Run], experiment: str) -> str:
    """A sentence that names the runs whose tables cannot be read; empty if there are none."""
    if not runs:
        return ""
    names = ", ".join(f"{short_name(run.title)} ({run.folder.name})" for run in runs)
    return (
        f"Left out: {names}. The table {experiment!r} there is of another version of normscope and lacks columns that are "
        f"needed here; run the experiment again to compare it."
    )


def _rows(having: Sequence[tuple[Run, dict[str, Number]]], *, together: bool) -> list[ModelRow]:
    names = names_of([run for run, _ in having], together=together)
    rows: list[ModelRow] = []
    for name in dict.fromkeys(names):
        seeds = [numbers for (_, numbers), own in zip(having, names, strict=True) if own == name]
        rows.append(ModelRow(name, seeds[0]) if len(seeds) == 1 else _pooled(name, seeds))
    return rows


def _pooled(name: str, seeds: Sequence[dict[str, Number]]) -> ModelRow:
    """The mean and the deviation over runs; of what is an extreme, the extreme of all."""
    numbers: dict[str, Number] = {}
    for column in dict.fromkeys(column for seed in seeds for column in seed):
        own = [seed[column] for seed in seeds if column in seed]
        values, known = [number.value for number in own], {number.published for number in own}
        published = known.pop() if len(known) == 1 else None
        extreme = {MINIMUM: min, MAXIMUM: max}.get(column)
        if extreme is not None:
            numbers[column] = Number(extreme(values), published=published)
        else:
            deviation = statistics.stdev(values) if len(values) > 1 else None
            numbers[column] = Number(statistics.fmean(values), deviation, published)
    return ModelRow(name, numbers, len(seeds))


def names_of(runs: Sequence[Run], *, together: bool = False) -> list[str]:
    """The labels of the models of runs: their names, with the folder where several runs have one name. With `together`,
    models whose names differ in a seed alone share a label."""
    names = [short_name(run.title) for run in runs]
    if together:
        return [_SEED.sub("", name) for name in names]
    counts = Counter(names)
    folders = [
        f"{name} ({run.folder.name})" if counts[name] > 1 else name for name, run in zip(names, runs, strict=True)
    ]
    counts = Counter(folders)
    return [
        f"{name} ({run.folder})" if counts[folder] > 1 else folder
        for name, folder, run in zip(names, folders, runs, strict=True)
    ]


def _of_papers(form: _Form, variant: str, runs: Sequence[Run]) -> list[ModelRow]:
    """The papers' models, on Wikipedia and on other corpora of the papers that runs declare."""
    declared = [str(run.manifest["settings"].get("corpus_name", "")) for run in runs]
    rows: list[ModelRow] = []
    for model, title in TITLES.items():
        seen: list[dict[str, Number]] = []
        for corpus in dict.fromkeys([WIKIPEDIA, *filter(None, declared)]):
            known = form.of_paper(Paper(model, corpus), variant)
            numbers = {column: Number(value) for column, value in known.items() if value is not None}
            if numbers and numbers not in seen:
                seen.append(numbers)
                where = "" if corpus == WIKIPEDIA else f" on {corpus}"
                rows.append(ModelRow(f"paper: {title}{where}", numbers, of_paper=True))
    return rows


def differing(runs: Sequence[Run], experiment: str) -> str:
    """A sentence about what runs differ in besides the model; empty if in nothing."""
    settings = [run.manifest["settings"] for run in runs]
    options = [values.get("experiments", {}).get(experiment, {}) for values in settings]
    known: dict[str, list[object]] = {
        name: [values.get(name) for values in options] for name in {name for values in options for name in values}
    }
    known.pop("masked", None)  # whether tokens were masked says more than whether it was requested
    if any(run.experiments[experiment].get("masking") != "it reads no sequences" for run in runs):
        known["corpus"] = [values.get("corpus_fingerprint") for values in settings]
        known["number of sequences"] = [run.manifest.get("sequences") for run in runs]
        known["masking of tokens"] = [run.experiments[experiment].get("masked") for run in runs]
        for name in ("value_bias", "ff_baseline", "gates", "approximate"):
            known[name] = [values.get(name) for values in settings]
    names = sorted(name for name, values in known.items() if any(value != values[0] for value in values))
    return f"Besides the model, these runs differ in: {', '.join(names)}." if names else ""


# ---- experiments -------------------------------------------------------------------------------------------------------

MEAN, MINIMUM, MAXIMUM = "mean", "minimum", "maximum"


def _numbers(rows: Iterable[tuple[str, Row]], value: str, error: str = "") -> dict[str, Number]:
    """The numbers of rows by column, without missing ones."""
    return {
        column: Number(row[value], row.get(error), row.get("published"))
        for column, row in rows
        if row[value] is not None
    }


def _similarities(run: Run) -> dict[str, dict[str, Number]]:
    """By component, for every way in which maps were compared; older tables have rank correlations alone."""
    found: dict[str, list[tuple[str, Row]]] = {}
    for row in run.table("scope-similarity").to_pylist():
        component = component_name(Scope(row["second"]))
        if row["relation"] == "adjacent" and row.get("layer") is None and component is not None:
            comparison = MapComparison(row.get("correlation") or "spearman", row.get("normalisation") or "none")
            found.setdefault(comparison.title, []).append((component, row))
    return {title: _numbers(rows, "similarity", "standard_error") for title, rows in found.items()}


def _published_similarities(paper: Paper, variant: str) -> dict[str, float | None]:
    if variant != PUBLISHED.title:
        return {}
    return {
        component_name(Scope(second)) or "": published_similarity(paper, first, second)
        for first, second in pairwise(_BERT)
    }


def _mixing(run: Run) -> dict[str, dict[str, Number]]:
    rows = run.table("mixing-ratio").to_pylist()
    overall = [(row["scope"], row) for row in rows if row.get("tokens", "overall") == "overall"]
    return {"": _numbers(overall, "mean", "standard_error")}


def _published_mixing(paper: Paper, variant: str) -> dict[str, float | None]:
    del variant
    return {scope: published_ratio(paper, scope) for scope in ("AttnW", "Attn", "AttnResW", "AttnRes", "AttnResLn")}


def _expansion(run: Run) -> dict[str, dict[str, Number]]:
    rows = run.table("expansion-rate").to_pylist()
    of_layers = [row["expansion_rate"] for row in rows if row["layer"] is not None]
    means = [(MEAN, row) for row in rows if row["layer"] is None]
    numbers = _numbers(means, "expansion_rate")
    for column, choose in ((MINIMUM, min), (MAXIMUM, max)):
        known = next((row.get(f"published_{column}") for _, row in means), None)
        if of_layers:
            numbers[column] = Number(choose(of_layers), published=known)
    return {"": numbers}


def _published_expansion(paper: Paper, variant: str) -> dict[str, float | None]:
    del variant
    return dict(zip((MEAN, MINIMUM, MAXIMUM), published_rates(paper), strict=True))


_FORMS = (
    _Form("scope-similarity", "Scope similarity by component", _similarities, _published_similarities),
    _Form("mixing-ratio", "Mixing ratio by scope, in percent", _mixing, _published_mixing, percent=True, digits=1),
    _Form("expansion-rate", "Expansion rate over layers", _expansion, _published_expansion),
)
