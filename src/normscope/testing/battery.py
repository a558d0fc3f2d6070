"""Comparisons that say what was compared and how far apart it was, and what a model must be again after an analysis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from normscope.capture import Side, bare_model, blocks_of, capture_sides, family_in, module_between
from normscope.capture.head_blocks import given_logits
from normscope.capture.heads import capture_head
from normscope.capture.hooks import evaluation_mode, hooks
from normscope.chain.head_trace import HeadTrace, Target
from normscope.chain.trace import Attention, CrossAttention, LayerNorm, LayerTrace, Linear, Normalise, OwnFeedForward
from normscope.decompose import LayerResult, decompose, mixing_ratios
from normscope.families import family_of
from normscope.families.heads import Head, head_of
from normscope.families.refused import check_whole
from normscope.families.spec import Family, Stack
from normscope.pullback import pull_back_head, values_of
from normscope.scopes import scopes_of
from normscope.testing.inputs import (
    head_inputs,
    lengths_of,
    only_second,
    options_of,
    random_inputs,
    stacks_of,
    unpadded,
)
from normscope.testing.oracle import oracle


def state_of(model: PreTrainedModel) -> dict[str, object]:
    """What an analysis must leave as it was."""
    hooks = {
        f"{name}{kind}": list(getattr(module, kind))
        for name, module in model.named_modules()
        for kind in ("_forward_hooks", "_forward_pre_hooks")
    }
    training = {name: module.training for name, module in model.named_modules()}
    return {"hooks": hooks, "training flags": training, "attention": model.config._attn_implementation}  # pyright: ignore[reportPrivateUsage]


def assert_same(before: dict[str, object], after: dict[str, object], what: str) -> None:
    """Nothing of a model's state has changed."""
    for name, value in before.items():
        assert after[name] == value, f"{what} has other {name}"


def assert_close(value: Tensor, truth: Tensor, tolerance: float, what: str) -> float:
    """Equal where missing, and elsewhere within a tolerance relative to the largest value. Returns the error."""
    value, truth = value.double(), truth.double()
    assert value.shape == truth.shape, f"{what}: shape {tuple(value.shape)}, expected {tuple(truth.shape)}"
    assert torch.equal(value.isnan(), truth.isnan()), f"{what}: other keys are missing"
    scale = truth.nan_to_num().abs().max().clamp(min=1e-30)
    error = float((value - truth).nan_to_num().abs().max() / scale)
    assert error <= tolerance, f"{what}: off by {error:.1e}, allowed {tolerance:.0e}"
    return error


# ---- `assert_family`: the whole battery of checks for a family of blocks.

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
    5. Between blocks: every block reads what the one before it outputs, unless the family names a module in between.
    6. Plain pass: the captured forward pass computes what the model computes by itself, with and without padding.
    7. Padding: a padded sequence of a batch gives what it gives alone.
    8. Model restored: hooks, training flags, attention implementation and outputs are as before.

    Of a family with stages, each of them is checked that is analysed.

    Args:
        family: the description under test.
        model: a tiny random model.
        inputs: what to call the bare model with, two sequences of which the second is padded on the right (9 and 6
            tokens; for an encoder-decoder also a target of 7 and 5). Made up from the configuration by default.
        tolerance: the largest relative error allowed, for float32 models.

    Examples:
        >>> from normscope.testing import assert_family
        >>> from transformers import BertConfig, BertModel
        >>> tiny = BertConfig(hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=16)
        >>> assert_family(ns.supported_models()["bert"], BertModel(tiny), tolerance=1e-4)
    """
    check_family(family, model, inputs, tolerance=tolerance)


@dataclass
class Figures:
    """The largest relative errors that a check found: of states after any component, and of maps against the oracle."""

    completeness: float = 0.0
    oracle: float = 0.0


def check_family(
    family: Family, model: PreTrainedModel, inputs: Mapping[str, Tensor] | None = None, *, tolerance: float = 1e-5
) -> Figures:
    """`assert_family`, with the largest errors that it found."""
    check_whole(type(model).__name__)
    if family.pyramid is not None and family.stage is None:
        numbers = [stage.number for stage in family.pyramid(model.config) if not stage.refused]
        stages = [family.at_stage(model.config, number) for number in numbers]
        found = [check_family(stage, model, inputs, tolerance=tolerance) for stage in stages]
        return Figures(max(each.completeness for each in found), max(each.oracle for each in found))
    figures = Figures()
    family = family_in(model, family)
    inputs = dict(random_inputs(family, model) if inputs is None else inputs)
    before = state_of(model)
    plain = _block_outputs(model, family, inputs)
    results = _check_layers(family, model, inputs, tolerance, plain, figures)
    assert_same(before, state_of(model), "the model after the analysis")
    for name, output in _block_outputs(model, family, inputs).items():
        assert torch.equal(output, plain[name]), f"the {name} computes something else after the analysis"
    if "attention_mask" in inputs:
        _check_padding(family, model, inputs, results, tolerance)
    return figures


def _block_outputs(model: PreTrainedModel, family: Family, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The output of the last block of every stack, by a plain forward pass in evaluation mode."""
    outputs: dict[str, Tensor] = {}
    with torch.no_grad(), evaluation_mode(model), hooks(model) as handles:
        for name, stack in stacks_of(family).items():

            def note(_: nn.Module, __: object, output: Any, name: str = name) -> None:
                outputs[name] = (output if isinstance(output, Tensor) else output[0]).clone()

            handles += [block.register_forward_hook(note) for block in blocks_of(model, stack)]
        bare_model(model)(**inputs, **options_of(family))
    return outputs


def _capture(
    family: Family,
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor],
    consume: Callable[[str, int, int, LayerTrace], None],
) -> None:
    lengths = lengths_of(family, inputs, model)
    sides: list[Side] = []
    for name, stack in stacks_of(family).items():

        def told(layer: int, sequence: int, trace: LayerTrace, name: str = name) -> None:
            consume(name, layer, sequence, trace)

        sources = lengths["encoder"] if family.encoder is not None and name == "stack" else None
        layers = range(1, 1 + stack.depth(model.config))
        sides.append(Side(stack, lengths[name], layers, told, sources))
    dtype = torch.promote_types(model.dtype, torch.float32)
    capture_sides(model, {**inputs, **options_of(family)}, sides, dtype=dtype, below_attention=True)


def _check_layers(
    family: Family,
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor],
    tolerance: float,
    plain: dict[str, Tensor],
    figures: Figures,
) -> Results:
    results: Results = {}
    stacks = stacks_of(family)
    chained = _Chained(model, stacks, tolerance)

    def consume(name: str, layer: int, sequence: int, trace: LayerTrace) -> None:
        where = f"layer {layer} of the {name}, sequence {sequence}"
        scopes = scopes_of(trace.components)
        result = results[name, layer, sequence] = decompose(trace, scopes)
        for scope, errors in result.errors.items():
            figures.completeness = max(figures.completeness, float(errors.amax()))
            assert float(errors.amax()) <= tolerance, (
                f"not complete after {scope} in {where}: {float(errors.amax()):.1e}"
            )
        figures.oracle = max(figures.oracle, _assert_oracle(trace, result, tolerance, where))
        _assert_below_attention(trace, tolerance, where)
        chained.check(name, layer, sequence, trace)
        cheap = mixing_ratios(trace, scopes)
        for scope, ratio in cheap.mixing.items():
            assert_close(result.mixing[scope], ratio, tolerance, f"cheap mixing ratio at {scope} in {where}")
        if layer == stacks[name].depth(model.config):
            _assert_plain(trace, plain[name][sequence], tolerance, where)

    _capture(family, model, inputs, consume)
    assert results, "no block was captured"
    chained.finish()
    return results


def _assert_plain(trace: LayerTrace, own: Tensor, tolerance: float, where: str) -> None:
    """The captured output of a stack is that of a plain pass with the model's own attention implementation."""
    output = trace.states[-1]
    assert output is not None, f"the state after the last component of {where} is not seen"
    what = f"the captured pass against the plain one in {where}"
    assert_close(output, own[: trace.length], tolerance, what)


class _Chained:
    """Whether every block reads what the one before it output."""

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
                assert_close(trace.hidden, before, self.tolerance, what)
            self.changed[name] |= not torch.equal(trace.hidden, before)
        self.outputs[name, sequence] = trace.states[-1]

    def finish(self) -> None:
        for name, between in self.between.items():
            assert between is None or self.changed[name], f"{between} changes nothing between the blocks of the {name}"


def _assert_oracle(trace: LayerTrace, result: LayerResult, tolerance: float, where: str) -> float:
    errors: list[float] = []
    for scope, truth in oracle(trace).items():
        what = f"map at {scope} against the oracle in {where}"
        errors.append(assert_close(result.maps[scope], truth.map, tolerance, what))
        what = f"mixing ratio at {scope} in {where}"
        errors.append(assert_close(result.mixing[scope], truth.mixing_ratio, tolerance, what))
    return max(errors)


def _assert_below_attention(trace: LayerTrace, tolerance: float, where: str) -> None:
    """From the block's input (the encoder's output) to the values, and to what a parallel feed-forward reads."""
    for step in trace.steps:
        if isinstance(step, Attention):
            source = step.source
            assert source is not None, f"what the values of {step.name} are made of is not known in {where}"
            if not isinstance(step, CrossAttention):
                assert torch.equal(source.states, trace.hidden), (
                    f"{step.name} does not read the block's input in {where}"
                )
            values = (source.projection.double() @ _after(source.steps, source.states).T).mT
            if source.slopes is not None:
                values = values.repeat(step.taps, 1, 1) * source.slopes.double()
            if source.constant is not None:
                values = values + source.constant.double()
            what = f"values of {step.name} recomputed from the states before it in {where}"
            assert_close(values, step.values, tolerance, what)
        elif isinstance(step, OwnFeedForward):
            steps = () if step.norm is None else (step.norm,)
            what = f"what the feed-forward parallel to the attention reads in {where}"
            assert_close(_after(steps, trace.hidden), step.hidden, tolerance, what)


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

    plain = _block_outputs(model, family, alone)
    depths = {name: stack.depth(model.config) for name, stack in stacks_of(family).items()}

    def consume(name: str, layer: int, _: int, trace: LayerTrace) -> None:
        if layer == depths[name]:
            _assert_plain(trace, plain[name][0], tolerance, f"layer {layer} of the {name}, a sequence without padding")
        single = decompose(trace, scopes_of(trace.components))
        for scope, values in single.maps.items():
            what = f"map at {scope} of a padded sequence in layer {layer} of the {name}"
            assert_close(results[name, layer, 1].maps[scope], values, 10 * tolerance, what)

    _capture(family, model, alone, consume)


# ---- `assert_head`: the whole battery of checks for a task head.


def assert_head(
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor] | None = None,
    lengths: Sequence[int] | None = None,
    *,
    tolerance: float = 1e-5,
    family: Family | None = None,
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
        family: the family of the model; by default the registered one.

    Examples:
        >>> from normscope.testing import assert_head
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> tiny = BertConfig(hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=16)
        >>> assert_head(BertForSequenceClassification(tiny))
    """
    family, head = family or family_of(model.config.model_type), head_of(model)
    if inputs is None or lengths is None:
        inputs, lengths = unpadded(*head_inputs(family, head, model), head)
    cached = {"use_cache": False} if family.stack.causal or head.task == "causal-lm" else {}
    plain = _forward_logits(model, head, {**inputs, **cached})
    before = state_of(model)  # some classes of transformers hook themselves when they first run
    traces = capture_head(model, family, {**inputs, **cached}, lengths, dtype=model.dtype)
    assert_same(before, state_of(model), "the model after the analysis")
    for one, other in zip(plain, _forward_logits(model, head, {**inputs, **cached}), strict=True):
        assert torch.equal(one, other), "the model computes other logits after the analysis"
    relevance = [_assert_certificate(trace, tolerance, f"sequence {index + 1}") for index, trace in enumerate(traces)]
    if "attention_mask" in inputs and len(traces) > 1:
        single = only_second(inputs, lengths[1], nested=head.task == "multiple-choice")
        (alone,) = capture_head(model, family, {**single, **cached}, lengths[1:2], dtype=model.dtype)
        what = "relevance of the tokens of a padded sequence"
        assert_close(relevance[1], _assert_certificate(alone, tolerance, "a sequence alone"), 10 * tolerance, what)


def _forward_logits(model: PreTrainedModel, head: Head, inputs: Mapping[str, object]) -> list[Tensor]:
    with torch.no_grad(), evaluation_mode(model):
        return given_logits(model, head, model(**inputs))


def _assert_certificate(trace: HeadTrace, tolerance: float, where: str) -> Tensor:
    """The sum of the tokens and the bias, for a few logits and a difference of two; gives the relevance of the tokens."""
    rows, labels = trace.logits.shape
    targets = [Target(row, {label: 1.0}) for row in {0, rows // 2, rows - 1} for label in {0, labels // 2, labels - 1}]
    targets += [Target(rows - 1, {0: 1.0, labels - 1: -1.0})] if labels > 1 else []
    pulled = pull_back_head(trace, targets)
    relevance = pulled.relevance(trace.states)
    largest = trace.logits.abs().nan_to_num(posinf=0).max()
    error = (relevance.sum(-1) + pulled.bias - values_of(trace, targets)).abs().max() / largest
    assert error <= tolerance, f"the logits of {where} are off by {float(error):.1e}, allowed {tolerance:.0e}"
    return relevance
