"""`assert_explained`: a prediction of a model with its head, followed to the tokens, against the model's own logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
import xarray as xr
from torch import Tensor
from transformers import PreTrainedModel

from normscope.capture.head_blocks import logits_of
from normscope.capture.hooks import evaluation_mode
from normscope.families import Family
from normscope.families.heads import head_of
from normscope.inputs.decoder import start_token
from normscope.models.devices import entry_device
from normscope.testing.battery import assert_close, assert_same, state_of
from normscope.testing.inputs import head_inputs

if TYPE_CHECKING:
    from normscope.results.explanation import Explanation

_POSITION = 2
_DECODED = [5, 7, 6, 4]


def assert_explained(
    model: PreTrainedModel, inputs: Mapping[str, Tensor] | None = None, *, tolerance: float = 1e-4
) -> Explanation:
    """Check that a prediction is followed through the whole model, and give the explanation.

    1. Sum: the tokens' shares and the bias add up to the model's own logit, computed by a plain pass.
    2. Conservation: edges into a token with its bias are its relevance after the layer, edges out of a token its relevance
       before it, in every layer and stack.
    3. Heads: their edges add up to the edges between different tokens.
    4. Model restored: hooks, training flags and attention implementation are as before.

    Args:
        model: a tiny random model of a registered family, with a head that is described.
        inputs: one input, without padding. Made up from the configuration by default.
        tolerance: the largest error allowed, relative to all that flows, for float32 models.
    """
    # Loading a model of an unknown type uses the battery of this package, and here models are loaded.
    from normscope.analyzer import load  # noqa: PLC0415
    from normscope.results.explanation import Explanation  # noqa: PLC0415

    analyzer = load(model)
    given = dict(inputs) if inputs is not None else _inputs(model, analyzer.family)
    before = state_of(model)
    explanation = analyzer.explain(given, heads=True, objective="logit", **_asked(model))
    assert isinstance(explanation, Explanation)
    assert_same(before, state_of(model), "the model after the explanation")
    size = float(abs(explanation.shares).sum("token").max()) + max(abs(bias) for bias in explanation.biases)
    _check_sum(model, analyzer.family, given, explanation, tolerance * size)
    _check_stack(explanation.dataset, tolerance * size, "stack")
    if explanation.has_encoder:
        _check_stack(explanation.encoder.dataset, tolerance * size, "encoder")
    return explanation


def _asked(model: PreTrainedModel) -> dict[str, Any]:
    """A question that fits the task."""
    match head_of(model).task:
        case "seq2seq-lm":
            return {"target": _DECODED}
        case "masked-lm" | "token-classification" | "replaced-token" | "ctc":
            return {"at": _POSITION}
        case _:
            return {}


def _inputs(model: PreTrainedModel, family: Family) -> dict[str, Tensor]:
    head = head_of(model)
    inputs, _ = head_inputs(family, head, model)
    first = {name: tensor[0] if head.task == "multiple-choice" else tensor for name, tensor in inputs.items()}
    # The patches of an image come with their places and which of them there are; a text comes without its mask.
    kept = first if family.reads == "image" else ("input_ids", model.main_input_name)
    return {name: first[name][:1] for name in first if name in kept}


def _check_sum(
    model: PreTrainedModel, family: Family, inputs: Mapping[str, Tensor], explanation: Explanation, allowed: float
) -> None:
    shares = explanation.shares.sum("token").values
    logits = _plain_logits(model, family, inputs, explanation)
    for place, (total, bias) in enumerate(zip(shares, explanation.biases, strict=True)):
        row = int(explanation.dataset["target_position"].values[place])
        value = explanation.values[place]
        nearest = float((logits[row] - value).abs().min())
        assert nearest <= allowed, f"the value {value} is none of the model's logits: {nearest:.1e} off"
        error = abs(float(total) + bias - value)
        assert error <= allowed, f"shares and bias of target {place} are off by {error:.1e}, allowed {allowed:.1e}"


def _plain_logits(
    model: PreTrainedModel, family: Family, inputs: Mapping[str, Tensor], explanation: Explanation
) -> Tensor:
    """`[row, label]`, by a pass of the model alone, reading what the explanation's model read."""
    head = head_of(model)
    given: dict[str, Any] = {name: tensor.to(entry_device(model)) for name, tensor in inputs.items()}
    if head.task == "seq2seq-lm":
        start = start_token(model)
        read = [_DECODED[-1] if start is None else start, *_DECODED[:-1]]
        given["decoder_input_ids"] = torch.tensor([read], device=entry_device(model))
    if head.task == "multiple-choice":
        given.setdefault("attention_mask", torch.ones_like(given["input_ids"]))
        given = {name: tensor[:, None] for name, tensor in given.items()}
    if family.stack.causal:
        given["use_cache"] = False
    with torch.no_grad(), evaluation_mode(model):
        output = model(**given, return_dict=True)
    return logits_of(model, head, output, 0, explanation.dataset.sizes["query"])


def _check_stack(dataset: xr.Dataset, allowed: float, name: str) -> None:
    edges, relevance = _tensor(dataset["edges"]), _tensor(dataset["relevance"])
    after = edges.sum(-1) + _tensor(dataset["bias"])
    own = edges[..., : relevance.shape[-1]]
    heads = _tensor(dataset["head_edges"]).sum(2)
    apart = ~torch.eye(edges.shape[-2], edges.shape[-1], dtype=torch.bool)
    for what, value, truth in (
        ("edges into a token with its bias", after, relevance[:, 1:]),
        ("edges out of a token", own.sum(-2), relevance[:, :-1]),
        ("edges of the heads", heads[..., apart], edges[..., apart]),
    ):
        scale = float(truth.abs().max()) or 1.0
        assert_close(value, truth, allowed / scale, f"{what} in the {name}")


def _tensor(values: xr.DataArray) -> Tensor:
    return torch.from_numpy(values.values)
