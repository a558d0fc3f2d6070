"""The task heads of the registered families, by the names of their classes in transformers.

| trap | where |
|---|---|
| the token that is classified is found by the padding id, not by the mask | all causal classifiers |
| the token that is classified is found in the encoder's input, and read in the decoder | BART, T5 |
| the activation is called by name and belongs to no module | RoBERTa, DistilBERT, DeBERTa, BART, T5 |
| the logits are scaled, or the states before the output matrix are | Cohere; T5 |
| the logits are capped by a hyperbolic tangent | Gemma 2 |
| the logits have a bias that is a buffer of the model | BART and its kin, not M2M-100 |
| the last norm, the pooling or the output matrix depends on the configuration | OPT, the encoders |
| states are averaged after the classifier, not before | EuroBERT (`late`) |
| two classifiers read two tokens, and their mean counts | DeiT with teacher |
| a logit is a product of what two chains make of two tokens | Splinter |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from normscope.families.head_spec import (
    ActivationPart,
    AveragePart,
    DescribedHead,
    EndToken,
    Head,
    HeadPart,
    LastPosition,
    LastToken,
    LinearPart,
    MatrixPart,
    MeanOfPositions,
    MeanOfTokens,
    NamedActivationPart,
    PickPart,
    ScalePart,
    ShiftPart,
    SoftCapPart,
    SpanPart,
    Task,
    TokenAt,
)
from normscope.families.spec import Config, LayerNormPart, RmsNormPart, UnitRmsNormPart

Parts = tuple[HeadPart, ...]
Table = dict[str, DescribedHead]

_FIRST: Parts = (TokenAt(),)


def _activated(linear: str, activation: str) -> Parts:
    """A linear layer and the activation that the model holds."""
    return (LinearPart(linear), ActivationPart(linear, activation))


def _named(linear: str, name: str) -> Parts:
    """A linear layer and an activation that the model calls by name."""
    return (LinearPart(linear), NamedActivationPart(linear, name))


def _answers(*parts: HeadPart) -> Head:
    return Head("question-answering", parts, ("start_logits", "end_logits"), ("start", "end"))


def _choices(*parts: HeadPart) -> Head:
    return Head("multiple-choice", parts, labels=("choice",))


def _next_sentence(*parts: HeadPart) -> Head:
    return Head("next-sentence", parts, labels=("next", "random"))


def _for_each(prefixes: str, *tables: Table) -> Table:
    """The heads of several classes: every prefix with every task."""
    return {f"{prefix}{task}": head for prefix in prefixes.split() for table in tables for task, head in table.items()}


# ---- causal decoders -------------------------------------------------------------------------------------------------


def _lm(*parts: HeadPart) -> Table:
    return {"ForCausalLM": Head("causal-lm", parts)}


def _decoder_tasks(last: Parts, *, tokens: str = "score") -> Table:
    """Classifiers and question answering on top of a causal decoder that ends in `last`."""
    return {
        "ForSequenceClassification": Head("sequence-classification", (*last, LinearPart("score"), LastToken())),
        "ForTokenClassification": Head("token-classification", (*last, LinearPart(tokens))),
        "ForQuestionAnswering": _answers(*last, LinearPart("qa_outputs")),
    }


_LM_HEAD = LinearPart("lm_head")
_RMS: Parts = (RmsNormPart("base_model.norm"),)
_UNIT_RMS: Parts = (UnitRmsNormPart("base_model.norm"),)
_NORM: Parts = (LayerNormPart("base_model.norm"),)
_LN_F: Parts = (LayerNormPart("base_model.ln_f"),)
_NEOX: Parts = (LayerNormPart("base_model.final_layer_norm"),)
_PHI: Parts = (LayerNormPart("base_model.final_layernorm"),)
_BIOGPT: Parts = (LayerNormPart("base_model.layer_norm"),)
_MODERN: Parts = (LayerNormPart("base_model.final_norm"),)


def _capped(config: Config) -> Head:
    cap = config.final_logit_softcapping
    return Head("causal-lm", (*_UNIT_RMS, _LM_HEAD, *(() if cap is None else (SoftCapPart("lm_head", cap),))))


def _cohere(config: Config) -> Head:
    return Head("causal-lm", (*_NORM, _LM_HEAD, ScalePart(config.logit_scale)))


def _opt(task: Task, *parts: HeadPart) -> Callable[[Config], Head]:
    def described(config: Config) -> Head:
        last: list[HeadPart] = []
        if config.do_layer_norm_before and not config._remove_final_layer_norm:
            last.append(LayerNormPart("base_model.decoder.final_layer_norm"))
        if config.word_embed_proj_dim != config.hidden_size:
            last.append(LinearPart("base_model.decoder.project_out"))
        if task == "question-answering":
            return _answers(*last, *parts)
        return Head(task, (*last, *parts))

    return described


def _modern_head(name: str) -> Parts:
    """ModernBERT's dense layer, activation and norm."""
    return (*_activated(f"{name}.dense", f"{name}.act"), LayerNormPart(f"{name}.norm"))


DECODERS: Table = {
    **_for_each(
        "Llama Mistral Qwen2 Qwen3 SmolLM3 Ministral Ministral3 Helium Cwm Ernie4_5 SeedOss HunYuanDenseV1 Phi3 Glm "
        "Olmo2 Olmo3 Exaone4 Mixtral Olmoe Qwen3Moe MiniMaxM2 GptOss",
        _lm(*_RMS, _LM_HEAD),
        _decoder_tasks(_RMS),
    ),
    **_for_each("Gemma", _lm(*_UNIT_RMS, _LM_HEAD)),
    **_for_each("Gemma2 Gemma3", {"ForCausalLM": _capped}),
    **_for_each("Gemma Gemma2 Gemma3Text", _decoder_tasks(_UNIT_RMS)),
    **_for_each("StableLm Starcoder2", _lm(*_NORM, _LM_HEAD), _decoder_tasks(_NORM)),
    **_for_each("Cohere Cohere2", {"ForCausalLM": _cohere}),
    **_for_each("GPTJ", _lm(*_LN_F, _LM_HEAD), _decoder_tasks(_LN_F)),
    **_for_each(
        "GPT2 GPTBigCode GPTNeo Bloom Falcon", _lm(*_LN_F, _LM_HEAD), _decoder_tasks(_LN_F, tokens="classifier")
    ),
    "GPT2LMHeadModel": Head("causal-lm", (*_LN_F, _LM_HEAD)),
    **_for_each("GPTNeoX", _lm(*_NEOX, _LM_HEAD), _decoder_tasks(_NEOX, tokens="classifier")),
    **_for_each("Phi", _lm(*_PHI, _LM_HEAD), _decoder_tasks(_PHI)),
    **_for_each("BioGpt", _lm(*_BIOGPT, LinearPart("output_projection")), _decoder_tasks(_BIOGPT, tokens="classifier")),
    "OPTForCausalLM": _opt("causal-lm", _LM_HEAD),
    "OPTForSequenceClassification": _opt("sequence-classification", LinearPart("score"), LastToken()),
    "OPTForQuestionAnswering": _opt("question-answering", LinearPart("qa_outputs")),
    "ModernBertDecoderForCausalLM": Head("causal-lm", (*_MODERN, *_modern_head("lm_head"), LinearPart("decoder"))),
    "ModernBertDecoderForSequenceClassification": Head(
        "sequence-classification", (*_MODERN, *_modern_head("head"), LinearPart("classifier"), LastToken())
    ),
    "BertGenerationDecoder": Head("causal-lm", (LinearPart("lm_head.decoder"),)),
}

# ---- encoders --------------------------------------------------------------------------------------------------------

_CLASSIFIER = LinearPart("classifier")
_POOLER: Parts = (*_FIRST, *_activated("base_model.pooler.dense", "base_model.pooler.activation"))
_ALBERT_POOLER: Parts = (*_FIRST, *_activated("base_model.pooler", "base_model.pooler_activation"))
_TOKEN_TANH: Parts = (*_FIRST, *_named("classifier.dense", "tanh"), LinearPart("classifier.out_proj"))


def _vocabulary(parts: Parts) -> Table:
    """The same head for masked and for causal language modelling."""
    return {"ForMaskedLM": Head("masked-lm", parts), "ForCausalLM": Head("causal-lm", parts)}


def _pre_training(parts: Parts) -> Table:
    """The masked language modelling of a model that also has a sentence head."""
    return {"ForPreTraining": Head("masked-lm", parts, ("prediction_logits",))}


def _token_tasks(*last: HeadPart) -> Table:
    return {
        "ForTokenClassification": Head("token-classification", (*last, _CLASSIFIER)),
        "ForQuestionAnswering": _answers(*last, LinearPart("qa_outputs")),
    }


def _sentence(*parts: HeadPart) -> Table:
    return {"ForSequenceClassification": Head("sequence-classification", parts)}


def _multiple(*parts: HeadPart) -> Table:
    return {"ForMultipleChoice": _choices(*parts)}


def _bert_lm(norm: str) -> Parts:
    inside = "cls.predictions.transform"
    dense = _activated(f"{inside}.dense", f"{inside}.transform_act_fn")
    return (*dense, LayerNormPart(f"{inside}.{norm}"), LinearPart("cls.predictions.decoder"))


_BERT_LM = _bert_lm("LayerNorm")
_ROBERTA_LM: Parts = (
    *_named("lm_head.dense", "gelu"),
    LayerNormPart("lm_head.layer_norm"),
    LinearPart("lm_head.decoder"),
)
_ALBERT_LM: Parts = (
    *_activated("predictions.dense", "predictions.activation"),
    LayerNormPart("predictions.LayerNorm"),
    LinearPart("predictions.decoder"),
)
_ELECTRA_LM: Parts = (
    *_activated("generator_predictions.dense", "generator_predictions.activation"),
    LayerNormPart("generator_predictions.LayerNorm"),
    LinearPart("generator_lm_head"),
)
_DISTILBERT_LM: Parts = (
    *_activated("vocab_transform", "activation"),
    LayerNormPart("vocab_layer_norm"),
    LinearPart("vocab_projector"),
)
_DISTILBERT_POOL: Parts = (*_FIRST, *_named("pre_classifier", "relu"), _CLASSIFIER)
_PRE_NORM: Parts = (LayerNormPart("base_model.LayerNorm"),)


def _deberta_lm(config: Config) -> Head:
    if getattr(config, "legacy", True):
        return Head("masked-lm", _BERT_LM)
    inside = "lm_predictions.lm_head"
    dense = _activated(f"{inside}.dense", f"{inside}.transform_act_fn")
    matrix = MatrixPart("base_model.embeddings.word_embeddings.weight", f"{inside}.bias")
    return Head("masked-lm", (*dense, LayerNormPart(f"{inside}.LayerNorm"), matrix))


def _deberta_pooler(config: Config) -> Parts:
    return (*_FIRST, *_named("pooler.dense", config.pooler_hidden_act), _CLASSIFIER)


def _deberta_sentence(config: Config) -> Head:
    return Head("sequence-classification", _deberta_pooler(config))


def _deberta_choices(config: Config) -> Head:
    return _choices(*_deberta_pooler(config))


_SUMMARIES: dict[str, PickPart] = {
    "last": LastPosition(),
    "first": TokenAt(),
    "mean": MeanOfPositions(),
    "cls_index": LastPosition(),
}


def _electra_choices(config: Config) -> Head:
    linear = (LinearPart("sequence_summary.summary"),) if config.summary_use_proj else ()
    activation = ActivationPart("sequence_summary.summary", "sequence_summary.activation")
    activations = (activation,) if config.summary_activation else ()
    return _choices(_SUMMARIES[config.summary_type], *linear, *activations, _CLASSIFIER)


def _modern_pool(config: Config) -> PickPart:
    return TokenAt() if config.classifier_pooling == "cls" else MeanOfTokens()


def _modern_sentence(config: Config) -> Head:
    return Head("sequence-classification", (*_MODERN, _modern_pool(config), *_modern_head("head"), _CLASSIFIER))


def _modern_choices(config: Config) -> Head:
    return _choices(*_MODERN, _modern_pool(config), *_modern_head("head"), _CLASSIFIER)


def _eurobert_sentence(config: Config) -> Head:
    classify: Parts = (*_activated("dense", "activation"), _CLASSIFIER)
    pooling = config.classifier_pooling
    if pooling == "late":
        return Head("sequence-classification", (*_RMS, *classify, MeanOfTokens()))
    return Head("sequence-classification", (*_RMS, TokenAt() if pooling == "bos" else MeanOfTokens(), *classify))


def _splinter_chain(name: str) -> Parts:
    inside = f"splinter_qass.{name}_transform"
    return (*_activated(f"{inside}.dense", f"{inside}.act_fn"), LayerNormPart(f"{inside}.LayerNorm"))


_SPLINTER = SpanPart(
    "splinter_qass",
    tuple(
        ((*_splinter_chain(f"query_{edge}"), LinearPart(f"splinter_qass.{edge}_classifier")), _splinter_chain(edge))
        for edge in ("start", "end")
    ),
)

ENCODERS: Table = {
    **_for_each(
        "Bert Ernie",
        _vocabulary(_BERT_LM),
        _pre_training(_BERT_LM),
        _sentence(*_POOLER, _CLASSIFIER),
        _multiple(*_POOLER, _CLASSIFIER),
        {"ForNextSentencePrediction": _next_sentence(*_POOLER, LinearPart("cls.seq_relationship"))},
        _token_tasks(),
    ),
    "BertLMHeadModel": Head("causal-lm", _BERT_LM),
    **_for_each(
        "Roberta XLMRoberta Camembert Data2VecText MPNet",
        _vocabulary(_ROBERTA_LM),
        _sentence(*_TOKEN_TANH),
        _multiple(*_POOLER, _CLASSIFIER),
        _token_tasks(),
    ),
    **_for_each(
        "RobertaPreLayerNorm",
        _vocabulary((*_PRE_NORM, *_ROBERTA_LM)),
        _sentence(*_PRE_NORM, *_TOKEN_TANH),
        _multiple(*_PRE_NORM, *_POOLER, _CLASSIFIER),
        _token_tasks(*_PRE_NORM),
    ),
    **_for_each("Gte", _vocabulary(_ROBERTA_LM)),
    **_for_each("NomicBert", _vocabulary(_bert_lm("layer_norm"))),
    **_for_each("Gte NomicBert", _sentence(*_POOLER, _CLASSIFIER), _token_tasks()),
    **_for_each(
        "Albert",
        _vocabulary(_ALBERT_LM),
        _pre_training(_ALBERT_LM),
        _sentence(*_ALBERT_POOLER, _CLASSIFIER),
        _multiple(*_ALBERT_POOLER, _CLASSIFIER),
        _token_tasks(),
    ),
    **_for_each(
        "DistilBert",
        _vocabulary(_DISTILBERT_LM),
        _sentence(*_DISTILBERT_POOL),
        _multiple(*_DISTILBERT_POOL),
        _token_tasks(),
    ),
    **_for_each(
        "Electra",
        _vocabulary(_ELECTRA_LM),
        _sentence(*_FIRST, *_activated("classifier.dense", "classifier.activation"), LinearPart("classifier.out_proj")),
        {"ForMultipleChoice": _electra_choices},
        _token_tasks(),
    ),
    "ElectraForPreTraining": Head(
        "replaced-token",
        (
            *_activated("discriminator_predictions.dense", "discriminator_predictions.activation"),
            LinearPart("discriminator_predictions.dense_prediction"),
        ),
        labels=("replaced",),
    ),
    **_for_each(
        "Deberta DebertaV2",
        {
            "ForMaskedLM": _deberta_lm,
            "ForSequenceClassification": _deberta_sentence,
            "ForMultipleChoice": _deberta_choices,
        },
        _token_tasks(),
    ),
    **_for_each(
        "ModernBert",
        {
            "ForMaskedLM": Head("masked-lm", (*_MODERN, *_modern_head("head"), LinearPart("decoder"))),
            "ForSequenceClassification": _modern_sentence,
            "ForMultipleChoice": _modern_choices,
            "ForTokenClassification": Head("token-classification", (*_MODERN, *_modern_head("head"), _CLASSIFIER)),
            "ForQuestionAnswering": _answers(*_MODERN, *_modern_head("head"), _CLASSIFIER),
        },
    ),
    "EuroBertForMaskedLM": Head("masked-lm", (*_RMS, _LM_HEAD)),
    "EuroBertForSequenceClassification": _eurobert_sentence,
    "EuroBertForTokenClassification": Head("token-classification", (*_RMS, _CLASSIFIER)),
    "SplinterForQuestionAnswering": _answers(_SPLINTER),
    "SplinterForPreTraining": _answers(_SPLINTER),
}

# ---- encoder-decoder models ------------------------------------------------------------------------------------------

_EOS: Parts = (
    EndToken(),
    *_named("classification_head.dense", "tanh"),
    LinearPart("classification_head.out_proj"),
)
_T5_LAST: Parts = (RmsNormPart("base_model.decoder.final_layer_norm"),)


def _bart_like(last: Parts) -> Table:
    return {
        "ForConditionalGeneration": Head("seq2seq-lm", (*last, _LM_HEAD, ShiftPart("final_logits_bias"))),
        "ForCausalLM": Head("causal-lm", (*last, _LM_HEAD)),
        "ForSequenceClassification": Head("sequence-classification", (*last, *_EOS)),
        "ForQuestionAnswering": _answers(*last, LinearPart("qa_outputs")),
    }


def _t5_lm(*, scaled: Callable[[Config], bool]) -> Callable[[Config], Head]:
    def described(config: Config) -> Head:
        scale: Parts = (ScalePart(config.d_model**-0.5),) if scaled(config) else ()
        return Head("seq2seq-lm", (*_T5_LAST, *scale, _LM_HEAD))

    return described


_MBART_LAST: Parts = (LayerNormPart("base_model.decoder.layer_norm"),)

ENCODER_DECODERS: Table = {
    **_for_each("Bart PLBart BlenderbotSmall Marian", _bart_like(())),
    **_for_each("MBart Pegasus Blenderbot", _bart_like(_MBART_LAST)),
    "MarianMTModel": Head("seq2seq-lm", (_LM_HEAD, ShiftPart("final_logits_bias"))),
    "M2M100ForConditionalGeneration": Head("seq2seq-lm", (*_MBART_LAST, _LM_HEAD)),
    "T5ForConditionalGeneration": _t5_lm(scaled=lambda config: config.scale_decoder_outputs),
    "UMT5ForConditionalGeneration": _t5_lm(scaled=lambda config: config.tie_word_embeddings),
    "MT5ForConditionalGeneration": _t5_lm(scaled=lambda _: False),
    **_for_each(
        "T5 MT5 UMT5",
        {
            "ForSequenceClassification": Head("sequence-classification", (*_T5_LAST, *_EOS)),
            "ForQuestionAnswering": _answers(*_T5_LAST, LinearPart("qa_outputs")),
            "ForTokenClassification": Head(
                "token-classification",
                (RmsNormPart("base_model.encoder.final_layer_norm"), _CLASSIFIER),
                reads_encoder=True,
            ),
        },
    ),
}

ENCODER_ENDS: dict[str, Parts] = {
    "bart": (),
    "mbart": (LayerNormPart("base_model.encoder.layer_norm"),),
    "t5": (RmsNormPart("base_model.encoder.final_layer_norm"),),
}
"""What acts between the encoder's last block and the states that the decoder reads, by the name of the family."""

# ---- images ----------------------------------------------------------------------------------------------------------

_VIT: Parts = (LayerNormPart("base_model.layernorm"),)

IMAGES: Table = {
    **_for_each("ViT DeiT", {"ForImageClassification": Head("image-classification", (*_VIT, *_FIRST, _CLASSIFIER))}),
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

TABLES: Iterable[Table] = (DECODERS, ENCODERS, ENCODER_DECODERS, IMAGES)
