"""How models of images and texts compute embeddings: CLIP, SigLIP and related models, where this follows from the class
instead of a file. For a model as a whole, one of its towers, or a tower with its projection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

from normscope.capture.weights import BlockWeights
from normscope.chain.activations import recognise
from normscope.chain.trace import LayerNorm, Linear
from normscope.models.model import Model
from normscope.models.towers import Tower
from normscope.similarity.spec import (
    AttentionPool,
    Centre,
    Dense,
    EmbeddingSpec,
    EmbeddingStep,
    Expansion,
    Pool,
    Reading,
)

_LEGACY_END = 2
"""The id of the end token in configurations of CLIP that are wrong: those models look for the highest id instead."""


def class_spec(model: Model) -> EmbeddingSpec | None:
    """The embedding of a model of images or of texts, if it follows from the class; `None` for others."""
    module = model.module
    for ancestor in type(module).__mro__:
        if ancestor.__name__ in _CLASSES:
            tower, steps = _CLASSES[ancestor.__name__]
            return _spec(model, module, steps(module), tower)
    return None


def tower_spec(whole: Model, tower: Model, name: Tower) -> EmbeddingSpec:
    """The embedding that one tower of a model makes, with the projection that the whole has for it."""
    module: object = whole.module
    if type(tower.module).__name__.startswith("Siglip"):
        steps = _siglip_image(tower.module) if name == "image" else _siglip_text(tower.module)
    else:
        projection = module.visual_projection if name == "image" else module.text_projection
        steps = (*_clip(tower.module, name), _projection(projection))
    return _spec(tower, whole.module, steps, name)


def _spec(model: Model, whole: PreTrainedModel, steps: tuple[EmbeddingStep, ...], tower: Tower) -> EmbeddingSpec:
    reading = _reading(model) if tower == "text" else Reading()
    return EmbeddingSpec(steps, f"the class {type(whole).__name__}", reading=reading, logit=_logit(whole))


def _logit(whole: Any) -> tuple[float, float] | None:
    if not hasattr(whole, "logit_scale"):
        return None
    bias = float(whole.logit_bias.detach()) if hasattr(whole, "logit_bias") else 0.0
    return float(whole.logit_scale.detach().exp()), bias


def _reading(model: Model) -> Reading:
    """CLIP embeds the first end token of a text; SigLIP reads all texts filled up to one length."""
    config = model.config
    if config.model_type.startswith("siglip"):
        padding = getattr(model.tokenizer, "pad_token", None)
        return Reading(filled=Expansion(config.max_position_embeddings, padding, attend=True, cuts=True))
    legacy = config.eos_token_id == _LEGACY_END and config.model_type == "clip_text_model"
    end: int | Literal["highest"] = "highest" if legacy else config.eos_token_id
    return Reading(end=end)


# ---- steps -----------------------------------------------------------------------------------------------------------


def _clip(tower: Any, name: Tower) -> tuple[EmbeddingStep, ...]:
    """The steps after the last block: in the image tower a norm of the class token, in the text tower the end token."""
    return (Pool(("first",)), Centre(_norm(tower.post_layernorm))) if name == "image" else (Pool(("last",)),)


def _projection(module: Any) -> Dense:
    return Dense(_linear(module), None, module=module)


def _siglip_text(tower: Any) -> tuple[EmbeddingStep, ...]:
    return Pool(("last",)), _projection(tower.head)


def _siglip_image(tower: Any) -> tuple[EmbeddingStep, ...]:
    head = tower.head
    attention, mlp = head.attention, head.mlp
    weights, biases = attention.in_proj_weight.detach().chunk(3), attention.in_proj_bias.detach().chunk(3)
    query, key, value = (Linear(weight, bias) for weight, bias in zip(weights, biases, strict=True))
    pool = AttentionPool(
        *(head, head.probe.detach()[0], query, key, value, _linear(attention.out_proj), attention.num_heads),
        *(_norm(head.layernorm), _linear(mlp.fc1), recognise(mlp.activation_fn), _linear(mlp.fc2)),
    )
    return (pool,)


def _linear(module: torch.nn.Linear) -> Linear:
    return BlockWeights(module, module.weight.dtype).linear("")


def _norm(module: torch.nn.LayerNorm) -> LayerNorm:
    weights = BlockWeights(module, module.weight.dtype)
    return LayerNorm(weights.parameter("weight"), weights.parameter("bias"), module.eps)


_Steps = Callable[[Any], tuple[EmbeddingStep, ...]]

_CLASSES: dict[str, tuple[Tower, _Steps]] = {
    **{
        f"{name}VisionModelWithProjection": (
            "image",
            lambda model: (*_clip(model.vision_model, "image"), _projection(model.visual_projection)),
        )
        for name in ("CLIP", "MetaClip2")
    },
    **{
        f"{name}TextModelWithProjection": (
            "text",
            lambda model: (*_clip(model.text_model, "text"), _projection(model.text_projection)),
        )
        for name in ("CLIP", "MetaClip2")
    },
    "SiglipVisionModel": ("image", _siglip_image),
    "SiglipTextModel": ("text", _siglip_text),
}
