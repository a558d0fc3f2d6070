"""From results to the JSON that the front end reads: analyses to look at, and explanations to follow.

Owns the format of the whole and of an analysis (its other half is `front-end/src/model/payload.ts`); `explanations` has that
of an explanation, and `pieces` what both are made of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from normscope import schema
from normscope.analysis import Analysis
from normscope.errors import InputError
from normscope.explain.explanation import Explanation
from normscope.explorer import pieces
from normscope.explorer.explanations import explanation_payload
from normscope.explorer.pieces import Precision
from normscope.rollout import from_inputs, normalised_by_method, residual_share
from normscope.scopes import Scope

VERSION = 5

MOST_ANALYSES = 2
MOST_EXPLANATIONS = 16

_WORDS = {"Attn": "attention", "Cross": "cross-attention", "Res": "residual", "Ln": "norm", "Ff": "feed-forward"}
"""The components as a reader knows them."""


def build_payload(
    *results: Analysis | Explanation,
    precision: Precision = "display",
    predictions: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """What the front end needs of one analysis, or of two to compare, and of explanations beside them or alone.

    `predictions` of all places of the first text, where a host knows them; without, those that explanations tell of.
    """
    analyses = [result for result in results if isinstance(result, Analysis)]
    explanations = [result for result in results if isinstance(result, Explanation)]
    if len(analyses) > MOST_ANALYSES or not results:
        raise InputError(f"The explorer shows one analysis, or two side by side, not {len(analyses)}.")
    if len(explanations) > MOST_EXPLANATIONS:
        raise InputError(f"A page takes at most {MOST_EXPLANATIONS} explanations, not {len(explanations)}.")
    if precision not in ("display", "full"):
        raise InputError(f"The precision of a page is 'display' or 'full', not {precision!r}.")
    return {
        "version": VERSION,
        "analyses": [analysis_payload(analysis, precision) for analysis in analyses],
        "explanations": [explanation_payload(explanation, precision) for explanation in explanations],
        "predictions": list(predictions),
    }


def payload_json(
    *results: Analysis | Explanation,
    precision: Precision = "display",
    predictions: Sequence[dict[str, Any]] = (),
) -> str:
    """The payload as JSON that can stand inside HTML."""
    return encoded(build_payload(*results, precision=precision, predictions=predictions))


def encoded(payload: Mapping[str, Any]) -> str:
    """JSON that is pure ASCII and free of `<`, `>` and `&`, so that it can stand inside HTML."""
    text = json.dumps(payload, ensure_ascii=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def exact_map(analysis: Analysis, scope: str, layer: int, head: int | None = None) -> np.ndarray:
    """`[query, key]` in float32, as analysed: full precision on demand, for hosts that are still connected."""
    values = analysis.map(scope, heads=head is not None).sel(layer=layer)
    if head is not None:
        values = values.sel(head=head)
    return np.ascontiguousarray(values.values, dtype="<f4")


def analysis_payload(analysis: Analysis, precision: Precision) -> dict[str, Any]:
    """What the front end needs of one analysis."""
    dataset = analysis.dataset
    if schema.MAP not in dataset:
        raise InputError("There are no maps to explore here, only mixing ratios: use `analyze`, not `mixing_ratios`.")
    content: dict[str, Any] = {
        "facts": pieces.facts(dataset),
        "method": str(dataset.attrs.get("method", "norms")),
        "quantity": _quantity(dataset),
        "layers": [int(layer) for layer in dataset["layer"].values],
        "scopes": _scopes(dataset),
        "queries": pieces.tokens(dataset, "query"),
        "keys": pieces.tokens(dataset, "key"),
        "rollout": _rollout(analysis),
        "map": pieces.block(dataset[schema.MAP].values, precision),
        "completeness": [float(error) for error in analysis.completeness.values],
    }
    for field, name in (("mixing", schema.MIXING_RATIO), ("sourceMixing", schema.SOURCE_MIXING_RATIO)):
        if name in dataset:
            content[field] = pieces.block(dataset[name].values, "full")
    if schema.HEAD_MAP in dataset:
        content["heads"] = {
            "scopes": [str(scope) for scope in dataset["head_scope"].values],
            "numbers": [int(head) for head in dataset["head"].values],
            "map": pieces.block(dataset[schema.HEAD_MAP].values, precision),
        }
    if "image" in dataset:
        content["image"] = pieces.image(dataset["image"].values)
    if schema.PROJECTION in dataset:
        content["projections"] = analysis_payload(_projections(dataset), precision)
    if analysis.has_encoder:
        content["encoder"] = analysis_payload(analysis.encoder, precision)
    return content


def _projections(dataset: xr.Dataset) -> Analysis:
    """The projections of an analysis that has them beside its norms, as an analysis of their own."""
    scoped = [name for name in dataset.variables if any("scope" in str(axis) for axis in dataset[name].dims)]
    rest = dataset.drop_vars(scoped)
    maps = dataset[schema.PROJECTION].rename(projection_scope="scope")
    made = rest.assign({schema.MAP: maps.assign_attrs(quantity="projection")})
    if schema.HEAD_PROJECTION in dataset:
        made = made.assign({schema.HEAD_MAP: dataset[schema.HEAD_PROJECTION].rename(projection_scope="head_scope")})
    return Analysis(made.assign_attrs(method="projections"), None)


def _quantity(dataset: xr.Dataset) -> str:
    """What the map's cells measure, at every scope but those of weights."""
    return str(dataset[schema.MAP].attrs.get("quantity", "norm"))


def _rollout(analysis: Analysis) -> dict[str, Any] | None:
    """How layers are multiplied, as `Analysis.rollout` does it: the share of the identity at every scope, and whether rows
    are normalised; nothing where maps are from the inputs already."""
    if from_inputs(analysis.attrs):
        return None
    scopes = [Scope(str(name)) for name in analysis.dataset["scope"].values]
    identity = {str(scope): residual_share(scope) for scope in scopes}
    return {"identity": identity, "normalise": normalised_by_method(analysis.attrs)}


def _scopes(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Every scope with its parts, so that the front end never has to read a name."""
    heads = [str(scope) for scope in dataset["head_scope"].values] if schema.HEAD_MAP in dataset else []
    scopes: list[dict[str, Any]] = []
    for name, values in zip(map(str, dataset["scope"].values), dataset[schema.MAP].values, strict=True):
        scope = Scope(name)
        scopes.append(
            {
                "name": name,
                "components": list(scope.components),
                "words": [_WORDS.get(component, component) for component in scope.components],
                "quantity": "weight" if scope.quantity == "weight" else _quantity(dataset),
                "heads": name in heads,
                "signed": bool((values < 0).any()),
            }
        )
    return scopes
