"""The task heads of encoder-decoder models, by the names of their classes in transformers.

| trap | where |
|---|---|
| the logits have a bias that is a buffer of the model | BART and its kin, not M2M-100 |
| the token that is classified is found in the encoder's input, and read in the decoder | BART, T5 |
| the activation is called by name and belongs to no module | BART, T5 |
| the states before the output matrix are scaled, by one setting or another, or never | T5; UMT5; mT5 |
| the token classifier has an encoder only | T5 |
"""

from __future__ import annotations

from collections.abc import Callable

from normscope.families.heads.decoders import CLASSIFIER, LM_HEAD, Parts, Table, answers, for_each, named
from normscope.families.heads.spec import EndToken, Head, LinearPart, MeanOfPositions, ScalePart, ShiftPart, SoftCapPart
from normscope.families.spec import Config, LayerNormPart, RmsNormPart, UnitRmsNormPart

_EOS: Parts = (
    EndToken(),
    *named("classification_head.dense", "tanh"),
    LinearPart("classification_head.out_proj"),
)
_T5_LAST: Parts = (RmsNormPart("base_model.decoder.final_layer_norm"),)


def _bart_like(last: Parts) -> Table:
    return {
        "ForConditionalGeneration": Head("seq2seq-lm", (*last, LM_HEAD, ShiftPart("final_logits_bias"))),
        "ForCausalLM": Head("causal-lm", (*last, LM_HEAD)),
        "ForSequenceClassification": Head("sequence-classification", (*last, *_EOS)),
        "ForQuestionAnswering": answers(*last, LinearPart("qa_outputs")),
    }


def _t5_lm(*, scaled: Callable[[Config], bool]) -> Callable[[Config], Head]:
    def described(config: Config) -> Head:
        scale: Parts = (ScalePart(config.d_model**-0.5),) if scaled(config) else ()
        return Head("seq2seq-lm", (*_T5_LAST, *scale, LM_HEAD))

    return described


_T5GEMMA_LAST: Parts = (UnitRmsNormPart("base_model.decoder.norm"),)


def _t5gemma(config: Config) -> Head:
    cap, output = config.decoder.final_logit_softcapping, "lm_head.out_proj"
    capped: Parts = () if cap is None else (SoftCapPart(output, cap),)
    return Head("seq2seq-lm", (*_T5GEMMA_LAST, LinearPart(output), *capped))


_BIG_BIRD_LAST: Parts = (LayerNormPart("base_model.decoder.layernorm_embedding"),)
_SEAMLESS_LAST: Parts = (LayerNormPart("base_model.text_decoder.layer_norm"),)
_MBART_LAST: Parts = (LayerNormPart("base_model.decoder.layer_norm"),)

ENCODER_DECODERS: Table = {
    **for_each("Bart PLBart BlenderbotSmall Marian Mvp LED", _bart_like(())),
    **for_each("MBart Pegasus Blenderbot", _bart_like(_MBART_LAST)),
    **for_each("BigBirdPegasus", _bart_like(_BIG_BIRD_LAST)),
    "MarianMTModel": Head("seq2seq-lm", (LM_HEAD, ShiftPart("final_logits_bias"))),
    "WhisperForConditionalGeneration": Head("seq2seq-lm", (*_MBART_LAST, LinearPart("proj_out"))),
    "WhisperForCausalLM": Head("causal-lm", (*_MBART_LAST, LinearPart("proj_out"))),
    "WhisperForAudioClassification": Head(
        "sequence-classification",
        (LayerNormPart("encoder.layer_norm"), LinearPart("projector"), MeanOfPositions(), CLASSIFIER),
        reads_encoder=True,
    ),
    "LongT5ForConditionalGeneration": _t5_lm(scaled=lambda config: config.scale_decoder_outputs),
    **for_each("SeamlessM4T SeamlessM4Tv2", {"ForTextToText": Head("seq2seq-lm", (*_SEAMLESS_LAST, LM_HEAD))}),
    "NllbMoeForConditionalGeneration": Head("seq2seq-lm", (*_MBART_LAST, LM_HEAD)),
    "SwitchTransformersForConditionalGeneration": _t5_lm(scaled=lambda config: config.tie_word_embeddings),
    "T5GemmaForConditionalGeneration": _t5gemma,
    "M2M100ForConditionalGeneration": Head("seq2seq-lm", (*_MBART_LAST, LM_HEAD)),
    "T5ForConditionalGeneration": _t5_lm(scaled=lambda config: config.scale_decoder_outputs),
    "UMT5ForConditionalGeneration": _t5_lm(scaled=lambda config: config.tie_word_embeddings),
    "MT5ForConditionalGeneration": _t5_lm(scaled=lambda _: False),
    **for_each(
        "T5 MT5 UMT5",
        {
            "ForSequenceClassification": Head("sequence-classification", (*_T5_LAST, *_EOS)),
            "ForQuestionAnswering": answers(*_T5_LAST, LinearPart("qa_outputs")),
            "ForTokenClassification": Head(
                "token-classification",
                (RmsNormPart("base_model.encoder.final_layer_norm"), CLASSIFIER),
                reads_encoder=True,
            ),
        },
    ),
}

ENCODER_ENDS: dict[str, Parts] = {
    "bart": (),
    "mvp": (),
    "led": (),
    "whisper": (LayerNormPart("base_model.encoder.layer_norm"),),
    "longt5": (RmsNormPart("base_model.encoder.final_layer_norm"),),
    "seamless_m4t": (LayerNormPart("base_model.text_encoder.layer_norm"),),
    "mbart": (LayerNormPart("base_model.encoder.layer_norm"),),
    "bigbird_pegasus": (LayerNormPart("base_model.encoder.layernorm_embedding"),),
    "t5": (RmsNormPart("base_model.encoder.final_layer_norm"),),
    "switch_transformers": (RmsNormPart("base_model.encoder.final_layer_norm"),),
    "nllb-moe": (LayerNormPart("base_model.encoder.layer_norm"),),
    "t5gemma": (UnitRmsNormPart("base_model.encoder.norm"),),
}
"""What acts between the encoder's last block and the states that the decoder reads, by the name of the family."""
