"""Quantised models as they are used: what flows is computed with the weights that the model really uses, or refused.

The packages that quantise are not needed to develop; their tests run where they are installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_architectures import ids
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import normscope as ns

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the packages that quantise

TEXT = ids(5, 6, 7, 8, 9, 10)
SIZES = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def llama(dtype: torch.dtype = torch.float32) -> LlamaForCausalLM:
    """A tiny Llama of sizes that every format can pack."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES, pad_token_id=0)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter.data, std=0.3)
    return model.to(dtype)


def unpacked(model: Any) -> Any:
    """The same model with plain linear layers that have the numbers of the packed weights."""
    plain = llama(model.dtype)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            plain.get_submodule(name).weight.data = module.weight.dequantize().detach()
    return plain


def check_same_as_unpacked(model: Any) -> None:
    """Its maps and logits are those of the numbers that its weights stand for."""
    found, expected = ns.load(model), ns.load(unpacked(model))
    ours, theirs = (analyzer.analyze(TEXT) for analyzer in (found, expected))
    assert float(ours.dataset["component_error"].max()) < 1e-5
    for scope in found.scopes:
        scale = float(np.nanmax(theirs.map(scope)))
        np.testing.assert_allclose(ours.map(scope), theirs.map(scope), rtol=0, atol=1e-5 * scale)
    explanation = found.explain(TEXT, target=7)
    assert explanation.completeness < 1e-5
    own = float(logits(model)[-1, 7])
    whole = found.explain(TEXT, target=7, objective="logit").values
    np.testing.assert_allclose(whole, own, rtol=1e-5)


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        return model(input_ids=torch.tensor(TEXT["input_ids"])).logits[0]


# ---- without any package -----------------------------------------------------------------------------------------------


class Packed(Tensor):
    """A weight of eight bits with a scale for each row, which stands for their product, as packages make them."""

    @staticmethod
    def __new__(cls, numbers: Tensor, scales: Tensor) -> Packed:
        return torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=scales.dtype)  # type: ignore[attr-defined]

    def __init__(self, numbers: Tensor, scales: Tensor) -> None:
        self.numbers, self.scales = numbers, scales

    @classmethod
    def of(cls, weight: Tensor) -> Packed:
        scales = weight.abs().amax(-1, keepdim=True) / 127
        return cls((weight / scales).round().to(torch.int8), scales)

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["numbers", "scales"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], *_: object) -> Packed:
        return Packed(inner["numbers"], inner["scales"])

    @classmethod
    def __torch_dispatch__(cls, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.detach.default:
            return cls(args[0].numbers, args[0].scales)
        plain, named = tree_map(cls._plain, args), tree_map(cls._plain, kwargs or {})
        return plain[0] if function is torch.ops.aten.dequantize.self else function(*plain, **named)

    @classmethod
    def _plain(cls, value: object) -> object:
        return value.numbers * value.scales if isinstance(value, cls) else value


class Rounding(nn.Linear):
    """A linear layer that rounds every state to eight bits before it multiplies."""

    def forward(self, input: Tensor) -> Tensor:
        scale = input.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 127
        return super().forward((input / scale).round() * scale)


def pack(model: Any) -> Any:
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.weight = nn.Parameter(Packed.of(module.weight.detach()), requires_grad=False)
    return model


def test_packed_weights_are_analysed_as_the_numbers_that_they_stand_for() -> None:
    check_same_as_unpacked(pack(llama()))


def test_packed_weights_have_a_fingerprint_of_their_own() -> None:
    packed = pack(llama())
    assert len({ns.load(model).fingerprint() for model in (packed, llama())}) == 2
    assert ns.load(packed).fingerprint() == ns.load(packed).fingerprint()


def test_packed_weights_of_what_is_no_linear_layer_are_refused() -> None:
    model = llama()
    model.model.embed_tokens.weight = nn.Parameter(
        Packed.of(model.model.embed_tokens.weight.detach()), requires_grad=False
    )
    with pytest.raises(ns.ModelError, match=r"weight model\.embed_tokens\.weight is packed in a Packed.*dequantise it"):
        ns.load(model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["v_proj", "o_proj"])
def test_a_layer_that_rounds_what_it_reads_is_refused(name: str, dtype: torch.dtype) -> None:
    model = llama(dtype)
    attention = model.model.layers[1].self_attn
    rounding = Rounding(64, 64, bias=False).to(dtype)
    rounding.weight = getattr(attention, name).weight
    setattr(attention, name, rounding)
    with pytest.raises(ns.ModelError, match=rf"self_attn\.{name} is a Rounding that rounds what it reads"):
        ns.load(model).explain(TEXT)


# ---- with the packages, where they are installed -----------------------------------------------------------------------


def torchao_model(make: Callable[[Any], Any], dtype: torch.dtype = torch.float32) -> Any:
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    model = llama(dtype)
    quantization.quantize_(model, make(quantization))
    return model


WEIGHT_ONLY: dict[str, Callable[[Any], Any]] = {
    "int8": lambda torchao: torchao.Int8WeightOnlyConfig(),
    "int4": lambda torchao: torchao.IntxWeightOnlyConfig(weight_dtype=torch.int4),
    "float8": lambda torchao: torchao.Float8WeightOnlyConfig(),
}


@pytest.mark.parametrize("kind", WEIGHT_ONLY)
def test_torchao_weights_are_analysed_as_the_numbers_that_they_stand_for(kind: str) -> None:
    check_same_as_unpacked(torchao_model(WEIGHT_ONLY[kind]))


@pytest.mark.parametrize("kind", WEIGHT_ONLY)
def test_torchao_weights_in_bfloat16_are_analysed_within_its_rounding(kind: str) -> None:
    analyzer = ns.load(torchao_model(WEIGHT_ONLY[kind], torch.bfloat16))
    assert float(analyzer.analyze(TEXT).dataset["component_error"].max()) < analyzer.tolerance
    assert analyzer.explain(TEXT, target=7).completeness < analyzer.tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_torchao_weights_with_rounded_states_are_refused(dtype: torch.dtype) -> None:
    model = torchao_model(lambda torchao: torchao.Int8DynamicActivationInt8WeightConfig(), dtype)
    with pytest.raises(ns.ModelError, match=r"rounds what it reads.*weight-only"):
        ns.load(model).analyze(TEXT)


def bitsandbytes_model(folder: Any, **settings: Any) -> Any:
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    from transformers import BitsAndBytesConfig  # noqa: PLC0415  (needs it)

    llama(torch.bfloat16).save_pretrained(folder)
    settings = {"quantization_config": BitsAndBytesConfig(**settings), "dtype": torch.bfloat16, "device_map": "cpu"}
    return AutoModelForCausalLM.from_pretrained(folder, **settings)


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_four_bits_of_bitsandbytes_are_analysed_in_bfloat16(kind: str, tmp_path: Any) -> None:
    model = bitsandbytes_model(
        tmp_path, load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_compute_dtype=torch.bfloat16
    )
    analyzer = ns.load(model)
    assert float(analyzer.analyze(TEXT).dataset["component_error"].max()) < analyzer.tolerance
    assert analyzer.explain(TEXT, target=7).completeness < analyzer.tolerance


def test_eight_bits_of_bitsandbytes_round_what_they_read_and_are_refused(tmp_path: Any) -> None:
    with pytest.raises(ns.ModelError, match="Linear8bitLt that rounds what it reads"):
        ns.load(bitsandbytes_model(tmp_path, load_in_8bit=True)).analyze(TEXT)


def test_a_model_with_packed_weights_is_left_as_it_was() -> None:
    model = torchao_model(WEIGHT_ONLY["int8"])
    before = logits(model)
    ns.load(model).explain(TEXT)
    assert type(model.lm_head.weight).__name__ == "Int8Tensor"
    assert torch.equal(logits(model), before)
