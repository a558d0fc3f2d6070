"""The whole battery of checks for those who add an architecture, `assert_family`, or a task head, `assert_head`.

Give them a tiny random model (two layers, a few dozen dimensions, weights of ordinary size). Every check raises an
`AssertionError` that says what was compared and how far apart it was. It needs nothing but what normscope itself needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from normscope.capture import Side, blocks_of, capture_sides, family_in, module_between
from normscope.capture.bind_head import given_logits
from normscope.capture.heads import capture_head
from normscope.decompose import LayerResult, decompose, mixing_ratios
from normscope.families import family_of
from normscope.families.heads import Head, head_of
from normscope.families.heads.spec import EndToken
from normscope.families.spec import Family, Stack
from normscope.head_trace import HeadTrace, Target
from normscope.oracle import oracle
from normscope.pullback import pull_back_head, values_of
from normscope.scopes import scopes_of
from normscope.trace import Attention, CrossAttention, LayerNorm, LayerTrace, Linear, Normalise, OwnFeedForward

__all__ = ["assert_family", "assert_head"]

_LONG, _SHORT = 9, 6
_TARGET_LONG, _TARGET_SHORT = 7, 5

Results = dict[tuple[str, int, int], LayerResult]
"""By stack, layer and sequence."""


def assert_family(
    family: Family, model: PreTrainedModel, inputs: Mapping[str, Tensor] | None = None, *, tolerance: float = 1e-5
) -> None:
    """Check that a family describes a model.

    1. Completeness: parts and bias add up to the model's own state after every component, in every layer.
    2. Oracle: every map and mixing ratio agrees with a float64 decomposition that materialises all vectors.
    3. Cheap route: mixing ratios without maps are the same.
    4. Below attention: values, and what a parallel feed-forward reads, recomputed from the block's input are those seen.
    5. Between blocks: every block reads what the one before it gives out, unless the family names a module in between.
    6. Plain pass: the captured forward pass computes what the model computes by itself.
    7. Padding: a padded sequence of a batch gives what it gives alone.
    8. Model restored: hooks, training flags, attention implementation and outputs are as before.

    Args:
        family: the description under test.
        model: a tiny random model.
        inputs: what to call the bare model with, two sequences of which the second is padded on the right (9 and 6
            tokens; for an encoder-decoder also a target of 7 and 5). Made up from the configuration by default.
        tolerance: the largest relative error allowed, for float32 models.
    """
    family = family_in(model, family)
    inputs = dict(_random_inputs(family, model) if inputs is None else inputs)
    before = _state_of(model)
    plain = _block_outputs(model, family, inputs)
    results = _check_layers(family, model, inputs, tolerance, plain)
    _assert_same(before, _state_of(model), "the model after the analysis")
    for name, output in _block_outputs(model, family, inputs).items():
        assert torch.equal(output, plain[name]), f"the {name} computes something else after the analysis"
    if "attention_mask" in inputs:
        _check_padding(family, model, inputs, results, tolerance)


def assert_head(
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor] | None = None,
    lengths: Sequence[int] | None = None,
    *,
    tolerance: float = 1e-5,
) -> None:
    """Check that the head registered for a model's class describes it.

    1. Certificate: what the tokens and the bias contribute to a logit, or a difference of two, adds up to the model's own.
    2. Padding: a padded sequence of a batch gives what it gives alone.
    3. Model restored: hooks, training flags, attention implementation and outputs are as before.

    Args:
        model: a tiny random model of a registered family, with its head.
        inputs: what to call it with: sequences padded on the right. Made up from the configuration by default.
        lengths: the lengths of the sequences that the head's stack of blocks sees, where inputs are given.
        tolerance: the largest error allowed, relative to the largest logit, for float32 models.
    """
    family, head = family_of(model.config.model_type), head_of(model)
    if inputs is None or lengths is None:
        inputs, lengths = _head_inputs(family, head, model)
    cached = {"use_cache": False} if family.stack.causal or head.task == "causal-lm" else {}
    before, plain = _state_of(model), _plain_logits(model, head, {**inputs, **cached})
    traces = capture_head(model, family, {**inputs, **cached}, lengths, dtype=model.dtype)
    _assert_same(before, _state_of(model), "the model after the analysis")
    for one, other in zip(plain, _plain_logits(model, head, {**inputs, **cached}), strict=True):
        assert torch.equal(one, other), "the model computes other logits after the analysis"
    relevance = [_assert_certificate(trace, tolerance, f"sequence {index + 1}") for index, trace in enumerate(traces)]
    if "attention_mask" in inputs and len(traces) > 1:
        single = _only_second(inputs, lengths[1], nested=head.task == "multiple-choice")
        (alone,) = capture_head(model, family, {**single, **cached}, lengths[1:2], dtype=model.dtype)
        what = "relevance of the tokens of a padded sequence"
        _assert_close(relevance[1], _assert_certificate(alone, tolerance, "a sequence alone"), 10 * tolerance, what)


def _head_inputs(family: Family, head: Head, model: PreTrainedModel) -> tuple[dict[str, Tensor], list[int]]:
    inputs = _random_inputs(family, model)
    if family.reads == "image":
        return {name: tensor.to(model.dtype) for name, tensor in inputs.items()}, _lengths(family, inputs, model)[
            "stack"
        ]
    if any(isinstance(part, EndToken) for part in head.parts):
        end, last = model.config.eos_token_id, inputs["attention_mask"].sum(-1, keepdim=True) - 1
        inputs["input_ids"][inputs["input_ids"] == end] = end + 1
        inputs["input_ids"].scatter_(1, last, end)
    one_sided = head.reads_encoder or head.task in ("causal-lm", "sequence-classification")
    inputs = {name: tensor for name, tensor in inputs.items() if not (one_sided and name.startswith("decoder_"))}
    lengths = inputs.get("decoder_attention_mask", inputs["attention_mask"]).sum(-1).tolist()
    return {
        name: tensor[None] if head.task == "multiple-choice" else tensor for name, tensor in inputs.items()
    }, lengths


def _only_second(inputs: Mapping[str, Tensor], length: int, *, nested: bool) -> dict[str, Tensor]:
    """The second sequence without its padding; for multiple choice, the second choice of the first example."""
    alone: dict[str, Tensor] = {}
    source = int((inputs["attention_mask"][0] if nested else inputs["attention_mask"])[1].sum())
    for name, tensor in inputs.items():
        size = length if name.startswith("decoder_") else source
        alone[name] = tensor[:, 1:2, :size] if nested else tensor[1:2, :size]
    return alone


def _plain_logits(model: PreTrainedModel, head: Head, inputs: Mapping[str, Any]) -> list[Tensor]:
    training = [(module, module.training) for module in model.modules()]
    with torch.no_grad():
        output = model.eval()(**inputs)
    for module, flag in training:
        module.training = flag
    return given_logits(model, head, output)


def _assert_certificate(trace: HeadTrace, tolerance: float, place: str) -> Tensor:
    """The sum of the tokens and the bias for some logits and differences of them; gives the relevance of the tokens."""
    rows, labels = trace.logits.shape
    targets = [Target(row, {label: 1.0}) for row in {0, rows // 2, rows - 1} for label in {0, labels // 2, labels - 1}]
    targets += [Target(rows - 1, {0: 1.0, labels - 1: -1.0})] if labels > 1 else []
    pulled = pull_back_head(trace, targets)
    relevance = pulled.relevance(trace.states)
    error = (relevance.sum(-1) + pulled.bias - values_of(trace, targets)).abs().max() / trace.logits.abs().nan_to_num(
        posinf=0
    ).max()
    assert error <= tolerance, f"the logits of {place} are off by {float(error):.1e}, allowed {tolerance:.0e}"
    return relevance


def _stacks(family: Family) -> dict[str, Stack]:
    return {"stack": family.stack} if family.encoder is None else {"encoder": family.encoder, "stack": family.stack}


def _options(family: Family) -> dict[str, Any]:
    return {"use_cache": False} if family.stack.causal else {}


def _random_inputs(family: Family, model: PreTrainedModel) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    if family.reads == "image":
        size, channels = model.config.image_size, model.config.num_channels
        return {"pixel_values": torch.randn(2, channels, size, size, generator=generator)}

    def ids(long: int, short: int, prefix: str) -> dict[str, Tensor]:
        mask = torch.ones(2, long, dtype=torch.long)
        mask[1, short:] = 0
        numbers = torch.randint(3, model.config.get_text_config().vocab_size, (2, long), generator=generator)
        return {f"{prefix}input_ids": numbers, f"{prefix}attention_mask": mask}

    inputs = ids(_LONG, _SHORT, "")
    pad = getattr(model.config.get_text_config(), "pad_token_id", None)
    inputs["input_ids"][inputs["attention_mask"] == 0] = 0 if pad is None else pad
    return inputs if family.encoder is None else inputs | ids(_TARGET_LONG, _TARGET_SHORT, "decoder_")


def _lengths(family: Family, inputs: Mapping[str, Tensor], model: PreTrainedModel) -> dict[str, list[int]]:
    """How long the sequences of each stack are."""
    if family.reads == "image":
        from normscope.inputs import read_images  # noqa: PLC0415  (images are not always needed)

        sequences, _ = read_images([{"pixel_values": pixels} for pixels in inputs["pixel_values"]], model, None)
        return {"stack": [len(sequence) for sequence in sequences]}
    source = inputs["attention_mask"].sum(-1).tolist()
    if family.encoder is None:
        return {"stack": source}
    return {"encoder": source, "stack": inputs["decoder_attention_mask"].sum(-1).tolist()}


def _capture(family: Family, model: PreTrainedModel, inputs: Mapping[str, Tensor], consume: Any) -> None:
    lengths = _lengths(family, inputs, model)
    sides: list[Side] = []
    for name, stack in _stacks(family).items():

        def told(layer: int, sequence: int, trace: LayerTrace, name: str = name) -> None:
            consume(name, layer, sequence, trace)

        sources = lengths["encoder"] if family.encoder is not None and name == "stack" else None
        layers = range(1, 1 + stack.depth(model.config))
        sides.append(Side(stack, lengths[name], layers, told, sources))
    capture_sides(model, {**inputs, **_options(family)}, sides, dtype=torch.float32, below_attention=True)


def _check_layers(
    family: Family, model: PreTrainedModel, inputs: Mapping[str, Tensor], tolerance: float, plain: dict[str, Tensor]
) -> Results:
    results: Results = {}
    stacks = _stacks(family)
    chained = _Chained(model, stacks, tolerance)

    def consume(name: str, layer: int, sequence: int, trace: LayerTrace) -> None:
        place = f"layer {layer} of the {name}, sequence {sequence}"
        scopes = scopes_of(trace.components)
        result = results[name, layer, sequence] = decompose(trace, scopes)
        for scope, errors in result.errors.items():
            assert float(errors.amax()) <= tolerance, (
                f"not complete after {scope} in {place}: {float(errors.amax()):.1e}"
            )
        _assert_oracle(trace, result, tolerance, place)
        _assert_below_attention(trace, tolerance, place)
        chained.check(name, layer, sequence, trace)
        cheap = mixing_ratios(trace, scopes)
        for scope, ratio in cheap.mixing.items():
            _assert_close(result.mixing[scope], ratio, tolerance, f"cheap mixing ratio at {scope} in {place}")
        if layer == stacks[name].depth(model.config):
            output = trace.states[-1]
            assert output is not None, f"the state after the last component of {place} is not seen"
            own = plain[name][sequence, : trace.length]
            _assert_close(output, own, tolerance, f"the captured pass against the plain one in {place}")

    _capture(family, model, inputs, consume)
    assert results, "no block was captured"
    chained.finish()
    return results


class _Chained:
    """Whether every block reads what the one before it gave out."""

    def __init__(self, model: PreTrainedModel, stacks: Mapping[str, Stack], tolerance: float) -> None:
        self.between = {name: module_between(model, stack) for name, stack in stacks.items()}
        self.tolerance = tolerance
        self.outputs: dict[tuple[str, int], Tensor | None] = {}
        self.changed = {name: False for name in stacks}

    def check(self, name: str, layer: int, sequence: int, trace: LayerTrace) -> None:
        before = self.outputs.get((name, sequence))
        if before is not None:
            if self.between[name] is None:
                what = f"the input of layer {layer} of the {name} against the output of the layer before it"
                _assert_close(trace.hidden, before, self.tolerance, what)
            self.changed[name] |= not torch.equal(trace.hidden, before)
        self.outputs[name, sequence] = trace.states[-1]

    def finish(self) -> None:
        for name, between in self.between.items():
            assert between is None or self.changed[name], f"{between} changes nothing between the blocks of the {name}"


def _assert_oracle(trace: LayerTrace, result: LayerResult, tolerance: float, place: str) -> None:
    for scope, truth in oracle(trace).items():
        _assert_close(result.maps[scope], truth.map, tolerance, f"map at {scope} against the oracle in {place}")
        _assert_close(result.mixing[scope], truth.mixing_ratio, tolerance, f"mixing ratio at {scope} in {place}")


def _assert_below_attention(trace: LayerTrace, tolerance: float, place: str) -> None:
    """From the block's input (the encoder's output) to the values, and to what a parallel feed-forward reads."""
    for step in trace.steps:
        if isinstance(step, Attention):
            source = step.source
            assert source is not None, f"what the values of {step.name} are made of is not known in {place}"
            if not isinstance(step, CrossAttention):
                assert torch.equal(source.states, trace.hidden), (
                    f"{step.name} does not read the block's input in {place}"
                )
            values = source.projection.double() @ _after(source.steps, source.states).T
            if source.bias is not None:
                values = values + source.bias.double()[:, :, None]
            what = f"values of {step.name} recomputed from the states before it in {place}"
            _assert_close(values.transpose(1, 2), step.values, tolerance, what)
        elif isinstance(step, OwnFeedForward):
            steps = () if step.norm is None else (step.norm,)
            what = f"what the feed-forward beside the attention reads in {place}"
            _assert_close(_after(steps, trace.hidden), step.hidden, tolerance, what)


def _after(steps: Sequence[Normalise | Linear], states: Tensor) -> Tensor:
    """States after norms and linear maps, in float64."""
    states = states.double()
    for step in steps:
        match step:
            case Linear():
                bias = None if step.bias is None else step.bias.double()
                states = functional.linear(states, step.weight.double(), bias)
            case Normalise(norm=LayerNorm() as norm):
                scaled = functional.layer_norm(states, states.shape[-1:], eps=norm.epsilon) * norm.weight.double()
                states = scaled if norm.bias is None else scaled + norm.bias.double()
            case Normalise(norm=norm):
                states = functional.rms_norm(states, states.shape[-1:], eps=norm.epsilon) * norm.weight.double()
    return states


def _check_padding(
    family: Family, model: PreTrainedModel, inputs: Mapping[str, Tensor], results: Results, tolerance: float
) -> None:
    """The second sequence alone, without its padding."""
    alone: dict[str, Tensor] = {}
    for name, tensor in inputs.items():
        prefix = "decoder_" if name.startswith("decoder_") else ""
        alone[name] = tensor[1:2, : int(inputs[f"{prefix}attention_mask"][1].sum())]

    def consume(name: str, layer: int, _: int, trace: LayerTrace) -> None:
        single = decompose(trace, scopes_of(trace.components))
        for scope, values in single.maps.items():
            what = f"map at {scope} of a padded sequence in layer {layer} of the {name}"
            _assert_close(results[name, layer, 1].maps[scope], values, 10 * tolerance, what)

    _capture(family, model, alone, consume)


def _block_outputs(model: PreTrainedModel, family: Family, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The output of the last block of every stack, by a plain forward pass in evaluation mode."""
    outputs: dict[str, Tensor] = {}
    handles: list[Any] = []
    for name, stack in _stacks(family).items():

        def note(_: nn.Module, __: Any, output: Any, name: str = name) -> None:
            outputs[name] = (output if isinstance(output, Tensor) else output[0]).clone()

        handles += [block.register_forward_hook(note) for block in blocks_of(model, stack)]
    training = [(module, module.training) for module in model.modules()]
    try:
        with torch.no_grad():
            model.eval().base_model(**inputs, **_options(family))
    finally:
        for handle in handles:
            handle.remove()
        for module, flag in training:
            module.training = flag
    return outputs


def _state_of(model: PreTrainedModel) -> dict[str, Any]:
    """What an analysis must leave as it was."""
    hooks = {
        f"{name}{kind}": list(getattr(module, kind))
        for name, module in model.named_modules()
        for kind in ("_forward_hooks", "_forward_pre_hooks")
    }
    training = {name: module.training for name, module in model.named_modules()}
    return {"hooks": hooks, "training flags": training, "attention": model.config._attn_implementation}  # pyright: ignore[reportPrivateUsage]


def _assert_same(before: dict[str, Any], after: dict[str, Any], what: str) -> None:
    for name, value in before.items():
        assert after[name] == value, f"{what} has other {name}"


def _assert_close(value: Tensor, truth: Tensor, tolerance: float, what: str) -> None:
    """Equal where missing, and elsewhere within a tolerance relative to the largest value."""
    value, truth = value.double(), truth.double()
    assert value.shape == truth.shape, f"{what}: shape {tuple(value.shape)}, expected {tuple(truth.shape)}"
    assert torch.equal(value.isnan(), truth.isnan()), f"{what}: other keys are missing"
    scale = truth.nan_to_num().abs().max().clamp(min=1e-30)
    error = float((value - truth).nan_to_num().abs().max() / scale)
    assert error <= tolerance, f"{what}: off by {error:.1e}, allowed {tolerance:.0e}"
