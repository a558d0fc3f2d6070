"""The text towers of multimodal models, on texts: each is a model of a type that another family describes.

| trap | where |
|---|---|
| the text configuration is inside another, and its type depends on the checkpoint | all |
| the tower is called `text_model` | Idefics 2 and 3, SmolVLM |
| the tower is an encoder | ModernVBERT, UltraVBERT |
| the type of a tower may be one that is not described, which is refused by its name | all |
"""

from __future__ import annotations

from normscope.errors import UnsupportedArchitectureError
from normscope.families.spec import Config, Family, Stack, Topology


def text_family(config: Config) -> Family:
    """The family of a multimodal model's text tower."""
    from normscope.families import family_of  # noqa: PLC0415  (they are registered from this module, too)

    text = config.get_text_config()
    if text is config:
        raise UnsupportedArchitectureError(f"{config.model_type} has no configuration of a text tower.")
    family = family_of(text.model_type)
    if family.encoder is not None:
        raise UnsupportedArchitectureError(
            f"The text tower of this {config.model_type} is an encoder-decoder ({text.model_type}): only decoders are "
            f"analysed inside of multimodal models."
        )
    return family


def _topologies(config: Config) -> tuple[Topology, ...]:
    return text_family(config).stack.topologies(config.get_text_config())


def _depth(config: Config) -> int:
    return text_family(config).stack.depth(config.get_text_config())


def _longest(config: Config) -> int | None:
    return text_family(config).longest(config.get_text_config())


TEXT_TOWER = Family(
    "text-tower",
    (
        *(
            "llava",
            "llava_next",
            "llava_next_video",
            "llava_onevision",
            "vipllava",
            "video_llava",
            "internvl",
            "mistral3",
        ),
        *("aya_vision", "cohere2_vision", "deepseek_vl", "got_ocr2", "fuyu", "lighton_ocr", "exaone4_5"),
        *("hyperclovax_vision_v2", "idefics2", "idefics3", "smolvlm", "ovis2"),
        *(
            "audioflamingo3",
            "musicflamingo",
            "glmasr",
            "granite_speech",
            "granite_speech_plus",
            "qwen2_audio",
            "voxtral",
        ),
        *("moss_transcribe_diarize", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"),
        *("kimi_k25", "video_llama_3", "qwen3_asr", "qianfan_ocr", "aria", "cosmos3_omni", "emu3"),
        *("qwen3_5", "qwen3_5_moe", "gemma4", "gemma4_unified"),
    ),
    Stack("language_model.layers.*|text_model.layers.*", _topologies, causal=True, depth=_depth),
    longest=_longest,
)

ENCODER_TOWER = Family(
    "encoder-tower",
    ("modernvbert", "ultravbert"),
    Stack("text_model.layers.*", _topologies, depth=_depth),
    longest=_longest,
)

FAMILIES = (TEXT_TOWER, ENCODER_TOWER)
