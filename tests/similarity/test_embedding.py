"""Embeddings next to those of sentence-transformers: its folders are read, and its numbers are met."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.multi_vector_encoder import MultiVectorEncoder
from sentence_transformers.sentence_transformer import modules
from transformers import AutoTokenizer, BertConfig, BertModel, LlamaConfig, LlamaModel

import normscope as ns
from normscope.models.source import installed_folder

TEXTS = [
    "A man is playing a guitar on stage.",
    "Unbelievably, nothing.",
    "Some one performs live music with a guitar, an unmistakable virtuoso. " * 3,
]


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with a real tokenizer."""
    return _saved(tmp_path_factory.mktemp("transformer"), "bert")


def _saved(folder: Path, kind: str) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(str(installed_folder()))
    tokenizer.model_max_length = 64
    torch.manual_seed(0)
    size: dict[str, Any] = dict(
        vocab_size=len(tokenizer), hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40
    )
    model = (
        BertModel(BertConfig(**size, max_position_embeddings=64))
        if kind == "bert"
        else LlamaModel(LlamaConfig(**size, max_position_embeddings=64, pad_token_id=0))
    )
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def built(transformer: Path, folder: Path, *parts: Any, **settings: Any) -> SentenceTransformer:
    """A sentence-transformers model that is saved to a folder."""
    model = SentenceTransformer(modules=[modules.Transformer(str(transformer)), *parts], device="cpu", **settings)
    for name, parameter in model.named_parameters():
        if not name.startswith("0."):
            parameter.data.normal_(0, 0.4)
    model.save(str(folder))
    return model


def test_the_embedded_model_gives_what_sentence_transformers_gives(analyzer: ns.Analyzer) -> None:
    theirs = SentenceTransformer(str(installed_folder()), device="cpu")
    assert np.abs(theirs.encode(TEXTS) - analyzer.embed(TEXTS)).max() < 1e-5
    assert np.abs(theirs.encode(TEXTS[0]) - analyzer.embed(TEXTS[0])).max() < 1e-5
    value = float(theirs.similarity(*theirs.encode(TEXTS[:2])[:, None]).item())
    assert analyzer.similarity(TEXTS[0], TEXTS[1]).value == pytest.approx(value, abs=1e-5)


POOLINGS = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", ("mean", "max", "cls")]


@pytest.mark.parametrize("mode", POOLINGS, ids=str)
def test_every_pooling_of_a_folder(mode: Any, transformer: Path, tmp_path: Path) -> None:
    theirs = built(transformer, tmp_path, modules.Pooling(24, mode))
    ours = ns.load(tmp_path)
    np.testing.assert_allclose(ours.embed(TEXTS), theirs.encode(TEXTS), atol=1e-5, rtol=1e-5)
    similarity = ours.similarity(TEXTS[0], TEXTS[1])
    assert similarity.value == pytest.approx(float(theirs.similarity(*theirs.encode(TEXTS[:2]))), abs=1e-5)
    assert similarity.attrs["embedding_source"].startswith("modules.json")


def test_the_flags_of_an_older_folder(transformer: Path, tmp_path: Path) -> None:
    theirs = built(transformer, tmp_path, modules.Pooling(24, ("cls", "mean")))
    config = {"word_embedding_dimension": 24, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(config))
    np.testing.assert_allclose(ns.load(tmp_path).embed(TEXTS), theirs.encode(TEXTS), atol=1e-5, rtol=1e-5)


def test_dense_layers_norms_and_lengths_of_a_folder(transformer: Path, tmp_path: Path) -> None:
    theirs = built(
        transformer,
        tmp_path,
        modules.Pooling(24, "mean"),
        modules.Dense(24, 16, activation_function=torch.nn.Tanh()),
        modules.LayerNorm(16),
        modules.Dropout(0.1),
        modules.Dense(16, 12, bias=False, activation_function=torch.nn.Identity()),
        modules.Dense(12, 12, activation_function=torch.nn.GELU(), use_residual=True),
        modules.Dense(12, 9, activation_function=torch.nn.ReLU(), use_residual=True),
        modules.Normalize(),
        similarity_fn_name="dot",
    )
    ours = ns.load(tmp_path)
    np.testing.assert_allclose(ours.embed(TEXTS), theirs.encode(TEXTS), atol=1e-5, rtol=1e-5)
    similarity = ours.similarity(TEXTS[0], TEXTS[1])
    assert (similarity.measure, similarity.completeness < 1e-4) == ("dot", True)


def test_prompts_lower_case_and_the_longest_input_of_a_folder(transformer: Path, tmp_path: Path) -> None:
    prompts = {"query": "Represent the query for retrieval: ", "document": "Passage: "}
    pooling = modules.Pooling(24, "mean", include_prompt=False)
    theirs = built(transformer, tmp_path, pooling, prompts=prompts, default_prompt_name="document")
    ours = ns.load(tmp_path)
    np.testing.assert_allclose(ours.embed(TEXTS[:2]), theirs.encode(TEXTS[:2]), atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(
        ours.embed(TEXTS[:2], task="query"), theirs.encode_query(TEXTS[:2]), atol=1e-5, rtol=1e-5
    )
    similarity = ours.similarity(TEXTS[0], TEXTS[1], retrieval=True)
    expected = theirs.similarity(theirs.encode_query(TEXTS[0]), theirs.encode_document(TEXTS[1]))
    assert similarity.value == pytest.approx(float(expected), abs=1e-5)
    assert similarity.prompts == (prompts["query"], prompts["document"])
    marked = similarity.dataset["first_token"].values[similarity.dataset["first_prompt"].values]
    assert marked.tolist() == ["represent", "the", "query", "for", "retrieval", ":"]
    settings = json.loads((tmp_path / "sentence_bert_config.json").read_text())
    (tmp_path / "sentence_bert_config.json").write_text(
        json.dumps({**settings, "max_seq_length": 12, "do_lower_case": True})
    )
    with pytest.raises(ns.InputError, match="takes at most 12"):
        ns.load(tmp_path).embed(TEXTS[2])
    cut = SentenceTransformer(str(tmp_path), device="cpu")
    ours = ns.load(tmp_path).embed(TEXTS[2], truncate=True)
    np.testing.assert_allclose(ours, cut.encode(TEXTS[2]), atol=1e-5, rtol=1e-5)


def test_an_embedder_made_of_a_decoder_reads_its_last_token(tmp_path: Path) -> None:
    folder = _saved(tmp_path / "plain", "llama")
    theirs = built(folder, tmp_path / "embedder", modules.Pooling(24, "lasttoken"), modules.Normalize())
    ours = ns.load(tmp_path / "embedder")
    np.testing.assert_allclose(ours.embed(TEXTS), theirs.encode(TEXTS), atol=1e-5, rtol=1e-5)
    named = ns.load(folder).similarity(TEXTS[0], TEXTS[1], pooling="last")
    assert named.value == pytest.approx(ours.similarity(TEXTS[0], TEXTS[1]).value, abs=1e-5)


@pytest.mark.parametrize("attend", [True, False])
def test_late_interaction_of_a_folder(attend: bool, transformer: Path, tmp_path: Path) -> None:
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask  # noqa: PLC0415

    first = modules.Transformer(
        str(transformer), query_expansion={"strategy": "fixed", "length": 16, "attend": attend}, document_length=40
    )
    theirs = MultiVectorEncoder(
        modules=[
            first,
            modules.Dense(24, 8, bias=False, activation_function=None, module_input_name="token_embeddings"),
            modules.Normalize("token_embeddings"),
            MultiVectorMask(skiplist_words=[".", ","]),
        ],
        device="cpu",
    )
    theirs.save(str(tmp_path))
    ours = ns.load(tmp_path)
    similarity = ours.similarity(TEXTS[0], TEXTS[1])
    expected = theirs.similarity([theirs.encode_query(TEXTS[0])], [theirs.encode_document(TEXTS[1])])
    assert similarity.measure == "late-interaction"
    assert similarity.value == pytest.approx(float(expected), abs=1e-4)
    assert similarity.completeness < 1e-4
    assert len(similarity.first_tokens) == 16
    assert similarity.matches is not None
    assert float(similarity.matches.sum()) == pytest.approx(similarity.value, abs=1e-4)
    rows = ours.embed(TEXTS[0], task="query")
    np.testing.assert_allclose(rows, theirs.encode_query(TEXTS[0]), atol=1e-5)


# ---- what cannot be used -----------------------------------------------------------------------------------------------


@pytest.fixture
def broken(transformer: Path, tmp_path: Path) -> Callable[..., ns.Analyzer]:
    """A folder with a pooling and a dense layer, in which files are replaced by others."""
    built(transformer, tmp_path, modules.Pooling(24, "mean"), modules.Dense(24, 8))

    def load(**files: Any) -> ns.Analyzer:
        for name, content in files.items():
            path = tmp_path / name.replace("__", "/").replace("_json", ".json")
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return ns.load(tmp_path)

    return load


def test_a_folder_that_cannot_be_followed_says_why(broken: Callable[..., ns.Analyzer], tmp_path: Path) -> None:
    listed = json.loads((tmp_path / "modules.json").read_text())
    cases: list[tuple[dict[str, Any], str]] = [
        ({"modules_json": [*listed, {"type": "sentence_transformers.models.LSTM", "path": "2_LSTM"}]}, "module 'LSTM'"),
        ({"modules_json": [listed[0], {"type": "x.Asym", "path": "1"}]}, "the two sides have different models"),
        ({"modules_json": "{"}, "cannot be read as JSON"),
        ({"modules_json": {"a": 1}}, "is no list of modules"),
        ({"modules_json": listed, "1_Pooling__config_json": {"pooling_mode": "sum"}}, "pools by sum"),
        ({"1_Pooling__config_json": [1]}, "is not an object of settings"),
    ]
    for files, message in cases:
        with pytest.raises(ns.ModelError, match=message):
            broken(**files).embed("A text.")


def test_dense_weights_come_from_safetensors_alone(broken: Callable[..., ns.Analyzer], tmp_path: Path) -> None:
    dense = tmp_path / "2_Dense"
    shutil.move(dense / "model.safetensors", dense / "pytorch_model.bin")
    with pytest.raises(ns.UnsafeWeightsError, match="unpickling can run any code"):
        broken().embed("A text.")
    (dense / "pytorch_model.bin").unlink()
    with pytest.raises(ns.ModelError, match=r"has no model\.safetensors"):
        broken().embed("A text.")
    (dense / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ns.ModelError, match="cannot be read"):
        broken().embed("A text.")


def test_a_model_without_a_pooling_says_what_to_name(transformer: Path) -> None:
    model = ns.load(transformer)
    with pytest.raises(ns.InputError, match=r"no modules.json .* Name a pooling .* mean, first, last"):
        model.similarity("One.", "Two.")
    with pytest.raises(ns.InputError, match=r"There is no pooling 'meen'\. Did you mean 'mean'"):
        model.similarity("One.", "Two.", pooling="meen")
    assert model.similarity("One.", "Two.", pooling="mean").completeness < 1e-4


def test_a_measure_that_is_no_sum_over_pairs_is_refused(transformer: Path, tmp_path: Path) -> None:
    built(transformer, tmp_path, modules.Pooling(24, "mean"), similarity_fn_name="euclidean")
    model = ns.load(tmp_path)
    with pytest.raises(ns.InputError, match="compares its embeddings by 'euclidean'"):
        model.similarity("One.", "Two.")
    assert model.similarity("One.", "Two.", measure="dot").measure == "dot"
    with pytest.raises(ns.InputError, match="one vector for each text"):
        model.similarity("One.", "Two.", measure="late-interaction")


@pytest.mark.usefixtures("unchecked_types")
def test_bad_texts(analyzer: ns.Analyzer) -> None:
    cases: list[tuple[Any, Any, str]] = [
        ("", "A text.", "empty"),
        ("A text.", " \n", "empty"),
        ("A text.", [], "list of texts is empty"),
        ("A text.", ["Another.", ""], "empty"),
        ("A text.", 3, "list of texts, not a int"),
        (("a", "pair"), "A text.", "is a string, not a tuple"),
        ("A text.", "word " * 300, "takes at most 256"),
    ]
    for first, second, message in cases:
        with pytest.raises(ns.InputError, match=message):
            analyzer.similarity(first, second)
    assert len(analyzer.similarity("A text.", "word " * 300, truncate=True, table=False).second_tokens) == 256
    with pytest.raises(ns.InputError, match="cosine, dot, late-interaction"):
        analyzer.similarity("A text.", "Another.", measure="manhattan")


def test_a_model_that_gives_no_numbers_is_refused(transformer: Path) -> None:
    model = ns.load(transformer)
    model.model.get_parameter("encoder.layer.1.output.LayerNorm.bias").data.fill_(3e38)  # finite, but not their sum
    with pytest.raises(ns.ModelError, match="not finite"):
        model.similarity("One.", "Two.", pooling="mean")
