"""Queries and keys of an attention, as the model's own code makes them, and the way back from them to the states.

The attention module runs once more, up to where it would attend, with gradients. The norms inside of it divide by the
deviations of the pass and are otherwise linear, so queries and keys are affine in the module's input. Whatever is done to
them (rotations by positions, norms, biases, fused or narrow projections) is done by the model's own code, without a
description.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normscope.capture.hooks import Attended, intercepted_attention
from normscope.capture.view import Arguments, SequenceView
from normscope.capture.weights import BlockWeights
from normscope.chain.linear import deviation, scale_back, shift
from normscope.chain.proof import LIMIT
from normscope.chain.rounding import softmax_of
from normscope.chain.scores import Scores
from normscope.chain.trace import LayerNorm, Norm
from normscope.errors import NormscopeError, UnsupportedArchitectureError
from normscope.families.spec import (
    DispatchedAttention,
    HeadGate,
    LayerNormPart,
    NormPart,
    RmsNormPart,
    UnitLayerNormPart,
    UnitRmsNormPart,
)

_ALTERED = {"softcap": "soft-capped", "s_aux": "beside a sink of their own", "sinks": "beside a sink of their own"}
"""Arguments of attention functions that change scores in other ways than scaling, adding and the softmax."""

_KINDS: tuple[Callable[[str], NormPart], ...] = (RmsNormPart, UnitRmsNormPart, LayerNormPart, UnitLayerNormPart)


WantedScores = Literal["no", "known", "required"]
"""Whether the queries and keys of attention weights are captured: not, where they are known, or everywhere."""


def scores_of(
    part: DispatchedAttention, read: BlockWeights, view: SequenceView, weights: Float[Tensor, "head query key"] | None
) -> Scores:
    """The scores of one sequence of a call. Their softmax must equal its `weights`, if these are available."""
    if part.probed or isinstance(part.gate, HeadGate):
        raise UnsupportedArchitectureError(
            f"The weights of {part.module} are more than the softmax of queries and keys: {_more(part)}. Explain with "
            f"weights='constant' or 'half'."
        )
    module = read.block.get_submodule(part.module)
    call = _Call.of(module, view, part.module)
    norm = None if part.norm is None else read.norm(part.norm, view.hidden)
    expected = view.hidden if part.norm is None else view.output(part.norm.module)
    if not torch.equal(call.states[0, : view.length].to(expected), expected):
        raise UnsupportedArchitectureError(
            f"{part.module} does not read what its family says, so that its queries and keys cannot be followed. Explain "
            f"with weights='constant' or 'half'."
        )
    states = call.states.detach().clone().requires_grad_()
    with _linear_norms(module) as norms:
        attended = call.run(states)
        _refuse_altered(attended, part.module)
        start = None if norm is None else shift(norm)
        constants = None
        if start is not None or any("bias" in name for name, _ in module.named_parameters()):
            norms.again()
            base = torch.zeros_like(states) if start is None else start.to(states).expand_as(states)
            constants = call.run(base.detach())
    scores = _made(view, states, attended, constants, norm)
    if weights is not None:
        _refuse_other_weights(scores, weights, attended.query.dtype, part.module)
    return scores


def _refuse_other_weights(scores: Scores, weights: Tensor, dtype: torch.dtype, path: str) -> None:
    computed, own = softmax_of(scores), weights.transpose(0, 1).flatten(1)
    if not float(computed.error(own, torch.finfo(dtype).tiny, len(weights)).amax()) <= LIMIT[dtype]:
        raise UnsupportedArchitectureError(
            f"The weights of {path} are not the softmax of its queries and keys: something else is done to its scores. "
            f"Explain with weights='constant' or 'half'."
        )


def _more(part: DispatchedAttention) -> str:
    return "what its function does after the softmax is in them" if part.probed else "a gate multiplies them"


def _made(
    view: SequenceView, states: Tensor, attended: Attended, constants: Attended | None, norm: Norm | None
) -> Scores:
    query, key, length = attended.query, attended.key, view.length
    divisor = None if norm is None else deviation(norm, view.hidden)[:, None]
    padded = query.shape[2]

    def cut(tensor: Tensor) -> Tensor:
        return tensor[0, :, :length].detach().to(view.device, view.dtype)

    def back(
        at_queries: Float[Tensor, "target head token d_key"], at_keys: Float[Tensor, "target head token d_key"]
    ) -> Float[Tensor, "target token d"]:
        with torch.enable_grad():
            found = [
                torch.autograd.grad([query, key], states, [_like(q, query, padded), _like(k, key, padded)], True)[0]
                for q, k in zip(at_queries, at_keys, strict=True)
            ]
        covectors = torch.stack([each[0, :length] for each in found]).to(at_queries)
        return covectors if norm is None or divisor is None else scale_back(norm, covectors) / divisor

    added = attended.mask
    return Scores(
        queries=cut(query),
        keys=cut(key),
        constant_queries=None if constants is None else cut(constants.query),
        constant_keys=None if constants is None else cut(constants.key),
        scale=attended.scale,
        added=None if added is None else added[0, :, :length, :length].to(view.device),
        back=back,
    )


def _like(covector: Float[Tensor, "head token d_key"], own: Tensor, padded: int) -> Tensor:
    """Covectors in the model's own dtype, zero where the input is padding."""
    whole = own.new_zeros(1, covector.shape[0], padded, covector.shape[2])
    whole[0, :, : covector.shape[1]] = covector.to(own)
    return whole


def _refuse_altered(attended: Attended, path: str) -> None:
    for name, what in _ALTERED.items():
        if attended.others.get(name) is not None:
            raise UnsupportedArchitectureError(
                f"The scores of {path} are {what} ({name}={attended.others[name]!r:.40}), so that its weights are not the "
                f"softmax of queries and keys alone. Explain with weights='constant' or 'half'."
            )


@dataclass(frozen=True)
class _Call:
    """A call of an attention module for one sequence of its batch, which can be repeated for other states."""

    module: nn.Module
    states: Float[Tensor, "1 token d"]
    args: Arguments
    kwargs: Mapping[str, Any]

    @staticmethod
    def of(module: nn.Module, view: SequenceView, path: str) -> _Call:
        args, kwargs = view.captured.calls[path]
        batch = len(view.captured.hidden)
        args, kwargs = (_of_sequence(each, view.sequence, batch) for each in (args, kwargs))
        states = args[0] if args else kwargs["hidden_states"]
        others = {name: value for name, value in kwargs.items() if name != "hidden_states"}
        return _Call(module, states, args[1:], others)

    def run(self, states: Tensor) -> Attended:
        """The arguments of the attention function for these states, with a key for every head."""
        with torch.enable_grad():
            found = intercepted_attention(self.module, lambda: self.module.forward(states, *self.args, **self.kwargs))
            return replace(found, key=found.key.repeat_interleave(found.query.shape[1] // found.key.shape[1], dim=1))


def _of_sequence(value: Any, sequence: int, batch: int) -> Any:
    """Arguments of one sequence of a batch."""
    if isinstance(value, Tensor):
        return value[sequence : sequence + 1] if batch > 1 and value.dim() > 1 and len(value) == batch else value
    if isinstance(value, tuple | list):
        return type(value)(_of_sequence(each, sequence, batch) for each in value)
    if isinstance(value, dict):
        return {name: _of_sequence(each, sequence, batch) for name, each in value.items()}
    return value


# ---- norms of queries and keys ---------------------------------------------------------------------------------------


class _Norms:
    """The norms inside of an attention module in the order of their calls, each with the deviations of the pass."""

    def __init__(self, module: nn.Module) -> None:
        self.weights = BlockWeights(module, torch.float32)
        self.found: list[tuple[Norm, Tensor]] = []
        self.place: int | None = None

    def again(self) -> None:
        """From now on, calls belong to a second pass, which uses the deviations of the first."""
        self.place = 0

    def hook(self, path: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
        def linear(_: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
            states = args[0].to(torch.promote_types(args[0].dtype, torch.float32))
            if self.place is None:
                norm = self._kind(path, states.detach(), output.detach())
                self.found.append((norm, deviation(norm, states.detach())[..., None]))
                place = -1
            else:
                place, self.place = self.place, self.place + 1
            norm, divisor = self.found[place]
            return _normalised(norm, states, divisor).to(output.dtype)

        return linear

    def _kind(self, path: str, states: Tensor, output: Tensor) -> Norm:
        self.weights.dtype = states.dtype
        for kind in _KINDS:
            try:
                norm = self.weights.norm(kind(path), states)
            except NormscopeError:
                continue
            computed = _normalised(norm, states, deviation(norm, states)[..., None])
            if float((computed - output).norm()) <= LIMIT[output.dtype] * float(computed.norm()):
                return norm
        raise UnsupportedArchitectureError(
            f"What {path} makes of queries or keys is not known ({type(self.weights.block.get_submodule(path)).__name__}), "
            f"so that they cannot be followed. Explain with weights='constant' or 'half'."
        )


@contextmanager
def _linear_norms(module: nn.Module) -> Generator[_Norms]:
    """The norms inside of a module with their deviations fixed, which changes no value."""
    norms = _Norms(module)
    inside = [(path, each) for path, each in module.named_modules() if path and _is_norm(each)]
    handles = [each.register_forward_hook(norms.hook(path)) for path, each in inside]
    try:
        yield norms
    finally:
        for handle in handles:
            handle.remove()


def _is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower() and not any(True for _ in module.children())


def _normalised(norm: Norm, states: Tensor, divisor: Tensor) -> Tensor:
    """The output of a norm if it divides by these deviations."""
    if isinstance(norm, LayerNorm):
        states = states - states.mean(-1, keepdim=True)
    scaled = states / divisor * norm.weight
    constant = shift(norm)
    return scaled if constant is None else scaled + constant
