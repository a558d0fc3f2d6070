"""`assert_family`: the whole battery of checks for a family of blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from normscope.capture import Side, blocks_of, capture_sides, family_in, module_between
from normscope.capture.session import evaluation_mode, hooks
from normscope.decompose import LayerResult, decompose, mixing_ratios
from normscope.families.spec import Family, Stack
from normscope.materialised import oracle
from normscope.scopes import scopes_of
from normscope.testing.comparison import assert_close, assert_same, state_of
from normscope.testing.inputs import lengths_of, options_of, random_inputs, stacks_of
from normscope.trace import Attention, CrossAttention, LayerNorm, LayerTrace, Linear, Normalise, OwnFeedForward

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

    Examples:
        >>> from normscope.testing import assert_family
        >>> from transformers import BertConfig, BertModel
        >>> tiny = BertConfig(hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=16)
        >>> assert_family(ns.families()["bert"], BertModel(tiny), tolerance=1e-4)
    """
    family = family_in(model, family)
    inputs = dict(random_inputs(family, model) if inputs is None else inputs)
    before = state_of(model)
    plain = _block_outputs(model, family, inputs)
    results = _check_layers(family, model, inputs, tolerance, plain)
    assert_same(before, state_of(model), "the model after the analysis")
    for name, output in _block_outputs(model, family, inputs).items():
        assert torch.equal(output, plain[name]), f"the {name} computes something else after the analysis"
    if "attention_mask" in inputs:
        _check_padding(family, model, inputs, results, tolerance)


def _block_outputs(model: PreTrainedModel, family: Family, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The output of the last block of every stack, by a plain forward pass in evaluation mode."""
    outputs: dict[str, Tensor] = {}
    with torch.no_grad(), evaluation_mode(model), hooks(model) as handles:
        for name, stack in stacks_of(family).items():

            def note(_: nn.Module, __: Any, output: Any, name: str = name) -> None:
                outputs[name] = (output if isinstance(output, Tensor) else output[0]).clone()

            handles += [block.register_forward_hook(note) for block in blocks_of(model, stack)]
        model.base_model(**inputs, **options_of(family))
    return outputs


def _capture(family: Family, model: PreTrainedModel, inputs: Mapping[str, Tensor], consume: Any) -> None:
    lengths = lengths_of(family, inputs, model)
    sides: list[Side] = []
    for name, stack in stacks_of(family).items():

        def told(layer: int, sequence: int, trace: LayerTrace, name: str = name) -> None:
            consume(name, layer, sequence, trace)

        sources = lengths["encoder"] if family.encoder is not None and name == "stack" else None
        layers = range(1, 1 + stack.depth(model.config))
        sides.append(Side(stack, lengths[name], layers, told, sources))
    capture_sides(model, {**inputs, **options_of(family)}, sides, dtype=torch.float32, below_attention=True)


def _check_layers(
    family: Family, model: PreTrainedModel, inputs: Mapping[str, Tensor], tolerance: float, plain: dict[str, Tensor]
) -> Results:
    results: Results = {}
    stacks = stacks_of(family)
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
            assert_close(result.mixing[scope], ratio, tolerance, f"cheap mixing ratio at {scope} in {place}")
        if layer == stacks[name].depth(model.config):
            output = trace.states[-1]
            assert output is not None, f"the state after the last component of {place} is not seen"
            own = plain[name][sequence, : trace.length]
            assert_close(output, own, tolerance, f"the captured pass against the plain one in {place}")

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
                assert_close(trace.hidden, before, self.tolerance, what)
            self.changed[name] |= not torch.equal(trace.hidden, before)
        self.outputs[name, sequence] = trace.states[-1]

    def finish(self) -> None:
        for name, between in self.between.items():
            assert between is None or self.changed[name], f"{between} changes nothing between the blocks of the {name}"


def _assert_oracle(trace: LayerTrace, result: LayerResult, tolerance: float, place: str) -> None:
    for scope, truth in oracle(trace).items():
        assert_close(result.maps[scope], truth.map, tolerance, f"map at {scope} against the oracle in {place}")
        assert_close(result.mixing[scope], truth.mixing_ratio, tolerance, f"mixing ratio at {scope} in {place}")


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
            assert_close(values.transpose(1, 2), step.values, tolerance, what)
        elif isinstance(step, OwnFeedForward):
            steps = () if step.norm is None else (step.norm,)
            what = f"what the feed-forward beside the attention reads in {place}"
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

    def consume(name: str, layer: int, _: int, trace: LayerTrace) -> None:
        single = decompose(trace, scopes_of(trace.components))
        for scope, values in single.maps.items():
            what = f"map at {scope} of a padded sequence in layer {layer} of the {name}"
            assert_close(results[name, layer, 1].maps[scope], values, 10 * tolerance, what)

    _capture(family, model, alone, consume)
