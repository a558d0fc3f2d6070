"""An embedding as the steps of a head: rows picked and weighted, affine maps, activations, lengths.

Labels are the dimensions of the embedding. The trace is that of any head, so that it is proved, pulled back and pushed
through as one; an activation acts by its secant slope, and a length is a constant of the pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from normscope.chain.head_trace import (
    Activate,
    Average,
    Concatenate,
    HeadStep,
    HeadTrace,
    Pick,
    PickEach,
    Rescale,
    Scale,
)
from normscope.chain.trace import LayerNorm, Linear, Normalise
from normscope.options import PoolingMode
from normscope.similarity.plain import Rows, embedding
from normscope.similarity.spec import AttentionPool, Centre, Dense, EmbeddingSpec, EmbeddingStep, Pool, UnitLength
from normscope.similarity.texts import TextInput

_LEAST_LENGTH = 1e-12


def embedding_trace(end: HeadTrace, spec: EmbeddingSpec, text: TextInput) -> HeadTrace:
    """The trace from the last block to the embedding, of that from the last block to the states that the model outputs."""
    rows = end.logits.to(end.states)
    steps = list(end.steps)
    for step in spec.steps:
        made, rows = _made(step, rows, text)
        steps += made
    return HeadTrace(end.states, tuple(steps), embedding(spec, end.logits, text).to(end.states))


def _made(step: EmbeddingStep, rows: Rows, text: TextInput) -> tuple[list[HeadStep], Rows]:
    """The steps of a head for a step of the description, and the resulting rows."""
    match step:
        case Pool():
            tokens = range(0 if step.include_prompt else text.prompt_length, len(rows))
            picks = [_pick(mode, rows, tokens) for mode in step.modes]
            pooled = torch.cat([_picked(pick, rows) for pick in picks], -1)
            if len(picks) == 1:
                return [picks[0]], pooled
            branches = tuple((pick,) for pick in picks)
            return [Concatenate(branches, (rows.shape[-1],) * len(picks))], pooled
        case Dense():
            return _dense(step, rows)
        case Centre():
            norming, centred = _centred(step.norm, rows)
            return [norming], centred
        case AttentionPool():
            return _attended(step, rows)
        case UnitLength():
            factors = 1 / rows.norm(dim=-1).clamp(min=_LEAST_LENGTH)
            return [Rescale(factors)], rows * factors[:, None]


def _attended(step: AttentionPool, rows: Rows) -> tuple[list[HeadStep], Rows]:
    """Every head picks its own mean of the rows, by weights that are constants of the pass; then the feed-forward."""
    size = step.value.weight.shape[0] // step.heads
    query, key = ((_like(each, rows), source) for each, source in ((step.query, step.probe.to(rows)), (step.key, rows)))
    queries, keys = (_applied(*each).unflatten(-1, (step.heads, size)) for each in (query, key))
    weights = (torch.einsum("rhf,khf->hrk", queries, keys) / size**0.5).softmax(-1)
    value, output = _like(step.value, rows), _like(step.output, rows)
    sources = torch.arange(len(rows), device=rows.device)[None]
    branches: list[tuple[Pick, Linear]] = []
    for head, own in enumerate(weights):
        part = slice(head * size, (head + 1) * size)
        linear = Linear(value.weight[part], None if value.bias is None else value.bias[part])
        branches.append((Pick(sources, own), linear))
    mixed = torch.cat([_applied(linear, own @ rows) for own, (_, linear) in zip(weights, branches, strict=True)], -1)
    attended = _applied(output, mixed)
    norming, normed = _centred(step.norm, attended)
    neurons = _applied(first := _like(step.first, rows), normed)
    second = _like(step.second, rows)
    inner: tuple[HeadStep, ...] = (norming, first, Activate(step.activation, neurons), second)
    steps: list[HeadStep] = [Concatenate(tuple(branches), (size,) * step.heads), output, *_beside_itself(inner)]
    return steps, attended + _applied(second, step.activation.function(neurons))


def _beside_itself(steps: tuple[HeadStep, ...]) -> list[HeadStep]:
    """Steps with a residual connection around them."""
    return [Average((steps, ())), Scale(2.0)]


def _dense(step: Dense, rows: Rows) -> tuple[list[HeadStep], Rows]:
    linear = _like(step.linear, rows)
    output = _applied(linear, rows)
    steps: list[HeadStep] = [linear]
    if step.activation is not None:
        steps.append(Activate(step.activation, output))
        output = step.activation.function(output)
    if step.residual is None:
        return steps, output
    bypass: list[HeadStep] = [] if step.residual == "itself" else [_like(step.residual, rows)]
    beside = rows if step.residual == "itself" else rows @ step.residual.weight.to(rows).T
    return [Average((tuple(steps), tuple(bypass))), Scale(2.0)], output + beside


def _centred(given: LayerNorm, rows: Rows) -> tuple[Normalise, Rows]:
    bias = None if given.bias is None else given.bias.to(rows)
    norm = LayerNorm(given.weight.to(rows), bias, given.epsilon)
    centred = rows - rows.mean(-1, keepdim=True)
    scaled = centred / (centred.square().mean(-1, keepdim=True) + norm.epsilon).sqrt() * norm.weight
    return Normalise(norm, rows), scaled if bias is None else scaled + bias


def _applied(linear: Linear, rows: Rows) -> Rows:
    return torch.nn.functional.linear(rows, linear.weight, linear.bias)


def _like(linear: Linear, rows: Tensor) -> Linear:
    return Linear(linear.weight.to(rows), None if linear.bias is None else linear.bias.to(rows))


def _pick(mode: PoolingMode, rows: Rows, tokens: range) -> Pick | PickEach:
    count = len(tokens)
    match mode:
        case "max":
            return PickEach(rows[tokens.start : tokens.stop].argmax(0) + tokens.start)
        case "first":
            return _weighted(rows, [tokens.start], [1.0])
        case "last":
            return _weighted(rows, [tokens.stop - 1], [1.0])
        case "mean":
            return _weighted(rows, tokens, [1 / count] * count)
        case "mean-sqrt-len":
            return _weighted(rows, tokens, [count**-0.5] * count)
        case "weighted-mean":
            total = sum(token + 1 for token in tokens)
            return _weighted(rows, tokens, [(token + 1) / total for token in tokens])


def _weighted(rows: Rows, tokens: Sequence[int], weights: Sequence[float]) -> Pick:
    sources = torch.tensor([list(tokens)], device=rows.device)
    return Pick(sources, torch.tensor([list(weights)], dtype=rows.dtype, device=rows.device))


def _picked(pick: Pick | PickEach, rows: Rows) -> Rows:
    if isinstance(pick, PickEach):
        return rows.gather(0, pick.sources[None])
    return pick.weights @ rows[pick.sources[0]]
