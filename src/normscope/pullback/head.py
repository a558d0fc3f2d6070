"""The pull-back of logits through a task head, to the states that leave the last block.

Activations act by their secant slope, norms by the deviation of the model's own state, so that every step is affine: a
covector goes back through its transpose, and what it makes of the step's bias is counted with the bias. Covectors are kept
one for each pair of a target and a row that it reaches, since most heads read one token; of the output matrix only the
labels of some target are touched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.chain.head_trace import (
    Activate,
    Average,
    Concatenate,
    EncoderEnd,
    HeadStep,
    HeadTrace,
    Pick,
    PickEach,
    Products,
    Rescale,
    Scale,
    Shift,
    Target,
)
from normscope.chain.linear import deviation, shift
from normscope.chain.trace import LayerNorm, Linear, Normalise
from normscope.errors import HeadError, SelectionError

Labels = list[int]


@dataclass(frozen=True)
class PulledHead:
    """Targets as functions of the states: `sum_k <covector[target, k], state_k> + bias[target]` is the target's value.

    `vectors[entry]` is the covector of target `targets[entry]` at token `tokens[entry]`; a pair may come twice, and then
    both count. Tokens that are not named have none.
    """

    targets: Int[Tensor, " entry"]
    tokens: Int[Tensor, " entry"]
    vectors: Float[Tensor, "entry d"]
    bias: Float[Tensor, " target"]
    length: int

    @property
    def covector(self) -> Float[Tensor, "target token d"]:
        """The covectors of all tokens, most of them zero."""
        dense = self.vectors.new_zeros(len(self.bias), self.length, self.vectors.shape[-1])
        return dense.index_put_((self.targets, self.tokens), self.vectors, accumulate=True)

    def relevance(self, states: Float[Tensor, "token d"]) -> Float[Tensor, "target token"]:
        """`<covector[target, k], state_k>`, which adds up, with the bias, to the target's value."""
        shares = (self.vectors * states[self.tokens]).sum(-1)
        relevance = shares.new_zeros(len(self.bias), self.length)
        return relevance.index_put_((self.targets, self.tokens), shares, accumulate=True)


def pull_back_head(trace: HeadTrace, targets: Sequence[Target]) -> PulledHead:
    """The covectors of several targets at the states that leave the last block, and the bias of each."""
    _check(trace, targets)
    labels = sorted({label for target in targets for label in target.weights})
    dtype, device = trace.states.dtype, trace.states.device
    direction = [[float(target.weights.get(label, 0.0)) for label in labels] for target in targets]
    carried = _Carried(
        targets=torch.arange(len(targets), device=device),
        rows=torch.tensor([target.row for target in targets], device=device),
        vectors=torch.tensor(direction, dtype=dtype, device=device),
        bias=torch.zeros(len(targets), dtype=dtype, device=device),
    )
    pulled = _through(narrowed(trace.steps, labels), carried)
    return PulledHead(pulled.targets, pulled.rows, pulled.vectors, pulled.bias, len(trace.states))


def pull_back_rows(trace: HeadTrace, covectors: Float[Tensor, "target row label"]) -> PulledHead:
    """The covectors of targets that are any covectors at the rows that a head gives out, and the bias of each."""
    count, rows, _ = covectors.shape
    device = covectors.device
    carried = _Carried(
        targets=torch.arange(count, device=device).repeat_interleave(rows),
        rows=torch.arange(rows, device=device).repeat(count),
        vectors=covectors.flatten(0, 1),
        bias=covectors.new_zeros(count),
    )
    pulled = _through(trace.steps, carried)
    return PulledHead(pulled.targets, pulled.rows, pulled.vectors, pulled.bias, len(trace.states))


def pull_back_end(
    end: EncoderEnd, covector: Float[Tensor, "target token d"]
) -> tuple[Float[Tensor, "target token d"], Float[Tensor, " target"]]:
    """Covectors at what a decoder reads, pulled back to what leaves the encoder's last block, and the bias of each."""
    covector = covector.to(end.states.device)
    count, length, size = covector.shape
    carried = _Carried(
        targets=torch.arange(count, device=covector.device).repeat_interleave(length),
        rows=torch.arange(length, device=covector.device).repeat(count),
        vectors=covector.reshape(-1, size),
        bias=covector.new_zeros(count),
    )
    pulled = _through(end.steps, carried)
    return pulled.vectors.reshape(count, length, -1), pulled.bias


def values_of(trace: HeadTrace, targets: Sequence[Target]) -> Float[Tensor, " target"]:
    """The targets' values by the model's own logits."""
    _check(trace, targets)
    values = [sum(weight * float(trace.logits[t.row, label]) for label, weight in t.weights.items()) for t in targets]
    return torch.tensor(values, dtype=trace.states.dtype, device=trace.states.device)


def sizes_of(trace: HeadTrace, targets: Sequence[Target]) -> Float[Tensor, " target"]:
    """How large the numbers are that the targets' values are made of: a difference of large logits is no surer than they."""
    sizes = [
        sum(abs(weight * float(trace.logits[t.row, label])) for label, weight in t.weights.items()) for t in targets
    ]
    return torch.tensor(sizes, dtype=trace.states.dtype, device=trace.states.device)


def _check(trace: HeadTrace, targets: Sequence[Target]) -> None:
    rows, labels = trace.logits.shape
    if not targets:
        raise SelectionError("No target was given: name at least one row and label of the logits.")
    for target in targets:
        if not 0 <= target.row < rows:
            raise SelectionError(
                f"Row {target.row} of the logits was asked for; there are {rows}, from 0 to {rows - 1}."
            )
        if not target.weights:
            raise SelectionError(f"A target at row {target.row} names no label.")
        for label in target.weights:
            if not 0 <= label < labels:
                raise SelectionError(f"Label {label} was asked for; there are {labels}, from 0 to {labels - 1}.")
            if not math.isfinite(logit := float(trace.logits[target.row, label])):
                raise SelectionError(
                    f"The logit of label {label} at row {target.row} is {logit}, whatever the tokens are: "
                    f"the model rules this label out. Ask for another."
                )


# ---- only the labels that some target asks for -------------------------------------------------------------------------


def narrowed(steps: tuple[HeadStep, ...], labels: Labels) -> tuple[HeadStep, ...]:
    """The same chain, giving out only some labels: its last steps, back to the matrix that makes the logits, shrink."""
    shorter = list(steps)
    for index in reversed(range(len(steps))):
        step = steps[index]
        shorter[index] = _narrow(step, labels)
        if isinstance(step, Linear | Average | Products):
            return tuple(shorter)
    raise HeadError("The logits of this head come out of no matrix, so that no label can be followed alone.")


def _narrow(step: HeadStep, labels: Labels) -> HeadStep:
    match step:
        case Linear():
            return Linear(step.weight[labels], None if step.bias is None else step.bias[labels])
        case Activate():
            return replace(step, state_before=step.state_before[:, labels])
        case Shift():
            return Shift(step.bias[labels])
        case Average():
            return Average(tuple(narrowed(branch, labels) for branch in step.branches))
        case Products():
            return Products(tuple(step.pairs[label] for label in labels))
        case Pick() | Scale() | Rescale():
            return step
        case PickEach():
            return PickEach(step.sources[labels])
        case Normalise() | Concatenate():
            raise HeadError(
                "The logits of this head are normalised, or put together of several, so that no label can be followed alone."
            )


# ---- the steps ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Carried:
    """Covectors on their way back: `vectors[entry]` of a target at a row, and the bias of each target so far."""

    targets: Int[Tensor, " entry"]
    rows: Int[Tensor, " entry"]
    vectors: Float[Tensor, "entry f"]
    bias: Float[Tensor, " target"]

    def to(self, vectors: Float[Tensor, "entry inputs"], bias: Float[Tensor, " f"] | float | None = None) -> _Carried:
        """On the other side of a step that added `bias` to its rows."""
        if bias is None:
            return replace(self, vectors=vectors)
        shares = (self.vectors * bias).sum(-1)
        return replace(self, vectors=vectors, bias=self.bias.index_add(0, self.targets, shares))

    def alone(self, vectors: Float[Tensor, "entry f"]) -> _Carried:
        """One of several ways back, which counts its own bias."""
        return replace(self, vectors=vectors, bias=torch.zeros_like(self.bias))

    def joined(self, ways: Sequence[_Carried]) -> _Carried:
        """All ways back together."""
        return _Carried(
            torch.cat([way.targets for way in ways]),
            torch.cat([way.rows for way in ways]),
            torch.cat([way.vectors for way in ways]),
            torch.stack([self.bias, *(way.bias for way in ways)]).sum(0),
        )


def _through(steps: tuple[HeadStep, ...], carried: _Carried) -> _Carried:
    for step in reversed(steps):
        carried = _pull(step, carried)
    return carried


def _pull(step: HeadStep, carried: _Carried) -> _Carried:
    vectors = carried.vectors
    match step:
        case Linear():
            bias = None if step.bias is None else step.bias.to(vectors)
            return carried.to(vectors @ step.weight.to(vectors), bias)
        case Normalise():
            return _pull_norm(step, carried)
        case Activate():
            slopes = step.activation.slope(step.state_before.to(vectors)[carried.rows])
            return carried.to(vectors * slopes, step.activation.at_zero)
        case Scale() | Rescale():
            factor = step.factor if isinstance(step, Scale) else step.factors[carried.rows, None]
            return carried.to(vectors * factor)
        case Shift():
            return carried.to(vectors, step.bias.to(vectors))
        case Pick() | PickEach():
            return _pull_pick(step, carried) if isinstance(step, Pick) else _pull_each(step, carried)
        case Average():
            share = vectors / len(step.branches)
            return carried.joined([_through(branch, carried.alone(share)) for branch in step.branches])
        case Concatenate():
            shares = vectors.split(step.widths, -1)
            ways = [_through(b, carried.alone(share)) for b, share in zip(step.branches, shares, strict=True)]
            return carried.joined(ways)
        case Products():
            return _pull_products(step, carried)


def _pull_norm(step: Normalise, carried: _Carried) -> _Carried:
    scaled = carried.vectors * step.norm.weight / deviation(step.norm, step.state_before[carried.rows])[:, None]
    if isinstance(step.norm, LayerNorm):
        scaled = scaled - scaled.mean(-1, keepdim=True)
    return carried.to(scaled, shift(step.norm))


def _pull_pick(step: Pick, carried: _Carried) -> _Carried:
    sources, weights = step.sources[carried.rows], step.weights[carried.rows]
    return replace(
        carried,
        targets=carried.targets.repeat_interleave(sources.shape[1]),
        rows=sources.flatten(),
        vectors=(weights[:, :, None] * carried.vectors[:, None, :]).flatten(0, 1),
    )


def _pull_each(step: PickEach, carried: _Carried) -> _Carried:
    """Every row that some element comes from gets a covector, which is zero at all other elements."""
    rows = step.sources.unique()
    chosen = step.sources[None] == rows[:, None]
    return replace(
        carried,
        targets=carried.targets.repeat_interleave(len(rows)),
        rows=rows.repeat(len(carried.targets)),
        vectors=(carried.vectors[:, None] * chosen).flatten(0, 1),
    )


def _pull_products(step: Products, carried: _Carried) -> _Carried:
    """Integrated gradients of a product on the joint path give half of it to each factor."""
    ways: list[_Carried] = []
    for label, (left, right) in enumerate(step.pairs):
        half = carried.vectors[:, label, None] / 2
        for one, other in ((left, right), (right, left)):
            ways.append(_through(one.steps, carried.alone(half * other.output[carried.rows])))
    return carried.joined(ways)
