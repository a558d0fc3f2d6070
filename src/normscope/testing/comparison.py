"""Comparisons that say what was compared and how far apart it was, and what a model must be again after an analysis."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel


def state_of(model: PreTrainedModel) -> dict[str, Any]:
    """What an analysis must leave as it was."""
    hooks = {
        f"{name}{kind}": list(getattr(module, kind))
        for name, module in model.named_modules()
        for kind in ("_forward_hooks", "_forward_pre_hooks")
    }
    training = {name: module.training for name, module in model.named_modules()}
    return {"hooks": hooks, "training flags": training, "attention": model.config._attn_implementation}  # pyright: ignore[reportPrivateUsage]


def assert_same(before: dict[str, Any], after: dict[str, Any], what: str) -> None:
    """Nothing of a model's state has changed."""
    for name, value in before.items():
        assert after[name] == value, f"{what} has other {name}"


def assert_close(value: Tensor, truth: Tensor, tolerance: float, what: str) -> None:
    """Equal where missing, and elsewhere within a tolerance relative to the largest value."""
    value, truth = value.double(), truth.double()
    assert value.shape == truth.shape, f"{what}: shape {tuple(value.shape)}, expected {tuple(truth.shape)}"
    assert torch.equal(value.isnan(), truth.isnan()), f"{what}: other keys are missing"
    scale = truth.nan_to_num().abs().max().clamp(min=1e-30)
    error = float((value - truth).nan_to_num().abs().max() / scale)
    assert error <= tolerance, f"{what}: off by {error:.1e}, allowed {tolerance:.0e}"
