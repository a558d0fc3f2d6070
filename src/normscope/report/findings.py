"""What an experiment found, in one sentence of plain numbers, and how far that is from what was published.

No data is no finding: rows without the number that a sentence is about are not counted, and where none is left, there is no
sentence. Nor is there one where tables of older runs lack columns that it needs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from normscope.errors import ScopeError
from normscope.experiments import chain
from normscope.experiments.arrow import Table
from normscope.scopes import Scope

Row = dict[str, Any]


def finding(experiment: str, tables: Sequence[Table]) -> str | None:
    """The sentence of an experiment, from its tables in the order of its manifest; `None` where there is none to say."""
    tell = _SENTENCES.get(experiment)
    if tell is None or not tables:
        return None
    try:
        return tell([_without_nan(row) for row in tables[0].to_pylist()])
    except (KeyError, ValueError, StopIteration, TypeError, IndexError, ZeroDivisionError):
        return None


def _without_nan(row: Row) -> Row:
    """The row with nothing where it has something that is no number."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()
    }


def _with(rows: list[Row], *names: str) -> list[Row]:
    """The rows that have these numbers; a `ValueError` where there are none."""
    known = [row for row in rows if all(row[name] is not None for name in names)]
    if not known:
        raise ValueError(f"no row has {names}")
    return known


def agreement(tables: Sequence[Table]) -> str | None:
    """How far measured values are from the published ones beside them; `None` where there are none."""
    differences: list[float] = []
    for table in tables:
        if "published" not in table.column_names:
            continue
        numbers = [field.name for field in table.schema if pa.types.is_floating(field.type)]
        value = next((name for name in numbers if not name.startswith("published")), None)
        if value is not None:
            rows = [_without_nan(row) for row in table.to_pylist()]
            pairs = [(row[value], row["published"]) for row in rows]
            differences += [abs(one - other) for one, other in pairs if one is not None and other is not None]
    if not differences:
        return None
    values = "value" if len(differences) == 1 else "values"
    return (
        f"{len(differences)} published {values} beside measured ones: they differ by "
        f"{statistics.median(differences):.3g} (median) and {max(differences):.3g} at most."
    )


def _mixing_ratio(rows: list[Row]) -> str:
    overall = [row for row in _with(rows, "mean") if row["tokens"] == "overall"]
    weights = next(row for row in overall if row["scope"] == "AttnW")
    last = max((row for row in overall if not row["scope"].endswith("W")), key=lambda row: len(row["scope"]))
    return (
        f"At {last['scope']} {last['mean']:.0%} of a state comes from other tokens on average; attention weights alone "
        f"would say {weights['mean']:.0%}."
    )


def _scope_similarity(rows: list[Row]) -> str:
    first = _with(_first_way(rows), "similarity")
    adjacent = [row for row in first if row["relation"] == "adjacent"]
    whole = [row for row in adjacent if row.get("layer") is None] or adjacent
    least = min(whole, key=lambda row: row["similarity"])
    error = f" ± {least['standard_error']:.2g}" if least.get("standard_error") else ""
    told = (
        f"A map changes most on the way from {least['first']} to {least['second']}: there the {_correlation_of(least)} is "
        f"{least['similarity']:.2f}{error}."
    )
    around = _around_feed_forward(first)
    if around is None:
        return told
    return (
        f"{told} Of {around['first']} and {around['second']}, the feed-forward and its norms between them, it is "
        f"{around['similarity']:.2f}."
    )


def _around_feed_forward(rows: list[Row]) -> Row | None:
    """The row of the scopes around the feed-forward with its norms and residual: AttnRes and the whole layer in a BERT."""
    scopes = [Scope(name) for name in dict.fromkeys(row[name] for name in ("first", "second") for row in rows)]
    try:
        pair = chain.feed_forward_group(scopes)
    except ScopeError:
        return None
    return next((row for row in rows if (row["first"], row["second"]) == pair), None)


def _first_way(rows: list[Row]) -> list[Row]:
    """The rows of the first way in which maps were compared; older tables do not name the correlation."""
    labels = [name for name in ("correlation", "normalisation") if name in rows[0]]
    return [row for row in rows if all(row[name] == rows[0][name] for name in labels)]


def _correlation_of(row: Row) -> str:
    return "correlation (Pearson's r)" if row.get("correlation") == "pearson" else "rank correlation"


def _amplification(rows: list[Row]) -> str:
    top = max(
        (row for row in _with(rows, "amplification") if row["kind"] == "ff"), key=lambda row: row["amplification"]
    )
    return (
        f"The feed-forward of layer {top['layer']} strengthens {top['key_type']!r} in {top['query_type']!r} most "
        f"(by {top['amplification']:.2g})."
    )


def _groups(members: str) -> Callable[[list[Row]], str]:
    def tell(rows: list[Row]) -> str:
        layers = [row for row in rows if row["kind"] == rows[0]["kind"]]
        known = _with(layers, "effect", "significant")
        together = sum(bool(row["significant"]) and row["effect"] > 0 for row in known)
        of_all = f"{len(layers)} layers" if known == layers else f"the {len(known)} layers that have enough such pairs"
        where = f"in {together} of {of_all}"
        return f"{members} are brought together, more than pairs at the same distance, {where}."

    return tell


def _correlation(what: str) -> Callable[[list[Row]], str]:
    def tell(rows: list[Row]) -> str:
        row = rows[0]
        about = row.get("quantity") or row.get("category")
        return f"Rank correlation of {what}: {row['spearman']:.2f} ({about})."

    return tell


def _alignment(rows: list[Row]) -> str:
    known = [row for row in rows if row.get("aer") is not None]
    best = min(known, key=lambda row: row["aer"])
    return f"The lowest alignment error rate is {best['aer']:.1%}, by {best['method']}."


def _expansion(rows: list[Row]) -> str:
    rates = [row["expansion_rate"] for row in _with(rows, "expansion_rate")]
    return f"Values and output projections stretch a vector {min(rates):.2g} to {max(rates):.2g} times, by layer."


def _best_method(rows: list[Row]) -> str:
    measure = rows[0]["measure"]
    means = [row for row in rows if row["measure"] == measure and row["mean"] is not None]
    low, high = min(means, key=lambda row: row["mean"]), max(means, key=lambda row: row["mean"])
    return f"{measure}: from {low['mean']:.3g} ({low['method']}) to {high['mean']:.3g} ({high['method']})."


def _categories(rows: list[Row]) -> str:
    rows = _with(rows, "weights", "norms")
    special = [row for row in rows if row["category"].startswith(("[", "<"))]
    names = " and ".join(dict.fromkeys(row["category"] for row in special))
    top = max(special, key=lambda row: row["weights"])
    layer = [row for row in rows if row["layer"] == top["layer"]]
    norms = top["norms"] / sum(row["norms"] for row in layer)
    weights = top["weights"] / sum(row["weights"] for row in layer)
    return (
        f"Of {names}, {top['category']} gets most attention, in layer {top['layer']}: {weights:.0%} by weights and "
        f"{norms:.0%} by norms."
    )


def _sinks(rows: list[Row]) -> str:
    rows = _with(rows, "weights", "norms", "map")
    layers = {row["layer"] for row in rows}
    shares = [
        sum(row[name] for row in rows if row["class"] != "other") / len(layers) for name in ("weights", "norms", "map")
    ]
    return (
        f"Sinks (first token, separators, massive states) get {shares[0]:.0%} of the attention weights, {shares[1]:.0%} of "
        f"the weighted vectors' norms and {shares[2]:.0%} of the whole layer's map (mean over layers)."
    )


def _dispersion(rows: list[Row]) -> str:
    spread = {
        quantity: statistics.median(row["cv"] for row in _with(rows, "cv") if row["quantity"] == quantity)
        for quantity in ("x", "f(x)")
    }
    return (
        f"Norms vary by {spread['x']:.0%} of their mean for input vectors and by {spread['f(x)']:.0%} for transformed "
        "ones (median over layers and heads)."
    )


def _ff_norms(rows: list[Row]) -> str:
    means = {(row["layer"], row["vector"]): row["mean"] for row in _with(rows, "mean")}
    layers = {layer for layer, _ in means}
    larger = sum(means[layer, "ff_output"] > means[layer, "bypass"] for layer in layers)
    return f"The feed-forward's output is longer than what bypasses it in {larger} of {len(layers)} layers."


def _outliers(rows: list[Row]) -> str:
    first = _with(_first_way(rows), "before", "after")
    before, after = (statistics.fmean(row[name] for row in first) for name in ("before", "after"))
    return (
        f"The maps before and after the feed-forward have a {_correlation_of(first[0])} of {before:.2f}, and of "
        f"{after:.2f} without its outlier dimensions (mean over layers)."
    )


def _agreement_of_methods(rows: list[Row]) -> str:
    known = [row for row in rows if row["spearman"] is not None and "random" not in (row["first"], row["second"])]
    low, high = (choose(known, key=lambda row: row["spearman"]) for choose in (min, max))
    return (
        f"{high['first']} and {high['second']} agree most (rank correlation {high['spearman']:.2f}), {low['first']} and "
        f"{low['second']} least ({low['spearman']:.2f})."
    )


def _shapley(rows: list[Row]) -> str:
    row = next(row for row in rows if row["layer"] is None and row["measure"] == "spearman")
    return (
        f"Maps by integrated gradients and by Shapley values have a rank correlation of {row['mean']:.2f} "
        f"({row['low']:.2f} to {row['high']:.2f})."
    )


def _redundancy(rows: list[Row]) -> str:
    known = [row for row in _with(rows, "mean") if row["measure"] == "change" and row["head"] is None]
    low, high = (choose(known, key=lambda row: row["mean"]) for choose in (min, max))
    return (
        f"{high['component']} of layer {high['layer']} changes the map most ({high['mean']:.2g}), {low['component']} of "
        f"layer {low['layer']} least ({low['mean']:.2g})."
    )


_SENTENCES: dict[str, Callable[[list[Row]], str]] = {
    "mixing-ratio": _mixing_ratio,
    "scope-similarity": _scope_similarity,
    "ff-amplification": _amplification,
    "word-split": _groups("Subwords of one word"),
    "entities": _groups("Tokens of one named entity"),
    "weight-vs-norm": _correlation("attention weight and norm"),
    "frequency": _correlation("frequency rank and what a token is given"),
    "mixing-frequency": _correlation("frequency rank and mixing ratio"),
    "alignment": _alignment,
    "expansion-rate": _expansion,
    "evidence": _best_method,
    "deletion": _best_method,
    "categories": _categories,
    "dispersion": _dispersion,
    "sinks": _sinks,
    "ff-norms": _ff_norms,
    "outlier-dimensions": _outliers,
    "agreement": _agreement_of_methods,
    "shapley": _shapley,
    "redundancy": _redundancy,
}
