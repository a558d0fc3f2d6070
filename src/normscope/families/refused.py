"""What is not analysed, and why: classes of described types, and types of transformers that no family describes.

`make coverage` fails when the installed transformers has a type that is neither described nor listed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from normscope.errors import UnsupportedArchitectureError

TWO_TOWERS: Mapping[str, str] = dict.fromkeys(
    ("CLIPModel", "SiglipModel", "Siglip2Model", "MetaClip2Model"),
    "it has two towers, one for images and one for texts. Compare an image with a text (similarity), or analyse one tower: "
    "analyzer.of_stack('image') or analyzer.of_stack('text'), that is, model.vision_model or model.text_model.",
)
"""Classes with a tower for images and one for texts, `vision_model` and `text_model`, which are no one model."""

CLASSES: Mapping[str, str] = {
    **dict.fromkeys(
        ("LongformerForSequenceClassification", "LongformerForQuestionAnswering", "LongformerForMultipleChoice"),
        "it gives some tokens global attention, which has projections of its own that no component describes. Its bare "
        "model, whose attention is local, is analysed.",
    ),
    "HieraForPreTraining": "it leaves out most of an image's tokens, at random in every pass. Load it as HieraModel, which "
    "reads all of them.",
}
"""Classes whose type is described, but not as a whole."""

_SHARED = (
    "in some layers the mixer reads what a shared block of attention and network makes of the state and the embeddings, "
    "which the residual stream never holds: a chain has no component for two mixers one after the other"
)
_RECURRENT = "its layers mix tokens by a recurrence or a convolution of a kind that is not described yet"
_GATED = (
    "what its attention outputs is multiplied by a gate in every channel, or normalised, which no component describes"
)
_STREAMS = "its residual stream is more than a sum (several streams, embeddings in every layer, states of other layers)"
_ALTUP = (
    "it has four residual streams, of which a layer updates one and predicts the others (AltUp), embeddings in every layer, "
    "and layers without keys and values of their own: a chain has one stream"
)
_HYPER = "its residual streams are mixed by matrices made of the states (hyper-connections): a chain has one stream"
_SPARSE = "its attention is computed in blocks, windows or hashes, and outputs no weights of queries and keys"
_LATENTS = "its layers are of latent vectors, which attend to the tokens once: no token goes through them"
_VALUE_EMBEDDINGS = (
    "embeddings of the tokens are added to the values in every layer, and heads lose a part of what they output"
)
_NO_BLOCKS = "its layers are not modules that map one state to the next"
_PYRAMID = (
    "its tokens are merged from stage to stage, or attend inside windows, so that no token goes through all layers"
)
_MERGED_KEYS = "its keys and values are made by convolutions, which merge several tokens into one in every stage"
_BETWEEN_CONVOLUTIONS = (
    "its blocks read groups of pixels and lie between convolutions, behind the last of them too, "
    "which nobody has described"
)
_ONE_VECTOR = "its attention makes one vector of all tokens, and norms or convolutions mix tokens besides"
_CONVOLUTIONS = "it is a convolutional network or has no attention: nothing flows between tokens by weights"
_AUDIO = "it reads or makes sound, by blocks or stacks that nobody has described"
_TASK = "it is made for a task (detection, segmentation, depth, matching, video) with stacks that nobody has described"
_TOWER = "the type of its text tower is not described, or the tower reads images in its blocks"
_SENSES = "it joins several stacks of different kinds, which nobody has described as a whole"
_PART = "it is a part of a larger model (an image or sound tower, a tokenizer of sound) that nobody has described"
_SERIES = "it reads time series, and inputs are texts, images and sounds so far"
_OTHER = "its blocks have components that nobody has described"

_SHORTCUT = "each of its layers has two attentions and two feed-forwards, and experts that go around the second pair"
_GATED_NORM = "its norms are multiplied by a gate of the same state, which no component describes"
_OTHER_VALUES = (
    "some of its layers take their keys and values from another layer, whose states are not those of the layer's input"
)
_BRANCH_CONVOLUTION = "a short convolution mixes tokens again after attention and after the feed-forward"
_ADAPTERS = "an adapter of the chosen language follows each feed-forward, with a residual connection of its own"
_EXPERT_ATTENTION = "the query and output projections of its attention are mixtures of experts"
_CLAMPED = "its networks clamp gate and up projections, and no component describes one that is not interleaved"
_SKIPPED = "some of its blocks read images only, and a text goes around them"

_IMPLEMENTATION = "a text without padding is attended in both directions or in one, by its attention implementation"

_TYPES: dict[str, str] = {
    _IMPLEMENTATION: "paligemma",
    _SHORTCUT: "longcat_flash",
    _GATED_NORM: "axk2",
    _OTHER_VALUES: "mistral_large4_text mistral_large4",
    _BRANCH_CONVOLUTION: "inkling_text inkling_mm_model",
    _ADAPTERS: "xmod",
    _EXPERT_ATTENTION: "jetmoe",
    _CLAMPED: "minimax_m3_vl_text minimax_m3_vl",
    _SKIPPED: "mllama",
    _RECURRENT: ("lfm2_vl minicpm_ocr minicpmv4_6 minicpmv4_7 rwkv xlstm zaya"),
    _SHARED: "zamba zamba2",
    _GATED: ("beam hrm_text muse_glimmer_text"),
    _STREAMS: "gemma4_assistant gemma4_unified_assistant mobilebert",
    _ALTUP: "gemma3n gemma3n_text",
    _HYPER: "deepseek_v4 hy_v4 qwen4_exp qwen4_exp_text",
    _SPARSE: ("funnel mra pegasus_x prophetnet reformer"),
    _LATENTS: "perceiver",
    _VALUE_EMBEDDINGS: "neomme",
    _NO_BLOCKS: ("cpmant fsmt xlnet"),
    _PYRAMID: "dinat maskformer-swin",
    _MERGED_KEYS: "cvt",
    _BETWEEN_CONVOLUTIONS: "mobilevit",
    _ONE_VECTOR: "mobilevitv2 swiftformer",
    _CONVOLUTIONS: (
        "bit convnext convnextv2 dinov3_convnext efficientnet focalnet hgnet_v2 mobilenet_v1 mobilenet_v2 poolformer "
        "pp_lcnet regnet resnet textnet timm_backbone timm_wrapper univnet uvdoc"
    ),
    _AUDIO: (
        "bark canary clap cohere_asr csm dia fastspeech2_conformer "
        "fastspeech2_conformer_with_hifigan fun_asr_nano gradium_phonon_tts granite_speech5_ctc higgs_audio_v2 "
        "kyutai_speech_to_text lasr_ctc moonshine moonshine_streaming moshi musicgen musicgen_melody nemo_speechlm "
        "nemotron3_5_asr nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_audio "
        "nemotron3_5_transcribe_word_timestamp nemotron3_diarization nemotron_asr_streaming parakeet_ctc "
        "parakeet_rnnt parakeet_tdt pe_audio pe_audio_video pe_video pocket_tts "
        "sew sew-d speech_to_text speecht5 vibevoice vibevoice_asr vits "
        "voxtral_realtime voxtral_realtime_text wav2vec2-bert wav2vec2-conformer"
    ),
    _TASK: (
        "conditional_detr d_fine dab-detr decision_transformer deformable_detr deimv2 depth_pro detr dpt edgetam "
        "edgetam_video efficientloftr glpn grounding-dino lightglue lw_detr mask2former maskformer mgp-str "
        "mm-grounding-dino omdet-turbo oneformer owlv2 owlvit pp_doclayout_v3 pp_doclayout_v4 pp_ocrv5_mobile_rec "
        "pp_ocrv5_server_rec pp_ocrv6_medium_det pp_ocrv6_small_det pp_ocrv6_small_rec pp_ocrv6_tiny_rec rf_detr "
        "rt_detr rt_detr_v2 sam sam2 sam2_video sam3 sam3_lite_text sam3_tracker sam3_tracker_video sam3_video sam_hq "
        "sapiens2 seggpt swin2sr table-transformer timesformer tvp videomae vit_mae vitdet vivit vjepa2 yolos"
    ),
    _TOWER: (
        "chameleon cohere_compass cosmos3_edge deepseek_ocr2 deepseek_vl_hybrid diffusion_gemma "
        "embedding_gemma2 ernie4_5_vl_moe evolla fast_vlm glm46v glm4v glm4v_moe glm5_next glm_image glm_ocr "
        "glmga granite4_vision hunyuan_vl idefics janus "
        "molmo2 muse_glimmer muse_spark paddleocr_vl perception_lm pi0 "
        "qwen2_5_omni_thinker qwen3_omni_moe_thinker step3p7 unlimited_ocr"
    ),
    _SENSES: (
        "align altclip blip blip-2 bridgetower chinese_clip clipseg clvp encoder-decoder flava florence2 groupvit "
        "instructblip instructblipvideo kosmos-2 kosmos-2.5 lxmert tipsv2 udop videoprism vilt "
        "vision-text-dual-encoder xclip"
    ),
    _PART: (
        "aimv2 aimv2_vision_model audioflamingo3_encoder blip_2_qformer chinese_clip_vision_model "
        "cohere_compass_vision cosmos3_edge_vision dac edgetam_vision_model encodec exaone4_5_vision "
        "fun_asr_nano_encoder gemma3n_audio gemma3n_vision gemma4_audio gemma4_vision glm4v_moe_vision glm4v_vision "
        "glm5_next_vision glm_image_vision glm_image_vqmodel glm_ocr_vision glmasr_encoder granite_speech5_encoder "
        "higgs_audio_v2_tokenizer hunyuan_vl_vision idefics3_vision internvl_vision kimi_k25_vision lasr_encoder mimi "
        "mimi_decoder mimi_encoder minicpm_ocr_vision minicpmv4_7_vision mlcd mlcd_vision_model "
        "moss_transcribe_diarize_audio muse_glimmer_vision muse_spark_audio muse_spark_vision "
        "nemotron3_diarization_audio nemotron_asr_streaming_encoder neucodec parakeet_encoder pe_audio_encoder "
        "pe_audio_video_encoder pe_video_encoder pixtral pocket_tts_audio_tokenizer "
        "pocket_tts_audio_tokenizer_decoder pocket_tts_audio_tokenizer_encoder qianfan_ocr_vision qwen2_5_vl_vision "
        "qwen2_audio_encoder qwen3_5_moe_vision qwen3_5_vision qwen3_asr_encoder qwen3_vl_moe_vision qwen3_vl_vision "
        "qwen4_exp_vision radio sam2_hiera_det_model sam2_vision_model sam3_lite_text_text_model sam3_vision_model "
        "sam3_vit_model sam_hq_vision_model sam_vision_model smolvlm_vision t5gemma2_encoder tipsv2_vision_model "
        "vibevoice_acoustic_tokenizer vibevoice_acoustic_tokenizer_decoder vibevoice_acoustic_tokenizer_encoder "
        "video_llama_3_vision videoprism_vision_model voxtral_encoder voxtral_realtime_encoder xcodec xcodec2"
    ),
    _SERIES: ("autoformer informer patchtsmixer patchtst time_series_transformer timesfm timesfm2_5"),
    _OTHER: (
        "blt bros canine cohere_compass_text cosmos3_edge_text dpr "
        "embedding_gemma2_text glm5_next_text "
        "layoutlmv2 layoutlmv3 lilt "
        "muse_glimmer_assistant muse_spark_text openai_privacy_filter pixio t5gemma2"
    ),
}


@cache
def refused_models() -> dict[str, str]:
    """Every type of transformers that is known and not described, and why."""
    return {model_type: reason for reason, names in _TYPES.items() for model_type in names.split()}


def has_attention(model_type: str) -> bool:
    """Whether a type is not one of the networks that have no attention at all."""
    return refused_models().get(model_type) != _CONVOLUTIONS


def check_class(name: str) -> None:
    """Refuse a class that its family does not describe."""
    if name in CLASSES:
        raise UnsupportedArchitectureError(f"{name} is not analysed as a whole: {CLASSES[name]}")


def check_whole(name: str) -> None:
    """Refuse a class that its family does not describe, or that has two towers and is no one model."""
    check_class(name)
    if name in TWO_TOWERS:
        raise UnsupportedArchitectureError(f"{name} is not analysed as a whole: {TWO_TOWERS[name]}")
