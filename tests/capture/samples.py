"""What the tests of capture share: sequences, where blocks are, and everything that may not change."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from support.tiny_models import token_ids
from torch import Tensor, nn
from transformers import PreTrainedModel

ONE_OF_EACH_ATTENTION = pytest.mark.parametrize("model_type", ["bert", "albert", "mpnet"])
"""Attention through the interface, in shared modules, and by hooks with split or fused values."""

SEQUENCES = token_ids(6, 4)


def blocks(model: PreTrainedModel) -> nn.ModuleList:
    """The blocks of a BERT-like model."""
    return model.base_model.encoder.layer


def marks(model: PreTrainedModel) -> dict[str, Any]:
    """Everything about a model that an analysis could leave changed."""
    configs = {id(module.config): module.config for module in model.modules() if hasattr(module, "config")}
    return {
        "parameters": {name: (p.detach().clone(), p.requires_grad, p.grad) for name, p in model.named_parameters()},
        "buffers": {name: buffer.clone() for name, buffer in model.named_buffers()},
        "training": {name: module.training for name, module in model.named_modules()},
        "attributes": {name: sorted(vars(module)) for name, module in model.named_modules()},
        "hooks": {
            (name, kind): list(registered)
            for name, module in model.named_modules()
            for kind, registered in vars(module).items()
            if kind.endswith(("hooks", "hooks_with_kwargs", "hooks_always_called"))
        },
        "forwards": {name: module.forward.__func__ for name, module in model.named_modules()},
        "configurations": {
            key: (copy.deepcopy(vars(config)), config._attn_implementation) for key, config in configs.items()
        },
        "random state": torch.get_rng_state(),
    }


def assert_same(before: object, after: object, where: str = "") -> None:
    """Bit for bit."""
    assert type(before) is type(after), where
    match before:
        case dict():
            assert list(before) == list(after), where
            for key, value in before.items():
                assert_same(value, after[key], f"{where} {key}")
        case tuple() | list():
            assert len(before) == len(after), where
            for place, value in enumerate(before):
                assert_same(value, after[place], f"{where} {place}")
        case Tensor():
            assert torch.equal(before, after), where
        case _:
            assert before == after, where
