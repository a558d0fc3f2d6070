"""Checks of a checkpoint: no weight is missing, left over, not finite or quantised.

Every error names the weight. Maps do not use the task head, so missing weights of a head are reported only when it is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from normscope.capture import bare_model, family_in
from normscope.capture.stacks import block_pattern
from normscope.errors import ModelError, few, listing
from normscope.families import Family
from normscope.families.heads import made_up, note_weights_lacking
from normscope.families.spec import Stack
from normscope.models.devices import has_numbers, is_packed, numbers_of

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
"""The dtypes of models that can be analysed."""

_QUANTISED_LAYERS = ("torch.ao.nn.", "torch.nn.quantized.")
"""The PyTorch modules whose layers also round their input."""


def check_complete(
    location: str, model: PreTrainedModel, family: Family, missing: Iterable[str], unexpected: Iterable[str]
) -> None:
    """Raise if weights of the model are missing from the checkpoint, or if the checkpoint has weights that do not fit."""
    lacking = note_weights_lacking(model, (name for name in missing if not _is_computed(model, name)))
    if lacking:
        raise ModelError(
            f"The checkpoint {location!r} lacks weights of the model: {few(lacking)}. They would be initialised at random. "
            f"It is damaged, or its configuration belongs to another model."
        )
    family = family_in(model, family)
    stacks = [family.stack, *([] if family.encoder is None else [family.encoder])]
    left_over = sorted(name for name in unexpected if any(_does_not_fit(model, stack, name) for stack in stacks))
    if left_over:
        raise ModelError(
            f"The checkpoint {location!r} has weights in its blocks for which its configuration has no place: "
            f"{few(left_over)}. The model would not be the one that was saved: config.json names fewer layers or another "
            f"kind of block."
        )


def _is_computed(model: PreTrainedModel, name: str) -> bool:
    """Whether a weight is a table of sinusoidal positions, which are constants and need not be saved."""
    return "Sinusoidal" in type(model.get_submodule(name.rpartition(".")[0])).__name__


def _does_not_fit(model: PreTrainedModel, stack: Stack, name: str) -> bool:
    """Whether a weight belongs to a block of a stack, or to a layer in it, that the model does not have.

    Entries that are not weights, such as the masks and positions in old checkpoints, change nothing and are ignored.
    """
    match = re.search(rf"(?:^|\.)({block_pattern(stack)})\.(.+)$", name)
    if match is None:
        return False
    try:
        block = bare_model(model).get_submodule(match[1])
    except AttributeError:
        return not _predicts_further(model, stack, match[1])
    owner, _, kind = match[2].rpartition(".")
    return kind == "weight" or (kind == "bias" and _is_layer(block, owner))


def _predicts_further(model: PreTrainedModel, stack: Stack, block: str) -> bool:
    """Whether a block after the last one is used only in training, to predict more than one token."""
    further = getattr(model.config.get_text_config(), "num_nextn_predict_layers", None) or 0
    return stack.depth(model.config) <= int(block.rpartition(".")[2]) < stack.depth(model.config) + further


def _is_layer(block: nn.Module, path: str) -> bool:
    """Whether a block has a linear layer or a norm at this path, to which a bias would belong."""
    try:
        return getattr(block.get_submodule(path), "weight", None) is not None
    except AttributeError:
        return False


# ---- numbers -----------------------------------------------------------------------------------------------------------


def check_dtypes(model: PreTrainedModel) -> None:
    """Raise for weights that cannot be used: quantised ones, and those of an unsupported dtype."""
    for name, module in model.named_modules():
        if type(module).__module__.startswith(_QUANTISED_LAYERS):
            raise ModelError(_quantised(f"{name} is a quantised {type(module).__name__}"))
    for name, parameter in model.named_parameters():
        if is_packed(parameter) and not isinstance(model.get_submodule(name.rpartition(".")[0]), nn.Linear):
            raise ModelError(_quantised(f"the weight {name} is packed in a {type(parameter.data).__name__}"))
        if parameter.is_floating_point() and parameter.dtype not in DTYPES:
            known = listing(str(dtype).removeprefix("torch.") for dtype in DTYPES)
            kind = str(parameter.dtype).removeprefix("torch.")
            raise ModelError(_quantised(f"the weight {name} is in {kind}, not in one of {known}"))


def _quantised(what: str) -> str:
    return (
        f"The model cannot be analysed as it is: {what}. Load it without quantisation, or dequantise it first "
        f"(model.dequantize(), or model.to(torch.bfloat16))."
    )


def check_finite(model: PreTrainedModel) -> None:
    """Raise for parameters that contain NaN or infinite numbers. Buffers may, as masks do."""
    for name, parameter in _parameters(model):
        if not _is_finite(parameter):
            raise non_finite(name, parameter)


def non_finite(name: str, weight: Tensor) -> ModelError:
    """The error for a weight that is not finite."""
    kind = "NaN" if bool(weight.isnan().any()) else "infinite numbers"
    return ModelError(
        f"The weights contain {kind} (first in {name}): no map of this model would mean anything. "
        f"The checkpoint is damaged, or training diverged."
    )


def _parameters(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Every parameter that has values, also if it is offloaded."""
    if has_numbers(model):
        for name, parameter in model.named_parameters():
            if parameter.is_floating_point() and name not in made_up(model):
                yield name, numbers_of(model, name, parameter).detach()


def _is_finite(tensor: Tensor) -> bool:
    """The sum is finite if all numbers are, up to overflow, so usually one pass over them is enough."""
    return bool(tensor.sum(dtype=torch.promote_types(tensor.dtype, torch.float32)).isfinite()) or bool(
        tensor.isfinite().all()
    )
