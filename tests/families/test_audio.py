"""Models of sounds: frames with times, from a file to a map and to an explanation."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from support.sounds import tone, write_wav
from support.tiny_architectures import SPECTROGRAM, WAVES, WHISPER, ids, tiny
from transformers import (
    ASTForAudioClassification,
    HubertForCTC,
    PreTrainedModel,
    UniSpeechSatForSequenceClassification,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2ForCTC,
    Wav2Vec2ForSequenceClassification,
    WavLMForCTC,
    WavLMForSequenceClassification,
    WhisperFeatureExtractor,
    WhisperForAudioClassification,
    WhisperForCausalLM,
    WhisperForConditionalGeneration,
)

import normscope as ns
from normscope.cli import main
from normscope.families import family_of
from normscope.inputs.audio import argument, noise
from normscope.results.explanation import Explanation
from normscope.testing import assert_explained, assert_head

FRAMED = {**WAVES, "conv_kernel": [400, 3], "conv_stride": [160, 2]}
"""Frames of twenty milliseconds, as the real ones are."""


@pytest.fixture(scope="module")
def hearing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hearing")
    model = tiny("wav2vec2", Wav2Vec2ForCTC, **FRAMED)
    model.save_pretrained(folder)
    Wav2Vec2FeatureExtractor().save_pretrained(folder)
    write_wav(folder / "tone.wav", tone(440, 0.2, 44100), 44100)
    return folder


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize(("model_type", "sizes"), [("wav2vec2", WAVES), ("wavlm", WAVES), ("whisper", WHISPER)])
def test_what_a_model_of_another_precision_hears_is_converted(
    model_type: str, sizes: dict[str, Any], dtype: torch.dtype
) -> None:
    model = tiny(model_type, **sizes)
    heard = {argument(model): noise(model, 1, torch.Generator().manual_seed(0)).float()}
    analyzer = ns.load(cast(Any, model).to(dtype))
    target = None if analyzer.family.encoder is None else {"input_ids": torch.tensor([[3, 4, 5]])}
    analysis = analyzer.analyze(heard, decoder_text=target)
    assert isinstance(analysis, ns.Analysis)
    assert float(analysis.completeness.max()) < (1e-12 if dtype == torch.float64 else 0.05)


def test_a_sound_gives_frames_with_times(hearing: Path) -> None:
    analyzer = ns.load(hearing)
    analysis = analyzer.analyze(hearing / "tone.wav")
    assert isinstance(analysis, ns.Analysis)
    assert analysis.tokens[:3] == ["0.00s", "0.02s", "0.04s"]
    np.testing.assert_allclose(analysis.dataset["key_time"].values, 0.02 * np.arange(len(analysis.tokens)))
    for same in ((tone(440, 0.2, 44100), 44100), {"array": tone(440, 0.2, 44100), "sampling_rate": 44100}):
        other = analyzer.analyze(same)
        assert isinstance(other, ns.Analysis)
        np.testing.assert_allclose(other.map("Attn").values, analysis.map("Attn").values, rtol=1e-2)


def test_sounds_of_a_list_are_analysed_each_by_itself(hearing: Path) -> None:
    analyzer, short = ns.load(hearing), (tone(300, 0.1, 16000), 16000)
    both = analyzer.analyze([hearing / "tone.wav", short])
    alone = analyzer.analyze(short)
    assert isinstance(both, list) and isinstance(alone, ns.Analysis)
    np.testing.assert_array_equal(both[1].map("Attn").values, alone.map("Attn").values)


def test_a_saved_map_keeps_its_times(hearing: Path, tmp_path: Path) -> None:
    analysis = ns.load(hearing).analyze(hearing / "tone.wav")
    assert isinstance(analysis, ns.Analysis)
    analysis.save(tmp_path / "a.nc")
    again = ns.open(tmp_path / "a.nc")
    np.testing.assert_array_equal(again.dataset["query_time"], analysis.dataset["query_time"])


def test_a_frame_of_ctc_is_explained_by_frames(hearing: Path) -> None:
    analyzer = ns.load(hearing)
    explanation = analyzer.explain(hearing / "tone.wav", at=3)
    assert isinstance(explanation, Explanation)
    assert explanation.attribution["token_time"].values[3] == pytest.approx(0.06)
    total = float(explanation.attribution.sum()) + explanation.biases[0]
    assert total == pytest.approx(explanation.values[0], rel=1e-3, abs=1e-5)


@pytest.mark.parametrize(
    ("model_type", "auto", "settings"),
    [
        ("whisper", WhisperForConditionalGeneration, WHISPER),
        ("whisper", WhisperForAudioClassification, WHISPER),
        ("wav2vec2", Wav2Vec2ForSequenceClassification, {**WAVES, "feat_extract_norm": "group"}),
        ("wav2vec2", Wav2Vec2ForCTC, {**WAVES, "feat_extract_norm": "layer", "do_stable_layer_norm": True}),
        ("hubert", HubertForCTC, WAVES),
        ("unispeech-sat", UniSpeechSatForSequenceClassification, WAVES),
        ("wavlm", WavLMForSequenceClassification, WAVES),
        ("wavlm", WavLMForCTC, {**WAVES, "feat_extract_norm": "layer", "do_stable_layer_norm": True}),
        ("audio-spectrogram-transformer", ASTForAudioClassification, SPECTROGRAM),
    ],
)
def test_heads_of_models_of_sounds_are_followed_to_the_frames(
    model_type: str, auto: type[PreTrainedModel], settings: dict[str, object]
) -> None:
    model = tiny(model_type, auto, **settings)
    assert_head(model)
    assert assert_explained(model).completeness < 1e-4


def twice(_: torch.nn.Module, __: object, output: torch.Tensor) -> torch.Tensor:
    return 2 * output


def first_twice(_: torch.nn.Module, __: object, output: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return (2 * output[0], *output[1:])


def test_weights_of_an_attention_in_one_call_average_to_those_that_the_model_shows() -> None:
    model = tiny("wavlm", **WAVES).eval()
    heard = {"input_values": torch.randn(1, 120, generator=torch.Generator().manual_seed(0))}
    own = model(**heard, output_attentions=True).attentions
    analysis = ns.load(model).analyze(heard)
    assert isinstance(analysis, ns.Analysis)
    for layer, weights in enumerate(own, start=1):
        found = analysis.map("AttnW").sel(layer=layer).values
        np.testing.assert_allclose(found, weights[0, 0].detach().numpy(), rtol=1e-5, atol=1e-7)


def test_values_of_an_attention_in_one_call_are_those_of_the_weights_that_it_gets() -> None:
    model = tiny("wavlm", **WAVES).eval()
    heard = {"input_values": torch.randn(1, 120, generator=torch.Generator().manual_seed(0))}
    before = ns.load(model).analyze(heard)
    attention = model.get_submodule("encoder.layers.0.attention")
    attention.get_submodule("v_proj").register_forward_hook(twice)  # it is never called
    after = ns.load(model).analyze(heard)
    assert isinstance(before, ns.Analysis)
    assert isinstance(after, ns.Analysis)
    np.testing.assert_array_equal(after.map("Attn").values, before.map("Attn").values)
    attention.register_forward_hook(first_twice)
    with pytest.raises(ns.CompletenessError):
        ns.load(model).analyze(heard)


def test_edges_of_an_attention_that_calls_no_output_projection_are_not_cut() -> None:
    analyzer = ns.load(tiny("wavlm", WavLMForCTC, **WAVES))
    heard = {"input_values": torch.randn(1, 120, generator=torch.Generator().manual_seed(0))}
    explanation = analyzer.explain(heard, at=1, objective="logit")
    assert isinstance(explanation, Explanation)
    with pytest.raises(ns.UnsupportedArchitectureError, match="does not call its output projection"):
        explanation.verify(1)


def test_the_decoder_of_whisper_hears_the_most_probable_text() -> None:
    model = tiny("whisper", WhisperForConditionalGeneration, **WHISPER)
    features = torch.randn(1, 6, 22, generator=torch.Generator().manual_seed(0))
    analysis = ns.load(model).analyze({"input_features": features})
    assert isinstance(analysis, ns.Analysis)
    read = [int(token) for token in analysis.dataset["query_token"].values]
    with torch.no_grad():
        model.eval()
        logits = model(input_features=features, decoder_input_ids=torch.tensor([read])).logits[0]
    given = [int(token) for token in analysis.dataset["query_output_token"].values]
    assert given == logits.argmax(-1).tolist()


def test_the_decoder_of_whisper_alone_reads_text() -> None:
    assert family_of("whisper").reads == "audio"
    analysis = ns.load(tiny("whisper", WhisperForCausalLM, **WHISPER)).analyze(ids(5, 6, 7))
    assert isinstance(analysis, ns.Analysis) and len(analysis.tokens) == 3


def test_silence_that_fills_up_an_input_is_special(tmp_path: Path) -> None:
    model = tiny("whisper", WhisperForConditionalGeneration, **{**WHISPER, "max_source_positions": 50})
    model.save_pretrained(tmp_path)
    WhisperFeatureExtractor(feature_size=6, chunk_length=1).save_pretrained(tmp_path)
    analyzer = ns.load(tmp_path)
    analysis = analyzer.analyze((tone(440, 0.4, 16000), 16000), decoder_text=ids(5, 6))
    assert isinstance(analysis, ns.Analysis)
    assert len(analysis.encoder.tokens) == 50
    assert analysis.encoder.without_special_tokens().tokens[-1] == "0.38s"
    with pytest.raises(ns.InputError, match=r"1\.50 s, but the model reads 1\.00 s"):
        analyzer.analyze((tone(440, 1.5, 16000), 16000), decoder_text=ids(5, 6))


def test_patches_of_a_spectrogram_have_times_and_bands() -> None:
    analyzer = ns.load(tiny("audio-spectrogram-transformer", **SPECTROGRAM))
    analysis = analyzer.analyze({"input_values": torch.randn(16, 10)})
    assert isinstance(analysis, ns.Analysis)
    assert analysis.tokens[:7] == ["[CLS]", "[DIST]", "0.00s/0", "0.04s/0", "0.08s/0", "0.12s/0", "0.00s/1"]
    assert np.isnan(analysis.dataset["key_time"].values[:2]).all()


def test_the_command_line_takes_the_file_of_a_sound(hearing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["map", str(hearing / "tone.wav"), "--model", str(hearing)])
    assert "0.02s" in capsys.readouterr().out


def test_a_sound_for_a_text_model_is_refused(hearing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["map", str(hearing / "tone.wav")])
    assert ended.value.code == 2
    assert "is the file of a sound" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((np.zeros(100), 16000), "too short"),
        ([], "list of sounds is empty"),
        ({"input_features": [1.0]}, "needs 'input_values'"),
    ],
)
def test_a_sound_that_cannot_be_heard_is_refused(hearing: Path, given: object, message: str) -> None:
    with pytest.raises(ns.InputError, match=message):
        ns.load(hearing).analyze(given)  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_a_sound_without_a_feature_extractor_is_refused() -> None:
    with pytest.raises(ns.InputError, match="without a feature extractor"):
        ns.load(tiny("wav2vec2", **WAVES)).analyze((np.zeros(100), 16000))
