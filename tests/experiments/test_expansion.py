"""Expansion rates against the singular values of what the modules themselves make of vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.tiny_models import tiny
from torch import Tensor
from transformers import AutoModel

import normscope as ns
from normscope.errors import InputError
from normscope.experiments.expansion import ExpansionRate
from normscope.runs import run

GPT2 = dict(n_embd=12, n_layer=2, n_head=3, n_positions=32)
LLAMA = dict(num_key_value_heads=1, head_dim=4, attention_bias=True)


def _bert(block: Any, x: Tensor) -> Tensor:
    return block.attention.output.dense(block.attention.self.value(x))


def _deberta(block: Any, x: Tensor) -> Tensor:
    attention = block.attention.self
    fused = attention.in_proj(x).unflatten(-1, (3, -1))
    return block.attention.output.dense(fused[..., -4:].flatten(-2) + attention.v_bias)


def _gpt2(block: Any, x: Tensor) -> Tensor:
    normed = x * block.ln_1.weight + block.ln_1.bias
    return block.attn.c_proj(block.attn.c_attn(normed)[..., -12:])


def _llama(block: Any, x: Tensor) -> Tensor:
    value = block.self_attn.v_proj(x * block.input_layernorm.weight)
    return block.self_attn.o_proj(value.repeat(1, 3))


def _singular_values(f: Callable[[Tensor], Tensor], size: int) -> Tensor:
    """Those of `[x 1] -> [f(x) 1]`, from the values of f at zero and at the unit vectors."""
    zero = f(torch.zeros(1, size).double())
    matrix = torch.zeros(size + 1, size + 1).double()
    matrix[:size, :size] = f(torch.eye(size).double()) - zero
    matrix[size, :size] = zero
    matrix[size, size] = 1
    return torch.linalg.svdvals(matrix)


@pytest.mark.parametrize(
    ("model_type", "overrides", "blocks", "f"),
    [
        ("bert", {}, "encoder.layer", _bert),
        ("deberta", {}, "encoder.layer", _deberta),
        ("gpt2", GPT2, "h", _gpt2),
        ("llama", LLAMA, "layers", _llama),
    ],
)
def test_the_rate_is_that_of_the_affine_map_with_the_norm_before_it(
    model_type: str, overrides: dict[str, Any], blocks: str, f: Callable[[Any, Tensor], Tensor]
) -> None:
    model = tiny(model_type, auto=AutoModel, **overrides).double()
    rates = ExpansionRate().from_model(ns.load(model)).moments["rate"].mean()
    with torch.no_grad():
        for rate, block in zip(rates, model.get_submodule(blocks), strict=True):  # type: ignore[arg-type]
            values = _singular_values(lambda x, block=block: f(block, x), 12)
            assert rate == pytest.approx(float(values.square().mean().sqrt()), rel=1e-9)


@pytest.mark.parametrize(("form", "mean"), [("affine", 1.1037), ("authors", 1.1067), ("linear", 1.1028)])
def test_the_forms_give_their_known_means_for_the_embedded_model(analyzer: Any, form: str, mean: float) -> None:
    result = run(["expansion-rate"], model=analyzer, options={"expansion-rate": {"form": form}})
    assert result.tables["expansion-rate"].to_pylist()[-1]["expansion_rate"] == pytest.approx(mean, abs=5e-5)


def test_another_form_is_refused() -> None:
    with pytest.raises(InputError, match="affine, linear, authors"):
        ExpansionRate(form="square")
