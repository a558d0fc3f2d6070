"""The payload of the front end: an analysis, and of an explanation its targets, relevances at every depth, and edges.

Owns the format of explanations (its counterpart is `front-end/src/model/explanation.ts`). Edges are float32 and in order of
size, layer by layer; a page of a long text has only the largest, with their share of the flow, and draws the
rest, which follows from the relevance (and for tokens of an encoder from `taken`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from normscope.errors import InputError
from normscope.explorer import packing as pieces
from normscope.explorer.answer_payload import answer_payload
from normscope.explorer.packing import Precision
from normscope.explorer.similarity_payload import similarities_payload
from normscope.options import Unit
from normscope.results import explanation_schema as names
from normscope.results import schema
from normscope.results.analysis import Analysis
from normscope.results.answer import Answer
from normscope.results.explanation import Explanation
from normscope.results.explanation_words import cancellation_note, meaning
from normscope.results.rollout import from_inputs, normalised_by_method, residual_share
from normscope.results.similarity import Similarity
from normscope.results.verification import Verification
from normscope.scopes import WHOLE_LAYER, Scope, described

_MOST_EDGES = 60_000
"""The number of edges of all layers and targets in a page, so that the page of an ordinary text stays below 1 MB."""

_FEWEST_EDGES = 400
"""The number of edges of every layer that a page has in any case."""


def explanation_payload(explanation: Explanation, precision: Precision) -> dict[str, Any]:
    """What the front end needs of an explanation, and of its encoder below it."""
    dataset = explanation.dataset
    adds_up = explanation.adds_up
    biases = explanation.biases if adds_up else [None] * len(explanation.targets)
    positions = [int(position) for position in dataset["target_position"].values]
    remarks = [cancellation_note(explanation, [target]) for target in range(len(positions))]
    targets = [
        {"name": name, "position": position, "value": value, "bias": bias, "remark": remark, **account}
        for name, position, value, bias, remark, account in zip(
            *(explanation.targets, positions, explanation.values, biases, remarks, _accounts(explanation)), strict=True
        )
    ]
    for place, verified in explanation.verified.items():
        targets[place]["verified"] = verification_payload(verified)
    content = {
        "facts": pieces.facts(dataset),
        "method": explanation.method,
        "quantity": explanation.quantity,
        "meaning": meaning(explanation),
        "error": explanation.completeness if adds_up else None,
        "note": explanation.note,
        "targets": targets,
        "predictions": _predictions(explanation),
        "stack": _stack(dataset, precision),
    }
    if explanation.has_encoder:
        content["encoder"] = _stack(explanation.encoder.dataset, precision)
    if schema.IMAGE in dataset:
        content["image"] = pieces.image(dataset[schema.IMAGE].values)
    return content


def verification_payload(verified: Verification) -> dict[str, object]:
    """Edges that were cut in the model: what was predicted, and what was observed."""
    changes = zip(verified.edges, verified.predicted, verified.observed, strict=True)
    edges = [
        {"layer": edge.layer, "query": edge.query, "key": edge.key, "predicted": predicted, "observed": observed}
        for edge, predicted, observed in changes
    ]
    correlation = verified.correlation if np.isfinite(verified.correlation) else None
    return {"edges": edges, "together": list(verified.together), "correlation": correlation}


def _accounts(explanation: Explanation) -> list[dict[str, object]]:
    """For every value what stays with attention weights, as a whole and by the tokens looked at, where it is counted."""
    if not explanation.counts_weights:
        return [{} for _ in explanation.values]
    looked = np.atleast_2d(explanation.looked_at.values).tolist()
    return [{"routed": total, "lookedAt": row} for total, row in zip(explanation.accounts, looked, strict=True)]


def _predictions(explanation: Explanation) -> list[dict[str, object]]:
    """What the model predicts at the positions of the values: the most probable labels."""
    dataset = explanation.dataset
    if names.PROBABILITY not in dataset:
        return []
    by_position: dict[int, list[dict[str, str | float]]] = {}
    for target, position in enumerate(dataset["target_position"].values):
        ranked = [{"name": name, "probability": float(chance)} for name, chance in explanation.top_predictions(target)]
        by_position.setdefault(int(position), ranked)
    of = explanation.probabilities_of
    return [{"position": position, "of": of, "options": options} for position, options in by_position.items()]


def _stack(dataset: xr.Dataset, precision: Precision) -> dict[str, Any]:
    """One stack of layers: the `relevance` of the first layer's input and of each layer's output, and the flow between."""
    content: dict[str, Any] = {
        "tokens": pieces.tokens(dataset, "query"),
        "keys": pieces.tokens(dataset, "key") if "key" in dataset.coords else pieces.tokens(dataset, "query"),
        "relevance": pieces.block(_relevance(dataset), "full"),
    }
    if names.EDGES not in dataset:
        return content
    for field, name in (("heads", names.HEADS), ("feedForward", names.FEED_FORWARD)):
        content[field] = pieces.block(dataset[name].values, "full")
    apart = dataset[names.BIAS].values
    if names.ROUTING in dataset:
        apart = apart + dataset[names.ROUTING].sum("key").transpose(*dataset[names.BIAS].dims).values
    content["bias"] = pieces.block(apart, "full")
    edges = dataset[names.EDGES].values
    own = len(content["tokens"]["position"])
    if edges.shape[-1] > own:
        content["taken"] = pieces.block(edges[..., own:].sum(axis=2), "full")
    return content | {"edges": _edges(edges, precision)}


def _relevance(dataset: xr.Dataset) -> np.ndarray:
    """`[target, depth, query]`; of a method that follows nothing through the layers, the attribution at depth 0."""
    return dataset[names.RELEVANCE].values if names.RELEVANCE in dataset else dataset[names.ATTRIBUTION].values[:, None]


def _edges(values: np.ndarray, precision: Precision) -> dict[str, object]:
    """The largest edges of `[target, layer, query, key]`, those of every layer in order of size, and how many they are.

    `total` is the absolute value of all edges of a layer, including those that are left out.
    """
    targets, layers, queries, keys = values.shape
    flat = np.abs(values).reshape(targets * layers, queries * keys)
    most = max(_FEWEST_EDGES, _MOST_EDGES // max(1, len(flat))) if precision == "display" else flat.shape[1]
    indices = np.argsort(-flat, axis=1, kind="stable")[:, :most]
    nonzero = np.take_along_axis(flat, indices, axis=1) > 0
    sizes = np.take_along_axis(values.reshape(flat.shape), indices, axis=1)
    return {
        "count": [int(count) for count in nonzero.sum(axis=1)],
        "total": [float(total) for total in flat.sum(axis=1, dtype=np.float64)],
        "place": pieces.packed(indices[nonzero].astype("<u4")),
        "value": pieces.packed(sizes[nonzero].astype("<f4")),
    }


# ---- From results to the JSON that the front end reads: analyses to look at, and explanations to follow.
#
# Owns the format of the whole and of an analysis (its counterpart is `front-end/src/model/payload.ts`); `explanations`
# has that of an explanation, and `pieces` what both are made of.

VERSION = 5

Shown = Analysis | Explanation | Similarity | Answer
"""What the front end shows."""

Start = Mapping[str, str | int]
"""Fields of the state of a page, by the names that they have in its address."""

MOST_ANALYSES = 2
MOST_EXPLANATIONS = 16


def build_payload(
    *results: Shown,
    precision: Precision = "display",
    predictions: Sequence[dict[str, object]] = (),
    unit: Unit = "sentence",
    start: Start | None = None,
) -> dict[str, Any]:
    """What the front end needs of one analysis, or of two to compare, and of explanations with them or alone; or of
    similarities, or of an answer in units of its context, which are alone on a page.

    `predictions` are those at all positions of the first text, if the host knows them; otherwise those of the explanations.
    `start` is how the page opens, in the words of its address, such as `{"units": "sentence"}`.
    """
    analyses = [result for result in results if isinstance(result, Analysis)]
    explanations = [result for result in results if isinstance(result, Explanation)]
    similarities = [result for result in results if isinstance(result, Similarity)]
    answers = [result for result in results if isinstance(result, Answer)]
    if answers and len(results) > 1:
        raise InputError("A page shows one answer, and nothing else: write several pages.")
    if similarities and len(similarities) < len(results):
        raise InputError("A page shows similarities, or analyses and explanations, not both: write two pages.")
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
        **({"start": dict(start)} if start else {}),
        **(similarities_payload(similarities) if similarities else {}),
        **({"answer": answer_payload(answers[0], unit)} if answers else {}),
    }


def payload_json(
    *results: Shown,
    precision: Precision = "display",
    predictions: Sequence[dict[str, object]] = (),
) -> str:
    """The payload as JSON that is safe inside HTML."""
    return encoded(build_payload(*results, precision=precision, predictions=predictions))


def encoded(payload: Mapping[str, object]) -> str:
    """JSON that is pure ASCII and free of `<`, `>` and `&`, so that it is safe inside HTML."""
    text = json.dumps(payload, ensure_ascii=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def exact_map(analysis: Analysis, scope: str, layer: int, head: int | None = None) -> np.ndarray:
    """`[query, key]` in float32, as analysed: full precision on request, for hosts that are still connected."""
    values = analysis.map(scope, heads=head is not None).sel(layer=layer)
    if head is not None:
        values = values.sel(head=head)
    return np.ascontiguousarray(values.values, dtype="<f4")


def analysis_payload(analysis: Analysis, precision: Precision) -> dict[str, object]:
    """What the front end needs of one analysis."""
    dataset = analysis.dataset
    if schema.MAP not in dataset:
        raise InputError("There are no maps to explore here, only mixing ratios: use `analyze`, not `mixing_ratios`.")
    content: dict[str, object] = {
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
    """The projections of an analysis that has them in addition to its norms, as a separate analysis."""
    scoped = [name for name in dataset.variables if any("scope" in str(axis) for axis in dataset[name].dims)]
    rest = dataset.drop_vars(scoped)
    maps = dataset[schema.PROJECTION].rename(projection_scope="scope")
    projected = rest.assign({schema.MAP: maps.assign_attrs(quantity="projection")})
    if schema.HEAD_PROJECTION in dataset:
        projected = projected.assign(
            {schema.HEAD_MAP: dataset[schema.HEAD_PROJECTION].rename(projection_scope="head_scope")}
        )
    return Analysis(projected.assign_attrs(method="projections"), None)


def _quantity(dataset: xr.Dataset) -> str:
    """What the map's cells measure, at every scope except those of weights."""
    return str(dataset[schema.MAP].attrs.get("quantity", "norm"))


def _rollout(analysis: Analysis) -> dict[str, object] | None:
    """How layers are multiplied, as `Analysis.rollout` does it: the share of the identity at every scope, and whether rows
    are normalised; `None` if the maps already start at the inputs."""
    if from_inputs(analysis.attrs):
        return None
    scopes = [Scope(str(name)) for name in analysis.dataset["scope"].values]
    identity = {str(scope): residual_share(scope) for scope in scopes}
    return {"identity": identity, "normalise": normalised_by_method(analysis.attrs)}


def _scopes(dataset: xr.Dataset) -> list[dict[str, object]]:
    """Every scope with its parts, so that the front end never has to parse a name."""
    heads = [str(scope) for scope in dataset["head_scope"].values] if schema.HEAD_MAP in dataset else []
    scopes: list[dict[str, object]] = []
    for name, values in zip(map(str, dataset["scope"].values), dataset[schema.MAP].values, strict=True):
        scope = Scope(name)
        scopes.append(
            {
                "name": name,
                "components": list(scope.components),
                "words": scope.words,
                "described": described(scope, str(dataset.attrs.get(WHOLE_LAYER, ""))),
                "quantity": "weight" if scope.quantity == "weight" else _quantity(dataset),
                "heads": name in heads,
                "signed": bool((values < 0).any()),
            }
        )
    return scopes
