"""The mean of several analyses as one more analysis: position by position, or by labels that their tokens share.

The means of maps, ratios and projections are means of exact numbers. The worst error of all is kept, and beside the means
the standard errors over texts.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import xarray as xr

from normscope.errors import InputError, listing
from normscope.inputs import NO_WORD
from normscope.results import schema
from normscope.results.analysis import Analysis
from normscope.results.tokens import name_of
from normscope.results.words import by_word

Labels = Callable[[Analysis], Sequence[str]] | Sequence[Sequence[str]]
"""A label for every token: from a function of an analysis, or a list for each analysis."""

_WORST = {schema.COMPLETENESS: "max", schema.COMPONENT_ERROR: "max", schema.PROJECTION_ERROR: "max"}
_APPROXIMATE = {schema.APPROXIMATION_ERROR: "max", schema.APPROXIMATION_SPEARMAN: "min"}
_MEANS = (
    *(schema.MAP, schema.MIXING_RATIO, schema.SOURCE_MIXING_RATIO, schema.HEAD_MAP, schema.PROJECTION),
    *(schema.PROJECTION_BIAS, schema.HEAD_PROJECTION, schema.BIAS_NORM),
)
_SAME = (
    "model",
    "fingerprint",
    "method",
    "method_options",
    "value_bias",
    "ff_baseline",
    "gates",
    "approximate",
    "unit",
    "stage",
)
"""What analyses that are averaged have in common."""

_MOST_NAMED, _MOST_TEXTS = 3, 2


def average(analyses: Iterable[Analysis], *, labels: Labels | None = None) -> Analysis:
    """The mean of several analyses, which is an analysis too: to be plotted, saved and explored.

    Args:
        analyses: those of texts with the same number of tokens, such as a template with other words in it, by the same model
            and with the same scopes and layers. For words instead of tokens, average what `words()` gives.
        labels: a label for every token, where texts have different lengths: categories, or the parts of a template. A
            function of an analysis, or a list of labels for each. Within a text the maps of tokens of one label are combined
            as `words` does (keys summed, queries averaged), and then averaged over the texts that have both labels.

    Returns:
        An `Analysis`. `standard_error` has that of its maps, `completeness` is the worst of all, and the attributes
        `averaged` and `averaged_texts` say what was averaged.

    Examples:
        >>> import normscope as ns
        >>> analyzer = ns.load()
        >>> mean = ns.average(analyzer.analyze(["The opera singer sang.", "The train driver sang."]))
        >>> mean.tokens
        ['[CLS]', 'the', 'opera/train', 'singer/driver', 'sang', '.', '[SEP]']
        >>> mean.attrs["averaged"], mean.map().dims, mean.standard_error().dims
        (2, ('layer', 'query', 'key'), ('layer', 'query', 'key'))
        >>> def kind(analysis: ns.Analysis) -> list[str]:
        ...     return ["special" if token.startswith("[") else "word" for token in analysis.tokens]
        >>> ns.average(analyzer.analyze(["The opera singer sang.", "It rained."]), labels=kind).tokens
        ['special', 'word']
    """
    results = list(analyses)
    for number, result in enumerate(results):
        if not isinstance(result, Analysis):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(
                f"Analyses are averaged, and number {number} is no analysis (it is of type {type(result).__name__})."
            )
    if len(results) < 2:
        raise InputError(f"An average is of two analyses or more, not of {len(results)}.")
    encoders = [result.encoder for result in results if result.has_encoder]
    if len(encoders) not in (0, len(results)):
        raise InputError("Some of the analyses have an encoder, and others have none: average those of one kind.")
    if labels is not None and encoders:
        raise InputError("Labels are for models with one stack of layers. Average the encoders' analyses (.encoder).")
    _check_same(results)
    datasets = [result.dataset for result in results]
    if labels is not None:
        datasets = _labelled(results, labels)
    own = _mean(datasets, results)
    return Analysis(own, average(encoders) if encoders else None)


def _check_same(results: Sequence[Analysis]) -> None:
    """Raise for analyses of different things."""
    first = results[0]
    for number, other in enumerate(results[1:], 1):
        unlike = [name for name in _SAME if first.attrs.get(name) != other.attrs.get(name)]
        if unlike:
            named = ", ".join(f"{name} ({first.attrs.get(name)} and {other.attrs.get(name)})" for name in unlike)
            raise InputError(f"The analyses 0 and {number} differ in {named}: what is averaged has to be of one kind.")
        for dimension in ("layer", "scope", "head_scope", "projection_scope", "head"):
            ours, theirs = (_along(each.dataset, dimension) for each in (first, other))
            if ours != theirs:
                raise InputError(
                    f"The analyses 0 and {number} have different {dimension}s ({listing(ours)} and {listing(theirs)}): "
                    f"analyse all texts with the same."
                )


def _along(dataset: xr.Dataset, dimension: str) -> list[Any]:
    return dataset[dimension].values.tolist() if dimension in dataset else []


def _mean(datasets: Sequence[xr.Dataset], results: Sequence[Analysis]) -> xr.Dataset:
    _check_lengths(datasets)
    first = datasets[0]
    variables: dict[str, Any] = {}
    for name in (str(each) for each in first.data_vars):
        stacked = np.stack([each[name].values for each in datasets]) if all(name in each for each in datasets) else None
        if stacked is None or stacked.dtype.kind != "f":
            continue
        if name in _MEANS:
            mean, error = _moments(stacked)
            variables[name] = first[name].dims, mean, first[name].attrs
            if name in schema.STANDARD_ERRORS:
                variables[schema.STANDARD_ERRORS[name]] = first[name].dims, error, first[name].attrs
        elif name in _WORST or name in _APPROXIMATE:
            worst = stacked.max(0) if {**_WORST, **_APPROXIMATE}[name] == "max" else stacked.min(0)
            variables[name] = first[name].dims, worst, first[name].attrs
    coordinates = {str(name): (c.dims, c.values) for name, c in first.coords.items() if not _is_token(str(name))}
    for dimension in ("query", "key"):
        coordinates |= _token_coordinates(datasets, dimension)
    return xr.Dataset(variables, coordinates, {**first.attrs, **_facts(results)})


def _moments(stacked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean over texts and its standard error, of those that have a number; NaN where none (or only one) has."""
    values = stacked.astype(np.float64)
    count = np.isfinite(values).sum(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # where no text has a number the mean is missing, too
        mean = np.nanmean(values, 0)
        error = np.where(count > 1, np.nanstd(values, 0, ddof=0) / np.sqrt(np.maximum(count - 1, 1)), np.nan)
    return mean.astype(stacked.dtype), error.astype(stacked.dtype)


def _check_lengths(datasets: Sequence[xr.Dataset]) -> None:
    for dimension in ("query", "key"):
        counts = [each.sizes[dimension] for each in datasets]
        if len(set(counts)) > 1:
            raise InputError(
                f"The texts have different numbers of tokens ({listing(counts[:8])}{', ...' if len(counts) > 8 else ''}), "
                f"so that positions do not belong together. Average texts of one length, or words (analysis.words()), or "
                f"say what belongs together (labels=...)."
            )
        places = [each[dimension].values.tolist() for each in datasets]
        if datasets[0].attrs.get("unit") is None and any(each != places[0] for each in places):
            raise InputError("The analyses have other rows (queries): analyse all texts at the same positions.")


def _is_token(name: str) -> bool:
    return name in schema.TOKENS


def _token_coordinates(datasets: Sequence[xr.Dataset], dimension: str) -> dict[str, tuple[Any, np.ndarray]]:
    """What is known of the tokens in all texts: their names joined, what they share as it is."""
    first = datasets[0]
    names = [str(name) for name in first.coords if str(name) == dimension or str(name).startswith(f"{dimension}_")]
    coordinates: dict[str, tuple[Any, np.ndarray]] = {}
    for name in names:
        found = [each[name].values for each in datasets if name in each.coords]
        if len(found) < len(datasets):
            continue
        same = all(each.tolist() == found[0].tolist() for each in found)
        if same or name == dimension:
            coordinates[name] = dimension, found[0]
        elif name.endswith(("_token", "_word_text", "_output_token")):
            coordinates[name] = (
                dimension,
                np.array([_joined(place) for place in zip(*found, strict=True)], dtype=object),
            )
        elif name.endswith("_special"):
            coordinates[name] = dimension, np.asarray(np.stack(found).all(0))
        elif name.endswith("_word"):
            coordinates[name] = dimension, np.full(len(found[0]), NO_WORD)
    return coordinates


def _joined(names: Sequence[object]) -> str:
    """The different tokens at one position; a mark of a space is that of all of them."""
    different = list(dict.fromkeys(str(name) for name in names))
    if len(different) == 1:
        return different[0]
    shown = [name if number == 0 else name_of(name).strip() for number, name in enumerate(different[:_MOST_NAMED])]
    return "/".join(shown) + ("/\u2026" if len(different) > _MOST_NAMED else "")


def _facts(results: Sequence[Analysis]) -> dict[str, str | int | float]:
    texts = [result.text for result in results]
    shown = "; ".join(texts[:_MOST_TEXTS]) + ("; \u2026" if len(texts) > _MOST_TEXTS else "")
    facts: dict[str, str | int | float] = {
        "averaged": len(results),
        "averaged_texts": json.dumps(texts, ensure_ascii=False),
        "text": f"mean of {len(results)} texts: {shown}",
    }
    for name, worst in (("approximate_error", max), ("approximate_spearman", min)):
        known = [float(result.attrs[name]) for result in results if name in result.attrs]
        if known:
            facts[name] = worst(known)
    return facts


# ---- labels --------------------------------------------------------------------------------------------------------------


def _labelled(results: Sequence[Analysis], labels: Labels) -> list[xr.Dataset]:
    """The datasets with labels for tokens, all with the same labels in the same order; what a text lacks is missing."""
    given = [list(labels(result)) for result in results] if callable(labels) else [list(each) for each in labels]
    if len(given) != len(results):
        raise InputError(
            f"There are labels for {len(given)} analyses, and {len(results)} of these: give a list for each."
        )
    for number, (result, own) in enumerate(zip(results, given, strict=True)):
        if len(own) != len(result.tokens):
            raise InputError(
                f"Analysis {number} has {len(result.tokens)} tokens, and {len(own)} labels: give one for each."
            )
    order = list(dict.fromkeys(str(label) for own in given for label in own))
    return [_by_label(result.dataset, list(map(str, own)), order) for result, own in zip(results, given, strict=True)]


def _by_label(dataset: xr.Dataset, labels: Sequence[str], order: Sequence[str]) -> xr.Dataset:
    coordinates: dict[str, Any] = {}
    for dimension in ("query", "key"):
        own = [labels[int(place)] for place in dataset[dimension].values]
        coordinates |= {
            f"{dimension}_word": (dimension, np.array([order.index(label) for label in own])),
            f"{dimension}_word_text": (dimension, np.array(own, dtype=object)),
            f"{dimension}_special": (dimension, np.zeros(len(own), bool)),
        }
    combined = by_word(dataset.assign_coords(coordinates), keys="sum", queries="mean", unit="label")
    for dimension in ("query", "key"):
        there = [order.index(str(name)) for name in combined[f"{dimension}_token"].values]
        combined = combined.assign_coords({dimension: (dimension, np.array(there))})
        kept = [name for name in combined.coords if str(name).startswith(f"{dimension}_")]
        combined = combined.drop_vars(kept).reindex({dimension: np.arange(len(order))})
        texts = np.array(order, dtype=object)
        combined = combined.assign_coords(
            {
                f"{dimension}_token": (dimension, texts),
                f"{dimension}_word_text": (dimension, texts),
                f"{dimension}_word": (dimension, np.arange(len(order))),
                f"{dimension}_special": (dimension, np.zeros(len(order), bool)),
            }
        )
    groups = np.full(len(order), "self", dtype=object)
    return combined.assign_coords(key_group=("key", groups))
