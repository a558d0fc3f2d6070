"""Models of sounds: Whisper, wav2vec 2.0 and its kin, and the Audio Spectrogram Transformer.

| trap | where |
|---|---|
| the encoder reads half a minute, and silence where the sound is shorter; a frame is 20 ms | Whisper |
| norms come after the branches, or before them by configuration | wav2vec 2.0, HuBERT, UniSpeech, WavLM |
| attention is one call of a function that gets the weights of the projections | WavLM |
| statistics of the whole sound normalise the first convolution, so that sounds run alone | wav2vec 2.0 |
| an adapter may follow the feed-forward, which is refused | wav2vec 2.0 (MMS) |
| tokens are patches of a spectrogram, band by band, behind two special ones | AST |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from normscope.errors import UnsupportedArchitectureError
from normscope.families.encoder_decoder import MBART
from normscope.families.spec import (
    Config,
    DispatchedAttention,
    Family,
    LayerNormPart,
    PlainPart,
    PostNorm,
    PreNorm,
    ProbedAttention,
    SplitHeads,
    Stack,
    Topology,
    unlimited,
)
from normscope.families.vision import VIT


def _whisper_positions(config: Config) -> int:
    """Those of the decoder; the encoder always has as many frames."""
    return config.max_target_positions


WHISPER = Family(
    "whisper",
    ("whisper",),
    MBART.stack,
    encoder=MBART.encoder,
    longest=_whisper_positions,
    reads="audio",
    alone=True,
)

_ATTENTION = DispatchedAttention("attention", SplitHeads("attention.v_proj"), "attention.out_proj")
_FUSED = ProbedAttention("attention", SplitHeads("attention.v_proj"), "attention.out_proj", fused=True)
_NETWORK = PlainPart("feed_forward.intermediate_dense", "feed_forward.intermediate_act_fn", "feed_forward.output_dense")
_NORM, _FINAL_NORM = LayerNormPart("layer_norm"), LayerNormPart("final_layer_norm")


def _wav2vec2_topology(config: Config) -> Topology:
    if not config.do_stable_layer_norm:
        return PostNorm(_ATTENTION, _NORM, _NETWORK, _FINAL_NORM)
    if getattr(config, "adapter_attn_dim", None) is not None:
        raise UnsupportedArchitectureError(
            "The blocks of this model have adapters behind their feed-forwards (adapter_attn_dim), which no component "
            "describes."
        )
    normed = DispatchedAttention("attention", SplitHeads("attention.v_proj"), "attention.out_proj", norm=_NORM)
    return PreNorm(normed, _FINAL_NORM, _NETWORK)


def _wavlm_topology(config: Config) -> Topology:
    if config.do_stable_layer_norm:
        return PreNorm(replace(_FUSED, norm=_NORM), _FINAL_NORM, _NETWORK)
    return PostNorm(_FUSED, _NORM, _NETWORK, _FINAL_NORM)


def _data2vec_topology(_: Config) -> Topology:
    return PostNorm(_ATTENTION, _NORM, _NETWORK, _FINAL_NORM)


def _waves(name: str, topology: Callable[[Config], Topology], *model_types: str) -> Family:
    return Family(name, model_types, Stack("encoder.layers.*", topology), longest=unlimited, reads="audio", alone=True)


WAV2VEC2 = _waves("wav2vec2", _wav2vec2_topology, "wav2vec2", "hubert", "unispeech", "unispeech-sat")
WAVLM = _waves("wavlm", _wavlm_topology, "wavlm")
DATA2VEC = _waves("data2vec-audio", _data2vec_topology, "data2vec-audio")

AST = Family(
    "audio-spectrogram-transformer",
    ("audio-spectrogram-transformer",),
    VIT.stack,
    longest=unlimited,
    reads="audio",
    alone=True,
)

FAMILIES = (WHISPER, WAV2VEC2, WAVLM, DATA2VEC, AST)
