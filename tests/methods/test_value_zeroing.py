"""Value zeroing against the models themselves: a hook sets the value vector of one token to zero in one layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import normscope as ns
from methods.samples import IDS, TARGET, asked, assert_close, double
from normscope.capture import blocks_of

VALUES = {
    "bert": "attention.self.value",
    "llama": "self_attn.v_proj",
    "gptj": "attn.v_proj",
    "gemma2": "self_attn.v_proj",
    "olmo2": "self_attn.v_proj",
    "granite": "self_attn.v_proj",
    "mixtral": "self_attn.v_proj",
    "t5": "layer.0.SelfAttention.v",
    "bart": "self_attn.v_proj",
}
CROSS = {"t5": ("layer.1.EncDecAttention", "v"), "bart": ("encoder_attn", "v_proj")}


@pytest.mark.parametrize("name", list(VALUES))
def test_value_zeroing_is_what_the_model_does_without_a_value_vector(name: str) -> None:
    analyzer = double(name)
    analysis = analyzer.analyze(IDS, method="value-zeroing", **asked(analyzer))
    for layer in analyzer.layers:
        truth = _distances(analyzer, layer, name)
        values = analysis.map(analysis.scopes[0]).sel(layer=layer).values
        truth = truth / np.nansum(truth, -1, keepdims=True)
        assert_close(values, np.where(np.isnan(values), np.nan, truth), 1e-6 if name != "mixtral" else 1e-4)
        assert np.abs(truth[np.isnan(values)]).max(initial=0) < 1e-6


def _distances(analyzer: ns.Analyzer, layer: int, name: str) -> np.ndarray:
    """`1 - cos` of every query for every key, from as many forward passes of the model."""
    block = blocks_of(analyzer.model, analyzer.family.stack)[layer - 1]
    plain = _output(analyzer, block, {})
    frozen = [block.get_submodule(CROSS[name][0])] if name in CROSS else []
    # The router would choose again; what it chose in the plain pass is kept, as attention weights are.
    frozen += [module for path, module in block.named_modules() if path.endswith("mlp.gate") and name == "mixtral"]
    kept = _recorded(analyzer, frozen)
    own = [
        _output(analyzer, block, {block.get_submodule(VALUES[name]): _zeroing(key), **kept})
        for key in range(plain.shape[0])
    ]
    if name in CROSS:
        values = block.get_submodule(".".join(CROSS[name]))
        own += [_output(analyzer, block, {values: _zeroing(key)}) for key in range(len(IDS["input_ids"][0]))]
    changed = torch.stack(own, dim=1)
    return (1 - torch.nn.functional.cosine_similarity(changed, plain[:, None], dim=-1)).numpy()


def _zeroing(key: int) -> Any:
    def hook(_: nn.Module, __: Any, output: Tensor) -> Tensor:
        changed = output.clone()
        changed[:, key] = 0
        return changed

    return hook


def _recorded(analyzer: ns.Analyzer, modules: list[nn.Module]) -> dict[nn.Module, Any]:
    """Hooks that let modules output what they output in a plain pass."""
    outputs: dict[nn.Module, Any] = {}
    with _hooked({module: lambda module, _, output: outputs.__setitem__(module, output) for module in modules}):
        _run(analyzer)
    return {module: lambda module, *_: outputs[module] for module in modules}


def _output(analyzer: ns.Analyzer, block: nn.Module, hooks: dict[nn.Module, Any]) -> Tensor:
    seen: list[Tensor] = []

    def note(_: nn.Module, __: Any, output: Any) -> None:
        seen.append((output if isinstance(output, Tensor) else output[0])[0].double().clone())

    with _hooked({**hooks, block: note}):
        _run(analyzer)
    return seen[0]


def _run(analyzer: ns.Analyzer) -> None:
    inputs: dict[str, Any] = {"input_ids": torch.tensor(IDS["input_ids"])}
    if analyzer.family.encoder is not None:
        start = analyzer.model.config.decoder_start_token_id
        inputs["decoder_input_ids"] = torch.tensor([[start, *TARGET["input_ids"][0][:-1]]])
    if analyzer.family.stack.causal:
        inputs["use_cache"] = False
    with torch.no_grad():
        analyzer.model.eval()(**inputs)


@contextmanager
def _hooked(hooks: dict[nn.Module, Any]) -> Iterator[None]:
    handles = [module.register_forward_hook(hook) for module, hook in hooks.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def test_single_queries_of_a_mixture_are_served_by_their_own_experts() -> None:
    analyzer = double("mixtral")
    whole = analyzer.analyze(IDS, method="value-zeroing")
    row = analyzer.analyze(IDS, method="value-zeroing", queries=3)
    np.testing.assert_allclose(
        row.map("AttnResLnFfRes").values[:, 0], whole.map("AttnResLnFfRes").values[:, 3], rtol=1e-4, atol=1e-7
    )
