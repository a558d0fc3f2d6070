"""The task heads of encoders, by the names of their classes in transformers.

| trap | where |
|---|---|
| the activation is called by name and belongs to no module | RoBERTa, DistilBERT, DeBERTa |
| the pooling depends on the configuration | ModernBERT, EuroBERT, UltraBERT, ELECTRA (multiple choice) |
| the output matrix is the word embeddings' own | DeBERTa (not `legacy`) |
| states are averaged after the classifier, not before | EuroBERT (`late`) |
| a logit is a product of what two chains make of two tokens | Splinter |
| two classifiers read two tokens, and their mean counts | DeiT with teacher |
| the classifier reads the class token and the mean of the patches side by side | DINOv2 |
| the norm comes after the mean of the patches | BEiT |
"""

from __future__ import annotations

from collections.abc import Callable

from normscope.errors import HeadError
from normscope.families.heads.decoders import (
    CLASSIFIER,
    FIRST,
    LM_HEAD,
    MODERN,
    RMS,
    Parts,
    Table,
    activated,
    answers,
    choices,
    for_each,
    modern_head,
    named,
)
from normscope.families.heads.spec import (
    ActivationPart,
    AveragePart,
    Head,
    HeadPart,
    LastPosition,
    LinearPart,
    LinearShare,
    MatrixPart,
    MeanFrom,
    MeanOfPositions,
    MeanOfTokens,
    PickPart,
    ScalePart,
    SpanPart,
    TokenAt,
)
from normscope.families.spec import Config, LayerNormPart, RmsNormPart

_POOLER: Parts = (*FIRST, *activated("base_model.pooler.dense", "base_model.pooler.activation"))
_ALBERT_POOLER: Parts = (*FIRST, *activated("base_model.pooler", "base_model.pooler_activation"))
_TOKEN_TANH: Parts = (*FIRST, *named("classifier.dense", "tanh"), LinearPart("classifier.out_proj"))


def _next_sentence(*parts: HeadPart) -> Head:
    return Head("next-sentence", parts, labels=("next", "random"))


def _vocabulary(parts: Parts) -> Table:
    """The same head for masked and for causal language modelling."""
    return {"ForMaskedLM": Head("masked-lm", parts), "ForCausalLM": Head("causal-lm", parts)}


def _pre_training(parts: Parts) -> Table:
    """The masked language modelling of a model that also has a sentence head."""
    return {"ForPreTraining": Head("masked-lm", parts, ("prediction_logits",))}


def _token_tasks(*last: HeadPart) -> Table:
    return {
        "ForTokenClassification": Head("token-classification", (*last, CLASSIFIER)),
        "ForQuestionAnswering": answers(*last, LinearPart("qa_outputs")),
    }


def _sentence(*parts: HeadPart) -> Table:
    return {"ForSequenceClassification": Head("sequence-classification", parts)}


def _multiple(*parts: HeadPart) -> Table:
    return {"ForMultipleChoice": choices(*parts)}


def _bert_lm(norm: str) -> Parts:
    inside = "cls.predictions.transform"
    dense = activated(f"{inside}.dense", f"{inside}.transform_act_fn")
    return (*dense, LayerNormPart(f"{inside}.{norm}"), LinearPart("cls.predictions.decoder"))


_BERT_LM = _bert_lm("LayerNorm")
_ROBERTA_LM: Parts = (
    *named("lm_head.dense", "gelu"),
    LayerNormPart("lm_head.layer_norm"),
    LinearPart("lm_head.decoder"),
)
_ALBERT_LM: Parts = (
    *activated("predictions.dense", "predictions.activation"),
    LayerNormPart("predictions.LayerNorm"),
    LinearPart("predictions.decoder"),
)
_ELECTRA_LM: Parts = (
    *activated("generator_predictions.dense", "generator_predictions.activation"),
    LayerNormPart("generator_predictions.LayerNorm"),
    LinearPart("generator_lm_head"),
)
_DISTILBERT_LM: Parts = (
    *activated("vocab_transform", "activation"),
    LayerNormPart("vocab_layer_norm"),
    LinearPart("vocab_projector"),
)
_DISTILBERT_POOL: Parts = (*FIRST, *named("pre_classifier", "relu"), CLASSIFIER)
_REMBERT_LM: Parts = (
    *activated("cls.predictions.dense", "cls.predictions.activation"),
    LayerNormPart("cls.predictions.LayerNorm"),
    LinearPart("cls.predictions.decoder"),
)
_MEGATRON: Parts = (LayerNormPart("base_model.encoder.ln"),)
_ROBERTA_XL: Parts = (LayerNormPart("base_model.encoder.LayerNorm"),)
_NORM: Parts = (LayerNormPart("base_model.norm"),)
_ESM: Parts = (LayerNormPart("base_model.encoder.emb_layer_norm_after"),)
_ESM_LM: Parts = (
    *_ESM,
    *named("lm_head.dense", "gelu"),
    LayerNormPart("lm_head.layer_norm"),
    MatrixPart("lm_head.decoder.weight", "lm_head.bias"),
)
_PRE_NORM: Parts = (LayerNormPart("base_model.LayerNorm"),)


def _token_activated(config: Config) -> Head:
    """The first token through a layer whose activation is that of the feed-forwards."""
    dense = named("classifier.dense", config.hidden_act)
    return Head("sequence-classification", (*FIRST, *dense, LinearPart("classifier.out_proj")))


def _deberta_lm(config: Config) -> Head:
    if getattr(config, "legacy", True):
        return Head("masked-lm", _BERT_LM)
    inside = "lm_predictions.lm_head"
    dense = activated(f"{inside}.dense", f"{inside}.transform_act_fn")
    matrix = MatrixPart("base_model.embeddings.word_embeddings.weight", f"{inside}.bias")
    return Head("masked-lm", (*dense, LayerNormPart(f"{inside}.LayerNorm"), matrix))


def _deberta_pooler(config: Config) -> Parts:
    return (*FIRST, *named("pooler.dense", config.pooler_hidden_act), CLASSIFIER)


def _deberta_sentence(config: Config) -> Head:
    return Head("sequence-classification", _deberta_pooler(config))


def _deberta_choices(config: Config) -> Head:
    return choices(*_deberta_pooler(config))


_SUMMARIES: dict[str, PickPart] = {
    "last": LastPosition(),
    "first": TokenAt(),
    "mean": MeanOfPositions(),
    "cls_index": LastPosition(),
}


def _summary(config: Config) -> Parts:
    """The summary of a sequence as transformers makes it: which token, a projection and an activation if there are any."""
    linear = (LinearPart("sequence_summary.summary"),) if getattr(config, "summary_use_proj", False) else ()
    activation = ActivationPart("sequence_summary.summary", "sequence_summary.activation")
    activations = (activation,) if getattr(config, "summary_activation", None) else ()
    return (_SUMMARIES[getattr(config, "summary_type", "last")], *linear, *activations)


def _summary_choices(config: Config) -> Head:
    return choices(*_summary(config), CLASSIFIER)


def _xlm_sentence(config: Config) -> Head:
    return Head("sequence-classification", _summary(config))


def _xlm_choices(config: Config) -> Head:
    return choices(*_summary(config), LinearPart("logits_proj"))


def _xlm_lm(config: Config) -> Head:
    if config.asm:
        raise HeadError("The head of this model is an adaptive softmax (asm), which outputs no logits.")
    return Head("masked-lm", (LinearPart("pred_layer.proj"),))


def _modern_pool(config: Config) -> PickPart:
    return TokenAt() if config.classifier_pooling == "cls" else MeanOfTokens()


def _modern_sentence(config: Config) -> Head:
    return Head("sequence-classification", (*MODERN, _modern_pool(config), *modern_head("head"), CLASSIFIER))


def _modern_choices(config: Config) -> Head:
    return choices(*MODERN, _modern_pool(config), *modern_head("head"), CLASSIFIER)


def _eurobert_sentence(config: Config) -> Head:
    classify: Parts = (*activated("dense", "activation"), CLASSIFIER)
    pooling = config.classifier_pooling
    if pooling == "late":
        return Head("sequence-classification", (*RMS, *classify, MeanOfTokens()))
    return Head("sequence-classification", (*RMS, TokenAt() if pooling == "bos" else MeanOfTokens(), *classify))


_ULTRABERT_LM: Parts = (
    *RMS,
    *activated("head.linear1", "head.act_fn"),
    *activated("head.linear2", "head.act_fn"),
    LinearPart("head.decoder"),
)


def _ultrabert_sentence(config: Config) -> Head:
    return Head("sequence-classification", (*RMS, _modern_pool(config), CLASSIFIER))


def _splinter_chain(name: str) -> Parts:
    inside = f"splinter_qass.{name}_transform"
    return (*activated(f"{inside}.dense", f"{inside}.act_fn"), LayerNormPart(f"{inside}.LayerNorm"))


_SPLINTER = SpanPart(
    "splinter_qass",
    tuple(
        ((*_splinter_chain(f"query_{edge}"), LinearPart(f"splinter_qass.{edge}_classifier")), _splinter_chain(edge))
        for edge in ("start", "end")
    ),
)

ENCODERS: Table = {
    **for_each(
        "Bert Ernie RoCBert LayoutLM Tapas",
        _vocabulary(_BERT_LM),
        _pre_training(_BERT_LM),
        _sentence(*_POOLER, CLASSIFIER),
        _multiple(*_POOLER, CLASSIFIER),
        {"ForNextSentencePrediction": _next_sentence(*_POOLER, LinearPart("cls.seq_relationship"))},
        _token_tasks(),
    ),
    **for_each(
        "RemBert",
        _vocabulary(_REMBERT_LM),
        _sentence(*_POOLER, CLASSIFIER),
        _multiple(*_POOLER, CLASSIFIER),
        _token_tasks(),
    ),
    **for_each(
        "RoFormer",
        _vocabulary(_BERT_LM),
        {"ForSequenceClassification": _token_activated, "ForMultipleChoice": _summary_choices},
        _token_tasks(),
    ),
    **for_each(
        "BigBird",
        _vocabulary(_BERT_LM),
        _pre_training(_BERT_LM),
        {"ForSequenceClassification": _token_activated},
        _multiple(*FIRST, *activated("base_model.pooler", "base_model.activation"), CLASSIFIER),
        {"ForTokenClassification": Head("token-classification", (CLASSIFIER,))},
    ),
    **for_each(
        "MegatronBert",
        _vocabulary((*_MEGATRON, *_BERT_LM)),
        _pre_training((*_MEGATRON, *_BERT_LM)),
        _sentence(*_MEGATRON, *_POOLER, CLASSIFIER),
        _multiple(*_MEGATRON, *_POOLER, CLASSIFIER),
        {"ForNextSentencePrediction": _next_sentence(*_MEGATRON, *_POOLER, LinearPart("cls.seq_relationship"))},
        _token_tasks(*_MEGATRON),
    ),
    **for_each(
        "XLMRobertaXL",
        _vocabulary((*_ROBERTA_XL, *_ROBERTA_LM)),
        _sentence(*_ROBERTA_XL, *_TOKEN_TANH),
        _multiple(*_ROBERTA_XL, *_POOLER, CLASSIFIER),
        _token_tasks(*_ROBERTA_XL),
    ),
    **for_each(
        "Luke",
        _vocabulary(_ROBERTA_LM),
        _sentence(*_POOLER, CLASSIFIER),
        _multiple(*_POOLER, CLASSIFIER),
        _token_tasks(),
    ),
    **for_each(
        "Longformer", _vocabulary(_ROBERTA_LM), {"ForTokenClassification": Head("token-classification", (CLASSIFIER,))}
    ),
    **for_each(
        "FNet",
        _vocabulary(_BERT_LM),
        _pre_training(_BERT_LM),
        _sentence(*_POOLER, CLASSIFIER),
        _multiple(*_POOLER, CLASSIFIER),
        {"ForNextSentencePrediction": _next_sentence(*_POOLER, LinearPart("cls.seq_relationship"))},
        _token_tasks(),
    ),
    **for_each(
        "Nystromformer Yoso",
        _vocabulary(_BERT_LM),
        {"ForSequenceClassification": _token_activated},
        _multiple(*_DISTILBERT_POOL),
        _token_tasks(),
    ),
    **for_each(
        "ConvBert",
        _vocabulary(_ELECTRA_LM),
        {"ForSequenceClassification": _token_activated, "ForMultipleChoice": _summary_choices},
        _token_tasks(),
    ),
    **for_each(
        "XLM Flaubert",
        {
            "WithLMHeadModel": _xlm_lm,
            "ForSequenceClassification": _xlm_sentence,
            "ForTokenClassification": Head("token-classification", (CLASSIFIER,)),
            "ForQuestionAnsweringSimple": answers(LinearPart("qa_outputs")),
            "ForMultipleChoice": _xlm_choices,
        },
    ),
    **for_each(
        "SqueezeBert",
        _vocabulary(_BERT_LM),
        _sentence(*_POOLER, CLASSIFIER),
        _multiple(*_POOLER, CLASSIFIER),
        _token_tasks(),
    ),
    **for_each("MarkupLM", _sentence(*_POOLER, CLASSIFIER), _token_tasks()),
    **for_each("JinaEmbeddingsV3", _vocabulary(_ROBERTA_LM), _sentence(*_TOKEN_TANH), _token_tasks()),
    **for_each("Esmc", _vocabulary((*_NORM, *_ROBERTA_LM)), _sentence(*_NORM, *_TOKEN_TANH)),
    "EsmcForTokenClassification": Head("token-classification", (*_NORM, LinearPart("score"))),
    **for_each("Esm", _vocabulary(_ESM_LM), _sentence(*_ESM, *_TOKEN_TANH), _token_tasks(*_ESM)),
    "RoCBertForPreTraining": Head("masked-lm", _BERT_LM),
    "VisualBertForPreTraining": Head("masked-lm", _BERT_LM, ("prediction_logits",)),
    "BertLMHeadModel": Head("causal-lm", _BERT_LM),
    **for_each(
        "Roberta XLMRoberta Camembert Data2VecText MPNet IBert",
        _vocabulary(_ROBERTA_LM),
        _sentence(*_TOKEN_TANH),
        _multiple(*_POOLER, CLASSIFIER),
        _token_tasks(),
    ),
    **for_each(
        "RobertaPreLayerNorm",
        _vocabulary((*_PRE_NORM, *_ROBERTA_LM)),
        _sentence(*_PRE_NORM, *_TOKEN_TANH),
        _multiple(*_PRE_NORM, *_POOLER, CLASSIFIER),
        _token_tasks(*_PRE_NORM),
    ),
    **for_each("Gte", _vocabulary(_ROBERTA_LM)),
    **for_each("NomicBert", _vocabulary(_bert_lm("layer_norm"))),
    **for_each("Gte NomicBert", _sentence(*_POOLER, CLASSIFIER), _token_tasks()),
    **for_each(
        "Albert",
        _vocabulary(_ALBERT_LM),
        _pre_training(_ALBERT_LM),
        _sentence(*_ALBERT_POOLER, CLASSIFIER),
        _multiple(*_ALBERT_POOLER, CLASSIFIER),
        _token_tasks(),
    ),
    **for_each(
        "DistilBert",
        _vocabulary(_DISTILBERT_LM),
        _sentence(*_DISTILBERT_POOL),
        _multiple(*_DISTILBERT_POOL),
        _token_tasks(),
    ),
    **for_each(
        "Electra",
        _vocabulary(_ELECTRA_LM),
        _sentence(*FIRST, *activated("classifier.dense", "classifier.activation"), LinearPart("classifier.out_proj")),
        {"ForMultipleChoice": _summary_choices},
        _token_tasks(),
    ),
    "ElectraForPreTraining": Head(
        "replaced-token",
        (
            *activated("discriminator_predictions.dense", "discriminator_predictions.activation"),
            LinearPart("discriminator_predictions.dense_prediction"),
        ),
        labels=("replaced",),
    ),
    **for_each(
        "Deberta DebertaV2",
        {
            "ForMaskedLM": _deberta_lm,
            "ForSequenceClassification": _deberta_sentence,
            "ForMultipleChoice": _deberta_choices,
        },
        _token_tasks(),
    ),
    **for_each(
        "ModernBert",
        {
            "ForMaskedLM": Head("masked-lm", (*MODERN, *modern_head("head"), LinearPart("decoder"))),
            "ForSequenceClassification": _modern_sentence,
            "ForMultipleChoice": _modern_choices,
            "ForTokenClassification": Head("token-classification", (*MODERN, *modern_head("head"), CLASSIFIER)),
            "ForQuestionAnswering": answers(*MODERN, *modern_head("head"), CLASSIFIER),
        },
    ),
    "EuroBertForMaskedLM": Head("masked-lm", (*RMS, LM_HEAD)),
    "EuroBertForSequenceClassification": _eurobert_sentence,
    "EuroBertForTokenClassification": Head("token-classification", (*RMS, CLASSIFIER)),
    "ModernVBertForMaskedLM": Head(
        "masked-lm", (LayerNormPart("base_model.text_model.final_norm"), *modern_head("projection_head"), LM_HEAD)
    ),
    "UltraVBertForMaskedLM": Head(
        "masked-lm",
        (
            RmsNormPart("base_model.text_model.norm"),
            *activated("projection_head.linear1", "projection_head.act_fn"),
            *activated("projection_head.linear2", "projection_head.act_fn"),
            LM_HEAD,
        ),
    ),
    "UltrabertForMaskedLM": Head("masked-lm", _ULTRABERT_LM),
    "UltrabertForSequenceClassification": _ultrabert_sentence,
    **for_each("Ultrabert", _token_tasks(*RMS)),
    "SplinterForQuestionAnswering": answers(_SPLINTER),
    "SplinterForPreTraining": answers(_SPLINTER),
}


_VIT: Parts = (LayerNormPart("base_model.layernorm"),)

_PATCHES = MeanFrom(1)


def _image(*parts: HeadPart) -> Table:
    return {"ForImageClassification": Head("image-classification", parts)}


def _levit_classifier(name: str) -> Parts:
    return (LinearPart(f"{name}.batch_norm"), LinearPart(f"{name}.linear"))


def _beit_image(config: Config) -> Head:
    pooled: Parts = (
        (_PATCHES, LayerNormPart("base_model.pooler.layernorm")) if config.use_mean_pooling else (*_VIT, *FIRST)
    )
    return Head("image-classification", (*pooled, CLASSIFIER))


def _dinov2_image(config: Config) -> Head:
    """The class token and the mean of the patches side by side: the sum of what each half of the classifier makes."""
    first = 1 + getattr(config, "num_register_tokens", 0)
    halves = (TokenAt(), LinearShare("classifier", 0, 2)), (MeanFrom(first), LinearShare("classifier", 1, 2))
    return Head("image-classification", (*_VIT, AveragePart(halves), ScalePart(float(len(halves)))))


def _last_stage(path: str, *rest: HeadPart) -> Callable[[Config], Head]:
    """A classifier of the last stage of a pyramid, whose norm is at a path with the number of that stage."""

    def head(config: Config) -> Head:
        norm = LayerNormPart(f"base_model.{path.format(stage=config.num_encoder_blocks - 1)}")
        return Head("image-classification", (norm, *rest, CLASSIFIER))

    return head


IMAGES: Table = {
    **for_each("IJepa", _image(*_VIT, MeanOfPositions(), CLASSIFIER)),
    **for_each("CLIP MetaClip2", _image(_PATCHES, CLASSIFIER)),
    **for_each("Swin Swinv2", _image(*_VIT, MeanOfPositions(), CLASSIFIER)),
    "SegformerForImageClassification": _last_stage("stages.{stage}.layer_norm", MeanOfPositions()),
    "PvtV2ForImageClassification": _last_stage("encoder.layers.{stage}.layer_norm", MeanOfPositions()),
    "PvtForImageClassification": Head(
        "image-classification", (LayerNormPart("base_model.encoder.layer_norm"), *FIRST, CLASSIFIER)
    ),
    **for_each("DonutSwin", _image(MeanOfPositions(), CLASSIFIER)),
    **for_each("Levit", _image(MeanOfPositions(), *_levit_classifier("classifier"))),
    "LevitForImageClassificationWithTeacher": Head(
        "image-classification",
        (
            MeanOfPositions(),
            AveragePart((_levit_classifier("classifier"), _levit_classifier("classifier_distill"))),
        ),
    ),
    **for_each("Hiera", _image(MeanOfPositions(), LayerNormPart("base_model.pooler.layernorm"), CLASSIFIER)),
    **for_each("Siglip Siglip2", _image(LayerNormPart("vision_model.post_layernorm"), MeanOfPositions(), CLASSIFIER)),
    **for_each("Beit Data2VecVision", {"ForImageClassification": _beit_image}),
    **for_each("Dinov2 Dinov2WithRegisters", {"ForImageClassification": _dinov2_image}),
    **for_each(
        "ViT DeiT ViTMSN", {"ForImageClassification": Head("image-classification", (*_VIT, *FIRST, CLASSIFIER))}
    ),
    "DeiTForImageClassificationWithTeacher": Head(
        "image-classification",
        (
            *_VIT,
            AveragePart(
                (
                    (TokenAt(0), LinearPart("cls_classifier")),
                    (TokenAt(1), LinearPart("distillation_classifier")),
                )
            ),
        ),
    ),
}
