"""The task heads of models of sounds, by the names of their classes in transformers.

| trap | where |
|---|---|
| a norm follows the last block where norms come before the branches | wav2vec 2.0, HuBERT, WavLM |
| the states of all layers may be summed with weights, or made fewer by an adapter, which is refused | wav2vec 2.0 |
| two special tokens are averaged, and a norm follows | AST |
"""

from __future__ import annotations

from normscope.errors import HeadError
from normscope.families.heads.decoders import CLASSIFIER, LM_HEAD, Parts, Table, for_each
from normscope.families.heads.spec import AveragePart, Head, LinearPart, MeanOfPositions, TokenAt
from normscope.families.spec import Config, LayerNormPart


def _last(config: Config) -> Parts:
    """What acts between the last block and the states that the bare model outputs."""
    if getattr(config, "add_adapter", False):
        raise HeadError(
            "An adapter makes the frames fewer behind the last block (add_adapter), which is not described."
        )
    normed = getattr(config, "do_stable_layer_norm", False)
    return (LayerNormPart("base_model.encoder.layer_norm"),) if normed else ()


def _ctc(config: Config) -> Head:
    return Head("ctc", (*_last(config), LM_HEAD))


def _whole(config: Config) -> Head:
    if config.use_weighted_layer_sum:
        raise HeadError("This head reads the states of all layers (use_weighted_layer_sum), which is not described.")
    parts = (*_last(config), LinearPart("projector"), MeanOfPositions(), CLASSIFIER)
    return Head("sequence-classification", parts)


SOUNDS: Table = {
    **for_each(
        "Wav2Vec2 Hubert UniSpeech UniSpeechSat WavLM Data2VecAudio",
        {"ForCTC": _ctc, "ForSequenceClassification": _whole},
    ),
    "ASTForAudioClassification": Head(
        "sequence-classification",
        (
            LayerNormPart("base_model.layernorm"),
            AveragePart(((TokenAt(0),), (TokenAt(1),))),
            LayerNormPart("classifier.layernorm"),
            LinearPart("classifier.dense"),
        ),
    ),
}
