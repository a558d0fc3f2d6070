"""The traces of a task head: from its description, its weights and a captured pass. Knows which tensor of the model plays
which role in the head, but not what is computed with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.activations import ACT2FN

from normscope.capture.view import Arguments, Keywords
from normscope.capture.weights import BlockWeights
from normscope.chain.activations import Activation, recognise, soft_cap
from normscope.chain.head_trace import Activate, Average, Factor, HeadStep, HeadTrace, Pick, Products, Scale, Shift
from normscope.chain.trace import Linear, Normalise
from normscope.errors import HeadError, listing
from normscope.families.heads.spec import (
    ActivationPart,
    AveragePart,
    EndToken,
    Head,
    HeadPart,
    LastPosition,
    LastToken,
    LinearPart,
    LinearRows,
    LinearShare,
    MatrixPart,
    MeanFrom,
    MeanOfPositions,
    MeanOfTokens,
    NamedActivationPart,
    PickPart,
    ScalePart,
    ShiftPart,
    SoftCapPart,
    SpanPart,
    TokenAt,
)
from normscope.families.spec import (
    FixedLayerNormPart,
    LayerNormPart,
    NormPart,
    RmsNormPart,
    UnitLayerNormPart,
    UnitRmsNormPart,
)


def head_modules(parts: Sequence[HeadPart]) -> Iterator[str]:
    """The modules whose input or output a head needs."""
    for part in parts:
        match part:
            case LayerNormPart() | FixedLayerNormPart() | RmsNormPart() | UnitRmsNormPart() | UnitLayerNormPart():
                yield part.module
            case ActivationPart() | NamedActivationPart() | SoftCapPart():
                yield part.after
            case AveragePart():
                for branch in part.branches:
                    yield from head_modules(branch)
            case SpanPart():
                yield part.module
                for chain in (chain for pair in part.labels for chain in pair):
                    yield from head_modules(chain)
                    yield _last_module(chain)
            case _:
                pass


def _last_module(chain: Sequence[HeadPart]) -> str:
    part = chain[-1]
    if isinstance(part, LinearPart | NormPart):
        return part.module
    raise HeadError(
        f"A factor of a product of a head has to end in a module that shows it, not in a {type(part).__name__}."
    )


@dataclass
class CapturedHead:
    """The captured tensors of one pass of the whole model, for a padded batch: `[batch, position, ...]`."""

    arguments: Keywords = field(default_factory=dict)
    taken: dict[str, Arguments] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    output: Any = None


def given_logits(model: PreTrainedModel, head: Head, output: Any) -> list[Tensor]:
    """The outputs of a model that its head's description names as logits."""
    missing = [name for name in head.logits if name not in output]
    if missing:
        raise HeadError(
            f"{type(model).__name__} has no output {listing(missing)}, where the description of its head expects its "
            f"logits. Its outputs: {listing(output)}."
        )
    return [output[name] for name in head.logits]


def logits_of(model: PreTrainedModel, head: Head, output: object, sequence: int, length: int) -> Tensor:
    """The logits `[row, label]` of one sequence in the output for a batch.

    The output is `[batch, position, label]`, `[batch, label]`, or one `[batch, (question,) position]` for each label.
    """
    parts = given_logits(model, head, output)
    if head.task == "multiple-choice":
        return parts[0].reshape(-1, 1, 1)[sequence]
    if head.task in ("question-answering", "replaced-token"):
        return torch.stack([part[sequence, ..., :length].flatten() for part in parts], dim=-1)
    logits = parts[0][sequence]
    return logits[None] if logits.dim() == 1 else logits[:length]


@dataclass(frozen=True)
class HeadTraceBuilder:
    """Builds the trace of a head for one sequence of a captured batch. `states` are those of the whole batch.

    Everything is on the device of the states, except what is as large as a vocabulary, which is not moved.
    """

    model: PreTrainedModel
    captured: CapturedHead
    states: Tensor
    sequence: int
    length: int
    dtype: torch.dtype

    def trace(self, head: Head) -> HeadTrace:
        logits = logits_of(self.model, head, self.captured.output, self.sequence, self.length)
        return HeadTrace(self.own_states(), self.steps(head.parts, self.length), logits)

    def own_states(self) -> Tensor:
        return self._cut(self.states, self.length)

    def _cut(self, tensor: Tensor, rows: int) -> Tensor:
        return self._rows(tensor, rows).to(self.states.device, self.dtype)

    def _rows(self, tensor: Tensor, rows: int) -> Tensor:
        """The rows of this sequence in `[batch, position, ...]` or, once one row is left, in `[batch, ...]`."""
        return tensor[self.sequence].reshape(-1, tensor.shape[-1])[:rows]

    # ---- steps ---------------------------------------------------------------------------------------------------------

    def steps(self, parts: Sequence[HeadPart], rows: int) -> tuple[HeadStep, ...]:
        """The steps of parts for a number of rows, the first of which are this sequence's."""
        steps: list[HeadStep] = []
        for part in parts:
            try:
                step = self._step(part, rows)
            except (AttributeError, KeyError) as error:  # a module that does not exist, or that was not called
                raise HeadError(
                    f"The head of {type(self.model).__name__} does not do what its description says: "
                    f"{part} was not captured ({error})."
                ) from error
            rows = len(step.sources) if isinstance(step, Pick) else rows
            steps.append(step)
        return tuple(steps)

    def _step(self, part: HeadPart, rows: int) -> HeadStep:
        weights = BlockWeights(self.model, self.dtype, self.states.device)
        match part:
            case LayerNormPart() | FixedLayerNormPart() | RmsNormPart() | UnitRmsNormPart() | UnitLayerNormPart():
                states = self._cut(self.captured.taken[part.module][0], rows)
                return Normalise(weights.norm(part, states), states)
            case LinearPart() | LinearShare() | LinearRows():
                return self._linear(part)
            case MatrixPart():
                return Linear(weights.attribute(part.weight).detach(), weights.attribute(part.bias).detach())
            case ActivationPart() | NamedActivationPart():
                return Activate(self._activation(part), self._cut(self.captured.given[part.after], rows))
            case SoftCapPart():  # a vocabulary's logits are not converted as a whole
                return Activate(soft_cap(part.cap), self._rows(self.captured.given[part.after], rows))
            case ScalePart():
                return Scale(part.factor)
            case ShiftPart():
                return Shift(weights.attribute(part.bias).detach().flatten())
            case AveragePart():
                return Average(tuple(self.steps(branch, rows) for branch in part.branches))
            case SpanPart():
                return self._products(part)
            case _:
                return self._pick(part)

    def _activation(self, part: ActivationPart | NamedActivationPart) -> Activation:
        if isinstance(part, NamedActivationPart):
            return recognise(ACT2FN[part.name])
        return BlockWeights(self.model, self.dtype).activation(part.activation)

    def _linear(self, part: LinearPart | LinearShare | LinearRows) -> Linear:
        """In the model's own dtype if possible: a vocabulary's matrix is not converted as a whole."""
        weight = getattr(self.model.get_submodule(part.module), "weight", None)
        own = weight.dtype if isinstance(weight, Tensor) and weight.is_floating_point() else self.dtype
        whole = BlockWeights(self.model, own).linear(part.module)
        if isinstance(part, LinearPart):
            return whole
        if isinstance(part, LinearRows):
            rows = list(part.rows)
            return Linear(whole.weight[rows], None if whole.bias is None else whole.bias[rows])
        return Linear(whole.weight.chunk(part.shares, dim=1)[part.share], None if part.share else whole.bias)

    # ---- rows ----------------------------------------------------------------------------------------------------------

    def _pick(self, part: PickPart) -> Pick:
        match part:
            case TokenAt():
                return self._single_row(part.position)
            case LastToken():
                return self._single_row(self._last_token())
            case EndToken():
                return self._single_row(self._last_of(self._ids() == self.model.config.eos_token_id))
            case LastPosition():
                return self._single_row(self._positions() - 1)
            case MeanFrom():
                self._check_padding(self._positions() - 1)
                return self._pick_of([list(range(part.position, self.length))])
            case MeanOfTokens():
                return self._mean()
            case MeanOfPositions():
                self._check_padding(self._positions() - 1)
                return self._mean()

    def _single_row(self, position: int) -> Pick:
        self._check_padding(position)
        return self._pick_of([[position]])

    def _mean(self) -> Pick:
        return self._pick_of([list(range(self.length))])

    def _pick_of(self, sources: list[list[int]]) -> Pick:
        """Each row the mean of its sources."""
        device = self.states.device
        indices = torch.tensor(sources, device=device)
        return Pick(indices, torch.full(indices.shape, 1 / indices.shape[1], dtype=self.dtype, device=device))

    def _check_padding(self, position: int) -> None:
        if position >= self.length:
            raise HeadError(
                f"{type(self.model).__name__} takes its logits from position {position + 1} of a sequence of {self.length} "
                f"tokens, which is padding. Run this sequence alone, without padding."
            )

    def _positions(self) -> int:
        return self.states.shape[1]

    def _ids(self) -> Tensor:
        ids = self.captured.arguments.get("input_ids")
        if ids is None:
            raise HeadError(f"The head of {type(self.model).__name__} finds its token by input_ids, which are missing.")
        return ids.reshape(-1, ids.shape[-1])[self.sequence]

    def _last_token(self) -> int:
        padding = self.model.config.get_text_config().pad_token_id
        if padding is None or self.captured.arguments.get("input_ids") is None:
            return self._positions() - 1
        return self._last_of(self._ids() != padding)

    def _last_of(self, wanted: Tensor) -> int:
        positions = wanted.nonzero().flatten()
        return int(positions[-1]) if len(positions) else 0

    # ---- products ------------------------------------------------------------------------------------------------------

    def _products(self, part: SpanPart) -> Products:
        """A row for each question and token, question by question."""
        questions = self.captured.taken[part.module][1][self.sequence].tolist()
        of_question = self._pick_of([[index] for index in range(len(questions)) for _ in range(self.length)])
        of_token = self._pick_of([[index] for _ in questions for index in range(self.length)])
        first = self._pick_of([[position] for position in questions])
        pairs = [
            (self._factor((first,), left, len(questions), of_question), self._factor((), right, self.length, of_token))
            for left, right in part.labels
        ]
        return Products(tuple(pairs))

    def _factor(self, before: tuple[Pick, ...], chain: Sequence[HeadPart], rows: int, after: Pick) -> Factor:
        output = self._cut(self.captured.given[_last_module(chain)], rows)[after.sources[:, 0]]
        return Factor((*before, *self.steps(chain, rows), after), output)
