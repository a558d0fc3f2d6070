"""Weights that are not the model's own, or cannot be read: every one is refused by its name, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.tiny_architectures import tiny as tiny_architecture
from support.tiny_heads import tiny_head
from support.tiny_models import HEADS, tiny, token_ids
from torch import Tensor
from transformers import PreTrainedModel

import normscope as ns

WEIGHTS = "model.safetensors"
IDS = torch.tensor(token_ids(5))

Change = Callable[[dict[str, Tensor]], Any]


def saved(model: PreTrainedModel, folder: Path, change: Change = lambda weights: None, **settings: Any) -> Path:
    """A folder with a model whose checkpoint and configuration were changed afterwards."""
    model.save_pretrained(folder)
    weights = load_file(folder / WEIGHTS)
    change(weights)
    save_file(weights, folder / WEIGHTS, {"format": "pt"})
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    return folder


def without(*parts: str) -> Change:
    """Take the weights away whose names contain one of these."""

    def change(weights: dict[str, Tensor]) -> None:
        for name in [name for name in weights if any(part in name for part in parts)]:
            del weights[name]

    return change


# ---- weights that a checkpoint lacks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "lacking"),
    [
        (lambda: tiny("bert"), "embeddings.word_embeddings.weight"),
        (lambda: tiny("bert"), "embeddings.LayerNorm.bias"),
        (lambda: tiny("bert"), "encoder.layer.1.output.dense.weight"),
        (lambda: tiny_head("llama", "LlamaForCausalLM"), "model.norm.weight"),
        (lambda: tiny_head("llama", "LlamaForCausalLM"), "model.embed_tokens.weight"),
        (lambda: tiny_head("gpt2", "GPT2LMHeadModel"), "transformer.ln_f.bias"),
        (lambda: tiny_head("t5", "T5ForConditionalGeneration"), "decoder.final_layer_norm.weight"),
        (lambda: tiny_head("t5", "T5ForConditionalGeneration"), "encoder.final_layer_norm.weight"),
        (lambda: tiny_head("vit", "ViTForImageClassification"), "vit.layernorm.weight"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_checkpoint_that_lacks_what_maps_are_made_of_is_refused_by_name(
    make: Callable[[], PreTrainedModel], lacking: str, tmp_path: Path
) -> None:
    model = make()
    model.config.tie_word_embeddings = False
    folder = saved(model, tmp_path, without(lacking), tie_word_embeddings=False)
    with pytest.raises(ns.ModelError, match=rf"lacks weights of the model: .*'{lacking}'.* at random"):
        ns.load(folder)


@pytest.mark.parametrize(
    ("make", "part", "lacking"),
    [
        (lambda: tiny("bert", auto=HEADS["masked LM"]), "transform.dense", "cls.predictions.transform.dense.weight"),
        (lambda: tiny("bert", auto=HEADS["sequence classification"]), "classifier", "classifier.bias"),
        (lambda: tiny("bert", auto=HEADS["sequence classification"]), "pooler", "bert.pooler.dense.weight"),
        (lambda: tiny("albert", auto=HEADS["sequence classification"]), "pooler", "albert.pooler.weight"),
        (lambda: tiny_head("llama", "LlamaForCausalLM", tie_word_embeddings=False), "lm_head", "lm_head.weight"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_head_whose_weights_are_lacking_is_refused_by_name_and_only_when_it_is_asked(
    make: Callable[[], PreTrainedModel], part: str, lacking: str, tmp_path: Path
) -> None:
    model = make()
    analyzer = ns.load(saved(model, tmp_path, without(part)))
    own = ns.load(model).analyze(IDS, scopes="AttnRes").map("AttnRes")
    assert analyzer.analyze(IDS, scopes="AttnRes").map("AttnRes").equals(own)
    analyzer.explain(IDS, direction="state", at=1)
    for method in ("pull-back", "leave-one-out"):
        with pytest.raises(ns.HeadError, match=rf"lacks weights of its task head: .*'{lacking}'"):
            analyzer.explain(IDS, at=1 if "LM" in type(model).__name__ else None, method=method)


def test_an_encoder_decoder_without_its_head_does_not_generate_a_target(tmp_path: Path) -> None:
    model = tiny_head("bart", "BartForConditionalGeneration", tie_word_embeddings=False)
    analyzer = ns.load(saved(model, tmp_path, without("lm_head")))
    assert analyzer.analyze(IDS, decoder_text=IDS, scopes="AttnW").map("AttnW").size
    with pytest.raises(ns.HeadError, match=r"task head: 'lm_head\.weight'"):
        analyzer.analyze(IDS)
    with pytest.raises(ns.HeadError, match=r"task head: 'lm_head\.weight'"):
        analyzer.explain(IDS, target=[7, 8])


def test_trials_of_predictions_are_refused_without_the_weights_of_the_head(tmp_path: Path) -> None:
    from normscope.experiments.faithfulness.base import task_of  # noqa: PLC0415  (not before types are checked)

    answers = tiny_head("t5", "T5ForQuestionAnswering")
    with pytest.raises(ns.HeadError, match=r"lacks weights of its task head: 'qa_outputs\.bias'"):
        task_of(ns.load(saved(answers, tmp_path, without("qa_outputs"))))
    assert task_of(ns.load(tiny("bert"))) == "none"


def test_weights_that_are_made_up_are_no_part_of_what_a_model_is_known_by(tmp_path: Path) -> None:
    folder = saved(tiny("bert"), tmp_path, without("pooler"))
    assert ns.load(folder).facts == ns.load(folder).facts


def test_sines_of_positions_need_not_be_saved(tmp_path: Path) -> None:
    model = tiny_head("marian", "MarianMTModel")
    folder = saved(model, tmp_path, without("embed_positions"), architectures=["MarianModel"])
    weights = ns.load(folder).analyze(IDS, decoder_text=IDS, scopes="AttnW")
    assert weights.map("AttnW").size


def test_what_a_head_does_not_use_may_be_lacking(tmp_path: Path) -> None:
    model = tiny_head("bert", "BertForPreTraining")
    analyzer = ns.load(saved(model, tmp_path, without("seq_relationship", "pooler")))
    assert analyzer.explain(IDS, at=1).attribution.equals(ns.load(model).explain(IDS, at=1).attribution)


def test_tied_weights_are_not_lacking(tmp_path: Path) -> None:
    model = tiny_head("llama", "LlamaForCausalLM", tie_word_embeddings=True)
    model.save_pretrained(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / WEIGHTS)
    assert ns.load(tmp_path).explain(IDS).attribution.equals(ns.load(model).explain(IDS).attribution)


def test_a_bare_checkpoint_in_a_class_with_a_head_and_the_reverse_give_their_maps(tmp_path: Path) -> None:
    whole = tiny("bert", auto=HEADS["masked LM"])
    bare = saved(whole.base_model, tmp_path / "bare", architectures=["BertForMaskedLM"])
    full = saved(whole, tmp_path / "full", architectures=["BertModel"])
    maps = [ns.load(folder).analyze(IDS, scopes="Attn").map("Attn") for folder in (bare, full)]
    assert maps[0].equals(maps[1])


def test_an_index_that_names_a_shard_which_is_not_there_is_refused(tmp_path: Path) -> None:
    tiny("bert").save_pretrained(tmp_path, max_shard_size="4KB")
    shards = sorted(tmp_path.glob("*.safetensors"))
    assert len(shards) > 2
    shards[1].unlink()
    with pytest.raises(ns.ModelError, match=r"could not be loaded: .*model-00002-of"):
        ns.load(tmp_path)


def test_a_shard_that_lacks_some_of_what_its_index_names_is_refused(tmp_path: Path) -> None:
    tiny("bert").save_pretrained(tmp_path, max_shard_size="4KB")
    assert ns.load(tmp_path).layers == [1, 2]
    shard = sorted(tmp_path.glob("*.safetensors"))[1]
    name, *rest = sorted(weights := load_file(shard))
    save_file({each: weights[each] for each in rest}, shard, {"format": "pt"})
    with pytest.raises(ns.ModelError, match=f"lacks weights of the model: '{name}'"):
        ns.load(tmp_path)


def test_a_pickle_checkpoint_that_lacks_weights_is_refused(tmp_path: Path) -> None:
    saved(tiny("bert"), tmp_path, without("LayerNorm"))
    torch.save(load_file(tmp_path / WEIGHTS), tmp_path / "pytorch_model.bin")
    (tmp_path / WEIGHTS).unlink()
    with pytest.raises(ns.ModelError, match="lacks weights of the model"):
        ns.load(tmp_path, allow_pickle=True)


# ---- weights for which there is no place -------------------------------------------------------------------------------


def test_a_configuration_with_fewer_layers_than_the_checkpoint_is_refused(tmp_path: Path) -> None:
    folder = saved(tiny("bert"), tmp_path, num_hidden_layers=1)
    with pytest.raises(ns.ModelError, match=r"no place: 'encoder\.layer\.1\..*fewer layers"):
        ns.load(folder)


def test_a_configuration_without_the_biases_of_the_checkpoint_is_refused(tmp_path: Path) -> None:
    model = tiny_architecture("llama", attention_bias=True)
    folder = saved(model, tmp_path, attention_bias=False)
    with pytest.raises(ns.ModelError, match=r"no place: 'layers\.0\.self_attn\.k_proj\.bias'"):
        ns.load(folder)


def test_what_old_checkpoints_saved_beside_their_weights_is_no_concern(tmp_path: Path) -> None:
    def old(weights: dict[str, Tensor]) -> None:
        weights["transformer.h.0.attn.bias"] = torch.ones(1, 1, 4, 4)
        weights["transformer.h.0.attn.masked_bias"] = torch.tensor(-1e4)
        weights["some.other.weight"] = torch.ones(2)

    assert ns.load(saved(tiny_head("gpt2", "GPT2LMHeadModel"), tmp_path, old)).layers == [1, 2]


# ---- numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [torch.inf, -torch.inf])
def test_infinite_weights_are_refused_with_their_place(value: float, tmp_path: Path) -> None:
    model = tiny("bert")
    saved(model, tmp_path, lambda weights: weights["encoder.layer.1.output.dense.weight"][2, 3].fill_(value))
    model.encoder.layer[1].output.dense.weight.data[2, 3] = value
    for source in (model, tmp_path):
        with pytest.raises(
            ns.ModelError, match=r"infinite numbers \(first in encoder\.layer\.1\.output\.dense\.weight\)"
        ):
            ns.load(source)


def test_weights_that_are_large_but_finite_are_not_refused() -> None:
    model = tiny("bert")
    model.pooler.dense.weight.data.fill_(3e38)  # their sum is infinite
    assert ns.load(model).layers == [1, 2]


def test_a_buffer_may_hold_infinite_numbers() -> None:
    model = tiny("bert")
    model.register_buffer("mask", torch.full((2, 2), -torch.inf))
    assert ns.load(model).analyze(IDS, scopes="AttnW").map("AttnW").size


def test_weights_that_are_not_finite_any_more_are_refused() -> None:
    model = tiny("bert")
    analyzer = ns.load(model)
    analyzer.analyze(IDS, scopes="AttnW")
    model.embeddings.word_embeddings.weight.data[:] = torch.nan
    with pytest.raises(ns.ModelError, match=r"NaN \(first in embeddings\.word_embeddings\.weight\)"):
        analyzer.analyze(IDS, scopes="AttnW")


def test_results_are_about_the_weights_at_the_time() -> None:
    model = tiny("bert")
    analyzer = ns.load(model)
    first = analyzer.analyze(IDS, scopes="AttnW").dataset.attrs
    model.encoder.layer[0].output.dense.weight.data[0, 0] += 1
    second = analyzer.analyze(IDS, scopes="AttnW").dataset.attrs
    model.double()
    third = analyzer.explain(IDS, direction="state", at=1).attrs
    assert len({attrs["fingerprint"] for attrs in (first, second, third)}) == 3
    assert (second["dtype"], third["dtype"]) == ("float32", "float64")
    assert third["tolerance"] == ns.load(model).tolerance < second["tolerance"]
    assert third["fingerprint"] == ns.load(model).facts["fingerprint"]


# ---- forms that cannot be read -----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_a_dynamically_quantised_model_is_refused() -> None:
    model = tiny("bert")
    model.encoder.layer[0].output.dense = torch.ao.nn.quantized.dynamic.Linear(20, 12)
    with pytest.raises(ns.ModelError, match=r"encoder\.layer\.0\.output\.dense is a quantised Linear.*dequantise it"):
        ns.load(model)


def test_weights_of_eight_bits_are_refused() -> None:
    model = tiny("bert")
    dense = model.encoder.layer[0].output.dense
    dense.weight.data = dense.weight.data.to(torch.float8_e4m3fn)
    with pytest.raises(ns.ModelError, match=r"encoder\.layer\.0\.output\.dense\.weight is in float8_e4m3fn"):
        ns.load(model)
