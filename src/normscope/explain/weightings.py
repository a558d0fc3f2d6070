"""The shares of one input by several rules for attention weights: one forward pass, and one reverse pass for each rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normscope.errors import UnsupportedArchitectureError
from normscope.explain.pulling import Way, check_joined_blocks, kept_layers
from normscope.explain.question import Question
from normscope.explain.recording import PullRequest, Recording
from normscope.explain.sinks import sinks_of_layers
from normscope.explain.streaming import is_streamed
from normscope.inputs import TokenSequence
from normscope.models.model import Model
from normscope.options import Weights


@dataclass(frozen=True)
class SharesByWeights:
    """Shares `[target, token]` by rule, proved at every layer; why a rule does not apply; and which tokens are sinks."""

    shares: dict[Weights, Float[Tensor, "target token"]]
    refused: dict[Weights, UnsupportedArchitectureError]
    sinks: Bool[Tensor, " token"]


def can_share(model: Model, sequence: TokenSequence, request: PullRequest) -> bool:
    """Whether one recording serves several ways back: that of one stack, kept as a whole."""
    return model.family.encoder is None and not is_streamed(model, sequence, request)


def shares_by_weights(
    model: Model,
    sequence: TokenSequence,
    question: Question,
    request: PullRequest,
    rules: Sequence[Weights],
    sums: Float[Tensor, "target value"] | None = None,
) -> SharesByWeights:
    """The share of every token in the values, or in sums of them, by each rule. Flows between layers are not kept."""
    check_joined_blocks(model)
    read_scores = next((rule for rule in rules if replace(request, weights=rule).scores != "no"), None)
    widest = replace(request, weights=rules[0] if read_scores is None else "players")
    recording = Recording(model, sequence, widest)
    played = recording.play(question)
    values, sizes, start = played.values, played.sizes, played.pulled
    if sums is not None:
        sums = sums.to(values)
        values, sizes, start = sums @ values, sums @ sizes, start.weighted(sums)
    found, refused = dict[Weights, Tensor](), dict[Weights, UnsupportedArchitectureError]()
    marks = torch.zeros(len(sequence), dtype=torch.bool)
    for rule in rules:
        way = Way(model, values, sizes, start.bias)
        layers = kept_layers(recording, rule, keep=rule != rules[-1])
        try:
            shares = way.shares(layers, "layer", start.covector, played.head.states)
        except UnsupportedArchitectureError as error:
            refused[rule] = error
            continue
        found[rule], marks = shares.relevance, sinks_of_layers(shares.received, causal=shares.causal)
    return SharesByWeights(found, refused, marks)
