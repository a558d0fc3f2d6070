"""Explanations in the forms of other tools: inseq's results, captum's tensors, and the graphs that Neuronpedia shows.

Each has the same numbers under other names. What a form has no place for, such as the bias, is said where it can be.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from normscope.errors import InputError, SelectionError, require_extra
from normscope.models.source import short_name
from normscope.results.tokens import name_of, pieces

if TYPE_CHECKING:
    from normscope.results.explanation import Explanation

NEURONPEDIA = ".neuronpedia.json"
"""How the name of a file ends that holds a graph for Neuronpedia."""

_NO_ID = -1
"""The id of a token that is known by its name alone."""


# ---- captum --------------------------------------------------------------------------------------------------------------


def captum_tensors(explanation: Explanation) -> tuple[Float[Tensor, "target token"], Float[Tensor, " target"]]:
    """Attributions and convergence deltas: what the shares and the bias lack to the value."""
    shares = torch.from_numpy(np.nan_to_num(explanation.shares.values))
    value = torch.tensor(explanation.values, dtype=shares.dtype)
    bias = torch.tensor(explanation.biases if explanation.adds_up else [0.0] * len(value), dtype=shares.dtype)
    routed = torch.tensor(explanation.accounts, dtype=shares.dtype)
    return shares, shares.sum(1) + bias + routed - value


# ---- inseq ---------------------------------------------------------------------------------------------------------------


def inseq_output(explanation: Explanation) -> Any:
    """A `FeatureAttributionOutput` of inseq with one sequence: a column for every token that was generated."""
    require_extra("inseq", "An explanation for inseq", "inseq")
    results = import_module("inseq.data")
    source, target, first, by_source, by_target = _generated(explanation)
    probabilities = torch.tensor(explanation.target_probabilities, dtype=torch.float32)
    sequence = results.FeatureAttributionSequenceOutput(
        source=_with_ids(source),
        target=_with_ids(target),
        source_attributions=by_source,
        target_attributions=by_target,
        step_scores={"probability": probabilities} if not bool(probabilities.isnan().all()) else {},
        sequence_scores={},
        attr_pos_start=first,
        attr_pos_end=len(target),
    )
    info = {
        "attribution_method": f"normscope {explanation.method}",
        "model_name": str(explanation.attrs.get("model", "")),
        "input_texts": [str(explanation.attrs.get("source_text", "")) or explanation.text],
        "generated_texts": ["".join(explanation.targets)],
        "objective": str(explanation.attrs.get("objective", "")),
        "values": explanation.values,
        "bias": explanation.biases if explanation.adds_up else None,
        "conservation_error": explanation.completeness,
    }
    return results.FeatureAttributionOutput(sequence_attributions=[sequence], info=info)


def _with_ids(names: list[str]) -> list[Any]:
    token: Any = import_module("inseq.utils.typing").TokenWithId
    return [token(name, _NO_ID) for name in names]


def _generated(explanation: Explanation) -> tuple[list[str], list[str], int, Tensor | None, Tensor]:
    """Source and target tokens, where the generated ones begin, and the shares of both in every generated token."""
    shares = explanation.shares
    rows = [int(row) for row in shares["target_position"].values]
    if not explanation.attrs.get("causal", 0) or rows != list(range(rows[0], rows[0] + len(rows))):
        raise InputError(
            "inseq shows how a text was generated, token by token: explain what follows a text (target=, continue_for=), or "
            "the output of an encoder-decoder. Other predictions have to_pandas()."
        )
    groups, tokens = shares["token_group"].values, explanation.tokens
    own, values = np.flatnonzero(groups != "source"), torch.from_numpy(shares.values).float()
    first = rows[0] + 1
    read = [tokens[place] for place in own[:first]]
    target = [*read, *explanation.targets]
    by_target = torch.full((len(target), len(rows)), float("nan"))
    for column, row in enumerate(rows):
        by_target[: row + 1, column] = values[column, own[: row + 1]]
    if not explanation.has_encoder:
        return read, target, first, None, by_target
    source = np.flatnonzero(groups == "source")
    return [tokens[place] for place in source], target, first, values[:, source].T, by_target


# ---- Neuronpedia ---------------------------------------------------------------------------------------------------------


def neuronpedia_graph(
    explanation: Explanation, share: float = 0.9, *, target: int = 0, slug: str | None = None
) -> dict[str, Any]:
    """The graph of what flows, in the JSON of circuit-tracer and Neuronpedia.

    Nodes are embeddings, the states of tokens after each layer, and the value that is explained; links are edges of the
    flow, signed. Neither has a place for biases: their sum is in the description.
    """
    if explanation.has_encoder:
        raise SelectionError("A graph for Neuronpedia has one text. Take that of one stack: explanation.encoder.")
    place = explanation.index_of(target)
    flow = explanation.flow(share, target=place)
    depth = flow.layers
    links = [
        {
            "source": _node_id(edge.layer - 1, edge.key),
            "target": _node_id(edge.layer, edge.query),
            "weight": float(edge.value),
        }
        for edge in flow
    ]
    logit = f"{depth + 1}_{place}_{_position(explanation, place)}"
    last = [index for index, value in enumerate(flow.relevance[depth]) if value]
    links += [
        {"source": _node_id(depth, index), "target": logit, "weight": float(flow.relevance[depth, index])}
        for index in last
    ]
    drawn = sorted({(edge.layer - 1, edge.key) for edge in flow} | {(edge.layer, edge.query) for edge in flow})
    drawn = sorted({*drawn, *((depth, index) for index in last)})
    texts = _texts(explanation)
    nodes = [_state(*node, float(flow.relevance[node]), texts[node[1]]) for node in drawn]
    nodes.append(_logit(explanation, place, logit, depth))
    return {
        "metadata": _metadata(explanation, place, texts, slug, share),
        "qParams": {"pinnedIds": [], "supernodes": [], "linkType": "both", "clickedId": logit, "sg_pos": ""},
        "nodes": nodes,
        "links": links,
    }


def _node_id(depth: int, token: int) -> str:
    """Layers are counted from 0 there, and what enters the first is called E."""
    return f"{_layer(depth)}_{token}_{token}"


def _layer(depth: int) -> str:
    return "E" if depth == 0 else str(depth - 1)


def _position(explanation: Explanation, target: int) -> int:
    return int(explanation.shares["target_position"].values[target])


def _texts(explanation: Explanation) -> list[str]:
    """The tokens as they stand in the text."""
    special = np.asarray(explanation.shares["token_special"].values, bool).tolist()
    return [(" " if piece.spaced else "") + piece.text for piece in pieces(explanation.tokens, special)]


def _state(depth: int, token: int, relevance: float, text: str) -> dict[str, Any]:
    layer, after = _layer(depth), f" after layer {depth}" if depth else ""
    return {
        "node_id": _node_id(depth, token),
        "feature": token,
        "layer": layer,
        "ctx_idx": token,
        "feature_type": "embedding" if depth == 0 else "state",
        "token_prob": 0.0,
        "is_target_logit": False,
        "run_idx": 0,
        "reverse_ctx_idx": 0,
        "jsNodeId": f"{layer}_{token}-0",
        "clerp": f"{text}{after} (share {relevance:+.3g})",
        "influence": None,
        "activation": relevance,
    }


def _logit(explanation: Explanation, target: int, node_id: str, depth: int) -> dict[str, Any]:
    chance, name = explanation.target_probabilities[target], explanation.targets[target]
    known = not np.isnan(chance)
    return {
        "node_id": node_id,
        "feature": target,
        "layer": str(depth + 1),
        "ctx_idx": _position(explanation, target),
        "feature_type": "logit",
        "token_prob": chance if known else 0.0,
        "is_target_logit": True,
        "run_idx": 0,
        "reverse_ctx_idx": 0,
        "jsNodeId": f"L_{target}-0",
        "clerp": f'Output "{name_of(name)}"' + (f" (p={chance:.3f})" if known else ""),
        "influence": None,
        "activation": explanation.values[target],
    }


def _metadata(
    explanation: Explanation, target: int, texts: list[str], slug: str | None, share: float
) -> dict[str, Any]:
    attributes = explanation.attrs
    value, bias = explanation.values[target], explanation.biases[target]
    model = short_name(str(attributes.get("model", "")))
    return {
        "slug": slug or f"normscope-{model}".lower().replace(" ", "-"),
        "scan": model,
        "transcoder_list": [],
        "prompt_tokens": texts,
        "prompt": explanation.text,
        "schema_version": 1,
        "info": {
            "description": (
                f"What flows from the tokens to {explanation.targets[target]!r} ({value:+.4g}, of which biases "
                f"{bias:+.4g}): states of tokens after each layer, and the edges that carry {share:.0%} of the flow of "
                f"every layer."
            ),
            "generator": {"name": "normscope", "version": version("normscope")},
        },
        "generation_settings": {
            "method": explanation.method,
            "objective": str(attributes.get("objective", "")),
            "share": share,
            "value": value,
            "bias": bias,
            "conservation_error": explanation.completeness,
        },
    }
