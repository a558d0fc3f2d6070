"""Integrated gradients of the similarity of two texts: the share of every token of either, from embeddings of zero.

A baseline for the tables of `Analyzer.similarity`, by the model's own gradients: many passes and no table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from normscope.capture.hooks import forward_pass, model_lock
from normscope.similarity.encoders import Encoder, Encoders
from normscope.similarity.plain import bare, embedding
from normscope.similarity.texts import TextInput

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

STEPS = 50
"""Points of the straight path, in the middle of equal parts of it."""


def integrated_gradients(
    analyzer: Analyzer, texts: tuple[str, str], measure: str, pooling: str | None
) -> tuple[np.ndarray, np.ndarray]:
    """The share of every token of either text in their similarity, while the other text is unchanged."""
    encoders = Encoders.of(analyzer, pooling)
    reader = encoders.reader()
    first, second = (reader.read(text) for text in texts)
    own, other = (rows[0] for rows in encoders.embeddings([first, second]))
    encoder = encoders.main
    return _of_tokens(encoder, first, other, measure), _of_tokens(encoder, second, own, measure)


def _of_tokens(encoder: Encoder, text: TextInput, other: Tensor, measure: str) -> np.ndarray:
    model = bare(encoder.model)
    (batch,) = model.batches([text.sequence])
    module: Any = model.module
    words = module.get_input_embeddings()(batch.features["input_ids"]).detach()
    path = words * ((torch.arange(STEPS, device=words.device) + 0.5) / STEPS)[:, None, None]
    features = {name: value for name, value in batch.repeated(STEPS).features.items() if name != "input_ids"}
    with model_lock(encoder.model.module), forward_pass(model.module), torch.enable_grad():
        path.requires_grad_()
        states = module(inputs_embeds=path, **features, return_dict=True).last_hidden_state
        made = torch.cat([embedding(encoder.spec, each, text) for each in states])
        values = cosine_similarity(made, other.to(made)) if measure == "cosine" else made @ other.to(made)
        (gradients,) = torch.autograd.grad(values.sum(), path)
    return (words[0] * gradients.mean(0)).sum(-1).double().cpu().numpy()
