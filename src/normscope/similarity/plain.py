"""Embeddings computed in the usual way: a plain forward pass, then pooling, dense layers and norms on its last states.

Shares nothing with the steps that similarities are decomposed by, so that it is a check of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from normscope.capture import bare_model
from normscope.capture.hooks import model_lock
from normscope.errors import InputError, ModelError
from normscope.inputs import Batch
from normscope.models.model import Model
from normscope.options import PoolingMode
from normscope.similarity.spec import AttentionPool, Centre, Dense, EmbeddingSpec, EmbeddingStep, Pool, UnitLength
from normscope.similarity.texts import TextInput

_SIMILAR = 0.8
"""How much shorter than the longest of a batch a text may be."""

Rows = Float[Tensor, "_ _"]
"""`[row, dimension]` of an embedding, or of what it is made of: one row, or one for each token."""


def bare(model: Model) -> Model:
    """The model without its task head, whose states are embedded."""
    if model.family.encoder is not None:
        raise InputError(
            f"{model.name} has an encoder and a decoder, and an embedding is made by one of them: load its encoder alone "
            f"(T5EncoderModel and the like)."
        )
    base = bare_model(model.module)
    return model if base is model.module else replace(model, module=cast(PreTrainedModel, base))


def batches_of(model: Model, texts: Sequence[TextInput]) -> Iterator[Batch]:
    """The texts in batches of similar lengths, so that little is padded; what no token attends to is masked."""
    for group in _alike(texts):
        for batch in model.batches([texts[index].sequence for index in group]):
            placed = replace(batch, indices=[group[index] for index in batch.indices])
            for row, index in enumerate(placed.indices):
                if (start := texts[index].unattended) is not None:
                    batch.features["attention_mask"][row, start:] = 0
            yield placed


def _alike(texts: Sequence[TextInput]) -> list[list[int]]:
    """The indices of texts of similar lengths together, longest first."""
    groups: list[list[int]] = []
    for index in sorted(range(len(texts)), key=lambda index: -len(texts[index].sequence)):
        if groups and len(texts[index].sequence) >= _SIMILAR * len(texts[groups[-1][0]].sequence):
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def embeddings(
    model: Model,
    spec: EmbeddingSpec,
    texts: Sequence[TextInput],
    tell: Callable[[int, int], None] | None = None,
) -> list[Rows]:
    """The embedding of every text, in their order."""
    whole, model = model, bare(model)
    found, done = dict[int, Rows](), 0
    for batch in batches_of(model, texts):
        if tell is not None:
            tell(done, len(texts))
        done += len(batch.indices)
        with model_lock(whole.module), torch.no_grad():
            states = model.run(batch, head=False).last_hidden_state
            for row, (index, length) in enumerate(zip(batch.indices, batch.lengths, strict=True)):
                found[index] = _checked(embedding(spec, states[row, :length], texts[index]), model, texts[index])
    return [found[index] for index in range(len(texts))]


def embedding(spec: EmbeddingSpec, states: Float[Tensor, "token d"], text: TextInput) -> Rows:
    """The embedding that the last states of a text give."""
    rows = states.to(torch.promote_types(states.dtype, torch.float32))
    for step in spec.steps:
        rows = _after(step, rows, text)
    return rows


def _checked(rows: Rows, model: Model, text: TextInput) -> Rows:
    if not bool(torch.isfinite(rows).all()):
        raise ModelError(f"{model.name} gives an embedding that is not finite for the text {text.text!r:.60}.")
    return rows


def _after(step: EmbeddingStep, rows: Rows, text: TextInput) -> Rows:
    match step:
        case Pool():
            tokens = range(0 if step.include_prompt else text.prompt_length, len(rows))
            return torch.cat([_pooled(mode, rows, tokens) for mode in step.modes])[None]
        case Dense():
            output = _linear(step, rows)
            output = output if step.activation is None else step.activation.function(output)
            if step.residual is None:
                return output
            return output + (rows if step.residual == "itself" else rows @ step.residual.weight.to(rows).T)
        case Centre():
            norm = step.norm
            bias = None if norm.bias is None else norm.bias.to(rows)
            return functional.layer_norm(rows, rows.shape[-1:], norm.weight.to(rows), bias, norm.epsilon)
        case UnitLength():
            return functional.normalize(rows, dim=-1)
        case AttentionPool():
            return _called(step.module, rows[None])


def _linear(step: Dense, rows: Rows) -> Rows:
    if step.module is not None:
        return _called(step.module, rows)
    weight, bias = step.linear.weight.to(rows), step.linear.bias
    return functional.linear(rows, weight, None if bias is None else bias.to(rows))


def _called(module: nn.Module, rows: Tensor) -> Tensor:
    """What a module of the model itself outputs, in the precision of its input."""
    own = next(module.parameters()).dtype
    return (module if own == rows.dtype else deepcopy(module).to(rows.dtype))(rows)


def _pooled(mode: PoolingMode, rows: Float[Tensor, "token d"], tokens: range) -> Float[Tensor, " d"]:
    kept = rows[tokens.start : tokens.stop]
    match mode:
        case "first":
            return kept[0]
        case "last":
            return kept[-1]
        case "max":
            return kept.max(0).values
        case "mean":
            return kept.mean(0)
        case "mean-sqrt-len":
            return kept.sum(0) / len(kept) ** 0.5
        case "weighted-mean":
            weights = torch.arange(tokens.start + 1, tokens.stop + 1, device=rows.device).to(rows)
            return (weights[:, None] * kept).sum(0) / weights.sum()
