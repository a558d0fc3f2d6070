"""An encoder or a decoder that was cut out of an encoder-decoder."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.tiny_architectures import (
    BART,
    T5,
    ids,
    tiny,
)
from transformers import (
    AutoModelForSeq2SeqLM,
    BartForCausalLM,
    BlenderbotForCausalLM,
    BlenderbotSmallForCausalLM,
    MarianForCausalLM,
    MBartForCausalLM,
    MT5EncoderModel,
    PegasusForCausalLM,
    PLBartForCausalLM,
    PreTrainedModel,
    T5EncoderModel,
    UMT5EncoderModel,
)

import normscope as ns
from normscope.families import family_of
from normscope.testing import assert_family

ALONE = [
    (T5EncoderModel, "t5", T5, ["AttnW", "Attn", "AttnRes", "AttnResLn", "AttnResLnFf", "AttnResLnFfRes"]),
    (MT5EncoderModel, "mt5", {**T5, "feed_forward_proj": "gated-gelu"}, None),
    (UMT5EncoderModel, "umt5", T5, None),
    (BartForCausalLM, "bart", BART, ["AttnW", "Attn", "AttnRes", "AttnResLn", "AttnResLnFf", "AttnResLnFfRes"]),
    (MarianForCausalLM, "marian", BART, None),
    (PLBartForCausalLM, "plbart", BART, None),
    (BlenderbotSmallForCausalLM, "blenderbot-small", BART, None),
    (MBartForCausalLM, "mbart", BART, None),
    (PegasusForCausalLM, "pegasus", BART, None),
    (BlenderbotForCausalLM, "blenderbot", BART, None),
]


def alone(model_class: Any, model_type: str, sizes: dict[str, Any]) -> PreTrainedModel:
    """A class that holds one stack of an encoder-decoder."""
    return tiny(model_type, model_class, **sizes)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("model_class", "model_type", "sizes", "scopes"), ALONE)
def test_an_encoder_or_a_decoder_alone_passes_the_whole_battery(
    model_class: Any, model_type: str, sizes: dict[str, Any], scopes: list[str] | None
) -> None:
    assert_family(family_of(model_type), alone(model_class, model_type, sizes))


@pytest.mark.parametrize(("model_class", "model_type", "sizes", "scopes"), ALONE)
def test_an_encoder_or_a_decoder_alone_is_analysed_without_a_target(
    model_class: Any, model_type: str, sizes: dict[str, Any], scopes: list[str] | None
) -> None:
    model = alone(model_class, model_type, sizes)
    analyzer, decodes = ns.load(model), model_class.__name__.endswith("CausalLM")
    assert scopes is None or analyzer.scopes[: len(scopes)] == scopes
    assert not any("Cross" in scope for scope in analyzer.scopes)
    assert len(analyzer.layers) == (3 if decodes else 2)
    analysis = analyzer.analyze(ids(5, 6, 7, 2))
    assert bool(np.isnan(analysis.map("Attn").values[0, 0, 1])) == decodes
    with pytest.raises(ns.InputError, match="no encoder"):
        analyzer.analyze(ids(5, 6), decoder_text=ids(5, 6))


def test_the_encoder_alone_gives_what_it_gives_inside_the_whole_model() -> None:
    whole = tiny("t5", AutoModelForSeq2SeqLM, **T5)
    encoder = alone(T5EncoderModel, "t5", T5)
    encoder.load_state_dict(whole.state_dict(), strict=False)
    inside = ns.load(whole).analyze(ids(5, 6, 7, 2), decoder_text=ids(9, 2)).encoder
    outside = ns.load(encoder).analyze(ids(5, 6, 7, 2))
    np.testing.assert_array_equal(inside.map("AttnResLnFfRes").values, outside.map("AttnResLnFfRes").values)
