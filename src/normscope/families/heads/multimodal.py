"""The language modelling heads of multimodal models: those of their text towers, whose last norm lies one level deeper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from normscope.errors import HeadError
from normscope.families.heads.decoders import DECODERS, Table
from normscope.families.heads.spec import Head, HeadPart, ScalePart, SoftCapPart
from normscope.families.spec import Config, NormPart

_BASE = "base_model."

_AS = dict.fromkeys(
    ("qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text", "qwen3_vl_moe_text", "molmo2_text"), "LlamaForCausalLM"
)
"""Types of towers that have no class with a head of their own, and a class whose head is the same."""


def _inside(tower: str, *, bare: bool = False) -> Callable[[Config], Head]:
    """The head of the tower's own class; `bare` where the multimodal class leaves out the scale or the cap of its logits."""

    def described(config: Config) -> Head:
        head = _head_of_type(config.get_text_config())
        if bare:
            kept = (part for part in head.parts if not isinstance(part, ScalePart | SoftCapPart))
            head = replace(head, parts=tuple(kept))
        return replace(head, parts=tuple(_deeper(part, tower) for part in head.parts))

    return described


def _head_of_type(text: Config) -> Head:
    from transformers.models.auto import modeling_auto  # noqa: PLC0415  (not before it is used)

    name = _AS.get(text.model_type) or modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(text.model_type)
    described = DECODERS.get(name or "")
    if described is None:
        raise HeadError(f"The head of a text tower of the type {text.model_type!r} is not described.")
    return described if isinstance(described, Head) else described(text)


def _deeper(part: HeadPart, tower: str) -> HeadPart:
    if isinstance(part, NormPart) and part.module.startswith(_BASE):
        return replace(part, module=f"{_BASE}{tower}.{part.module.removeprefix(_BASE)}")
    return part


_NAMES = (
    "Llava LlavaNext LlavaNextVideo LlavaOnevision VipLlava VideoLlava InternVL Mistral3 DeepseekVL "
    "GotOcr2 LightOnOcr Exaone4_5_ HyperCLOVAXVisionV2 Ovis2 AudioFlamingo3 MusicFlamingo "
    "Qwen2VL Qwen2_5_VL Qwen3VL Qwen3VLMoe GlmAsr Qwen2Audio Voxtral MossTranscribeDiarize "
    "Kimi_K25 VideoLlama3 Qwen3ASR QianfanOCR Aria Qwen3_5 Qwen3_5Moe"
)

_BARE = "AyaVision Cohere2Vision GraniteSpeech GraniteSpeechPlus"

MULTIMODAL: Table = {
    **{f"{name}ForConditionalGeneration": _inside("language_model") for name in _NAMES.split()},
    **{f"{name}ForConditionalGeneration": _inside("text_model") for name in ("Idefics2", "Idefics3", "SmolVLM")},
    **{f"{name}ForConditionalGeneration": _inside("language_model", bare=True) for name in _BARE.split()},
    "FuyuForCausalLM": _inside("language_model"),
}
