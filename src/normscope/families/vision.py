"""Vision Transformers and the towers of image and text models: pre-norm encoders, most of them of patches of an image.

| trap | where |
|---|---|
| a vector multiplies what a branch adds (layer scale), of the block or of a module | BEiT, Data2Vec; DINOv2, DINOv3 |
| the feed-forward is plain or gated by configuration | DINOv2, DINOv3 |
| register tokens stand between the class token and the patches | DINOv2 with registers, DINOv3 |
| what is called the base model is the encoder, without the patches | DINOv3 |
| there is no class token | I-JEPA, SigLIP |
| patches are given as a list, with the shape of the image beside it | SigLIP 2 |
| a model of two towers takes an image and a text: each tower is a model of its own | CLIP, SigLIP |
| the text tower is causal; it is not | CLIP; SigLIP |
"""

from __future__ import annotations

from dataclasses import replace

from normscope.families.spec import (
    Config,
    DispatchedAttention,
    Family,
    GatedPart,
    LayerNormPart,
    PlainPart,
    PreNorm,
    ProbedAttention,
    SplitHeads,
    Stack,
    image_config,
    unlimited,
)

_VIT_BLOCK = PreNorm(
    attention=DispatchedAttention(
        "attention",
        SplitHeads("attention.v_proj"),
        "attention.o_proj",
        norm=LayerNormPart("layernorm_before"),
    ),
    feed_forward_norm=LayerNormPart("layernorm_after"),
    feed_forward=PlainPart("mlp.fc1", "mlp.activation_fn", "mlp.fc2"),
)

VIT = Family(
    "vit",
    ("vit", "deit", "vit_msn", "ijepa"),
    Stack("layers.*", _VIT_BLOCK),
    longest=unlimited,
    reads="image",
)


def _beit_topology(config: Config) -> PreNorm:
    if not config.layer_scale_init_value:
        return _VIT_BLOCK
    return replace(
        _VIT_BLOCK,
        attention=replace(_VIT_BLOCK.attention, layer_scale="lambda_1"),
        feed_forward=replace(_VIT_BLOCK.feed_forward, layer_scale="lambda_2"),
    )


BEIT = Family("beit", ("beit",), Stack("layers.*", _beit_topology), longest=unlimited, reads="image")


def _data2vec_topology(config: Config) -> PreNorm:
    scaled = bool(config.layer_scale_init_value)
    inside = "attention.attention"
    attention = ProbedAttention(
        "attention",
        SplitHeads(f"{inside}.value"),
        "attention.output.dense",
        norm=LayerNormPart("layernorm_before"),
        layer_scale="lambda_1" if scaled else None,
    )
    network = PlainPart(
        "intermediate.dense",
        "intermediate.intermediate_act_fn",
        "output.dense",
        layer_scale="lambda_2" if scaled else None,
    )
    return PreNorm(attention, LayerNormPart("layernorm_after"), network)


DATA2VEC = Family(
    "data2vec-vision",
    ("data2vec-vision",),
    Stack("encoder.layer.*", _data2vec_topology),
    longest=unlimited,
    reads="image",
)


_SCALED_GATE = GatedPart(
    "mlp.gate_proj", "mlp.up_proj", "mlp.act_fn", "mlp.down_proj", layer_scale="layer_scale2.lambda1"
)


def _dino(network: PlainPart | GatedPart) -> PreNorm:
    return PreNorm(
        attention=DispatchedAttention(
            "attention",
            SplitHeads("attention.v_proj"),
            "attention.o_proj",
            norm=LayerNormPart("norm1"),
            layer_scale="layer_scale1.lambda1",
        ),
        feed_forward_norm=LayerNormPart("norm2"),
        feed_forward=network,
    )


def _dinov2_topology(config: Config) -> PreNorm:
    plain = PlainPart("mlp.fc1", "mlp.activation_fn", "mlp.fc2", layer_scale="layer_scale2.lambda1")
    return _dino(_SCALED_GATE if config.use_swiglu_ffn else plain)


DINOV2 = Family(
    "dinov2",
    ("dinov2", "dinov2_with_registers"),
    Stack("encoder.layer.*", _dinov2_topology),
    longest=unlimited,
    reads="image",
)


def _dinov3_topology(config: Config) -> PreNorm:
    plain = PlainPart("mlp.up_proj", "mlp.act_fn", "mlp.down_proj", layer_scale="layer_scale2.lambda1")
    return _dino(_SCALED_GATE if config.use_gated_mlp else plain)


DINOV3 = Family(
    "dinov3",
    ("dinov3_vit",),
    Stack("model.layer.*", _dinov3_topology),
    longest=unlimited,
    reads="image",
)

# ---- towers of image and text ----------------------------------------------------------------------------------------

_TOWER = PreNorm(
    attention=DispatchedAttention(
        "self_attn", SplitHeads("self_attn.v_proj"), "self_attn.out_proj", norm=LayerNormPart("layer_norm1")
    ),
    feed_forward_norm=LayerNormPart("layer_norm2"),
    feed_forward=PlainPart("mlp.fc1", "mlp.activation_fn", "mlp.fc2"),
)


def _image_layers(config: Config) -> int:
    return image_config(config).num_hidden_layers


IMAGE_TOWER = Family(
    "clip-image",
    ("clip_vision_model", "siglip_vision_model", "metaclip_2_vision_model", "clip", "siglip", "metaclip_2"),
    Stack("encoder.layers.*|vision_model.encoder.layers.*", _TOWER, depth=_image_layers),
    longest=unlimited,
    reads="image",
)

PATCHES_TOWER = replace(IMAGE_TOWER, name="siglip2-image", model_types=("siglip2_vision_model", "siglip2"), alone=True)

CAUSAL_TEXT_TOWER = Family(
    "clip-text",
    ("clip_text_model", "metaclip_2_text_model"),
    Stack("encoder.layers.*", _TOWER, causal=True),
)

TEXT_TOWER = Family("siglip-text", ("siglip_text_model", "tipsv2_text_model"), Stack("encoder.layers.*", _TOWER))

FAMILIES = (VIT, BEIT, DATA2VEC, DINOV2, DINOV3, IMAGE_TOWER, PATCHES_TOWER, CAUSAL_TEXT_TOWER, TEXT_TOWER)
