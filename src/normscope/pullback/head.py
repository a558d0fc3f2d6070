"""The pull-back of logits through a task head, to the states that leave the last block.

Activations act by their secant slope, norms by the deviation of the model's own state, so that every step is affine: a
covector goes back through its transpose, and what it makes of the step's bias is counted with the bias. Covectors are kept
one for each pair of a target and a row that it reaches, since most heads read one token; of the output matrix only the
labels of some target are touched, except by centred targets, which weigh all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, float64

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

_DENSE_AT_ONCE = 64
"""Centred targets that are pulled back together: each has a number for every label."""

_ROWS_SUMMED = 256
"""Rows of an output matrix that are summed in the arithmetic of the covectors."""

_ROWS_AT_ONCE = 8192
"""Rows of an output matrix that are converted to the dtype of the covectors at once."""


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

    def weighted(self, weights: Float[Tensor, "value target"]) -> PulledHead:
        """Sums of the targets with weights, each a target of its own: the pull-back is linear in its start."""
        values, targets = weights.nonzero(as_tuple=True)
        pairs = (self.targets[None] == targets[:, None]).nonzero(as_tuple=True)
        chosen, entries = pairs[0], pairs[1]
        factors = weights[values, targets][chosen, None]
        return PulledHead(
            targets=values[chosen],
            tokens=self.tokens[entries],
            vectors=self.vectors[entries] * factors,
            bias=weights @ self.bias,
            length=self.length,
        )


def pull_back_head(trace: HeadTrace, targets: Sequence[Target]) -> PulledHead:
    """The covectors of several targets at the states that leave the last block, and the bias of each."""
    _check(trace, targets)
    ways = [_through(steps, start) for steps, start in _starts(trace, targets)]
    pulled = ways[0] if len(ways) == 1 else ways[0].alone(ways[0].vectors).joined(ways)
    return PulledHead(pulled.targets, pulled.rows, pulled.vectors, pulled.bias, len(trace.states))


def _starts(trace: HeadTrace, targets: Sequence[Target]) -> Iterator[tuple[tuple[HeadStep, ...], _Carried]]:
    """Covectors at the logits, with the steps that they go back through: together where few labels matter."""
    dtype, device = trace.states.dtype, trace.states.device

    def start(numbers: Sequence[int], vectors: Float[Tensor, "target label"]) -> _Carried:
        return _Carried(
            targets=torch.tensor(numbers, device=device),
            rows=torch.tensor([targets[number].row for number in numbers], device=device),
            vectors=vectors.to(device, dtype),
            bias=torch.zeros(len(targets), dtype=dtype, device=device),
        )

    plain = [number for number, target in enumerate(targets) if not target.centred]
    if plain:
        labels = sorted({label for number in plain for label in targets[number].weights})
        weights = [[float(targets[number].weights.get(label, 0.0)) for label in labels] for number in plain]
        yield narrowed(trace.steps, labels), start(plain, torch.tensor(weights, dtype=dtype, device=device))
    centred = [number for number, target in enumerate(targets) if target.centred]
    if not centred:
        return
    possible = trace.logits[[targets[number].row for number in centred]].isfinite().all(0)
    whole = bool(possible.all())
    steps = trace.steps if whole else narrowed(trace.steps, possible.nonzero().flatten().tolist())
    for first in range(0, len(centred), _DENSE_AT_ONCE):
        numbers = centred[first : first + _DENSE_AT_ONCE]
        vectors = torch.stack([targets[number].direction(trace.logits[targets[number].row]) for number in numbers])
        yield steps, start(numbers, vectors if whole else vectors[:, possible])


def pull_back_rows(trace: HeadTrace, covectors: Float[Tensor, "target row label"]) -> PulledHead:
    """The covectors of targets that are any covectors at the rows that a head outputs, and the bias of each."""
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
    return _totals(trace, targets, sizes=False)


def sizes_of(trace: HeadTrace, targets: Sequence[Target]) -> Float[Tensor, " target"]:
    """The size of the numbers in the targets' values: a difference of large logits is no more precise than these."""
    return _totals(trace, targets, sizes=True)


def _totals(trace: HeadTrace, targets: Sequence[Target], *, sizes: bool) -> Float[Tensor, " target"]:
    values = [_total(target, trace.logits[target.row].double(), sizes=sizes) for target in targets]
    return torch.tensor(values, dtype=trace.states.dtype, device=trace.states.device)


def _total(target: Target, logits: Float[Tensor, " label"], *, sizes: bool) -> float:
    if target.centred:
        terms = (target.direction(logits) * logits)[logits.isfinite()]
        return float(terms.abs().sum() if sizes else terms.sum())
    terms = [weight * float(logits[label]) for label, weight in target.weights.items()]
    return sum(map(abs, terms)) if sizes else sum(terms)


def _check(trace: HeadTrace, targets: Sequence[Target]) -> None:
    rows, labels = trace.logits.shape
    if not targets:
        raise SelectionError("No target was given: name at least one row and label of the logits.")
    for target in targets:
        if not 0 <= target.row < rows:
            raise SelectionError(
                f"Row {target.row} of the logits was requested; there are {rows}, from 0 to {rows - 1}."
            )
        if not target.weights:
            raise SelectionError(f"A target at row {target.row} names no label.")
        for label in target.weights:
            if not 0 <= label < labels:
                raise SelectionError(f"Label {label} was requested; there are {labels}, from 0 to {labels - 1}.")
            if not math.isfinite(logit := float(trace.logits[target.row, label])):
                raise SelectionError(
                    f"The logit of label {label} at row {target.row} is {logit}, whatever the tokens are: "
                    f"the model rules this label out. Ask for another."
                )


# ---- only the labels that some target asks for -------------------------------------------------------------------------


def narrowed(steps: tuple[HeadStep, ...], labels: Labels) -> tuple[HeadStep, ...]:
    """The same chain with only some labels: its last steps, from the output matrix on, are restricted to these."""
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
        """One of several branches, which counts its own bias."""
        return replace(self, vectors=vectors, bias=torch.zeros_like(self.bias))

    def joined(self, ways: Sequence[_Carried]) -> _Carried:
        """Concatenates the pulled-back branches."""
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
            return carried.to(_product(vectors, step.weight), bias)
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


def _product(vectors: Float[Tensor, "entry f"], weight: Float[Tensor, "f inputs"]) -> Float[Tensor, "entry inputs"]:
    """`vectors @ weight` in the arithmetic of the vectors; an output matrix in another dtype is converted piece by piece.

    A sum over a whole vocabulary is one of short sums, which are added in float64: terms that nearly cancel would otherwise
    lose three digits.
    """
    if weight.dtype == vectors.dtype and weight.device == vectors.device and len(weight) <= _ROWS_SUMMED:
        return vectors @ weight
    pieces = zip(vectors.split(_ROWS_AT_ONCE, dim=1), weight.split(_ROWS_AT_ONCE), strict=True)
    product = vectors.new_zeros((len(vectors), weight.shape[1]), dtype=float64)
    for part, rows in pieces:
        product += _summed(part, rows.to(vectors))
    return product.to(vectors)


def _summed(vectors: Float[Tensor, "entry f"], weight: Float[Tensor, "f inputs"]) -> Float[Tensor, "entry inputs"]:
    """The same product, in float64 from sums over a few rows each."""
    whole = len(weight) // _ROWS_SUMMED * _ROWS_SUMMED
    rest = (vectors[:, whole:] @ weight[whole:]).to(float64)
    if not whole:
        return rest
    few = vectors[:, :whole].unflatten(1, (-1, _ROWS_SUMMED)).transpose(0, 1)
    return (few @ weight[:whole].unflatten(0, (-1, _ROWS_SUMMED))).sum(0, dtype=float64) + rest


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
