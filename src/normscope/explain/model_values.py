"""The values that a question is about, as the model itself computes them: of its input, of other inputs, of other states.

Used by methods that query the model (gradients, removed tokens). Nothing is followed through the layers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from normscope.capture import blocks_of, module_between
from normscope.capture.head_blocks import logits_of
from normscope.capture.hooks import hooks
from normscope.chain.head_trace import Target
from normscope.chain.trace import Linear
from normscope.errors import UnsupportedArchitectureError
from normscope.explain.probabilities import probabilities as probabilities_of
from normscope.explain.question import Answer, DirectionQuestion, Question
from normscope.families.heads import head_of
from normscope.families.heads.spec import LastToken
from normscope.inputs import Batch, TokenSequence
from normscope.models.model import Model

States = tuple[Float[Tensor, "batch _ d"], ...]
"""The input of the first block of each stack: the one that the prediction comes from, then the encoder."""


class Values:
    """The explained values as a function of what the model reads. One plain pass is run when it is made."""

    answers: list[Answer]
    logits: Float[Tensor, "row label"]
    entering: States

    def __init__(self, model: Model, sequence: TokenSequence, question: Question) -> None:
        self.model, self.sequence, self.question = model, sequence, question
        family = model.family
        has_encoder = family.encoder is not None and sequence.target is not None
        self.stacks = [family.stack, *([family.encoder] if has_encoder and family.encoder is not None else [])]
        self._direction: Float[Tensor, "1 d"] | None = None
        heard: dict[int, Tensor] = {}
        with torch.no_grad(), self._first_blocks(lambda place, states: heard.setdefault(place, states.clone())):
            (self.logits,) = self._run(next(self._batches([sequence])))
        self.entering = tuple(heard[place].to(self.logits.device) for place in range(len(self.stacks)))
        self.answers = question.answers(self.logits)

    @property
    def rows(self) -> list[int]:
        """The row of the logits that each value is read off."""
        return [answer.target.row for answer in self.answers]

    @property
    def own(self) -> Float[Tensor, " target"]:
        """The values of the input itself."""
        return self._read(self.logits, self.rows)

    def of_sequences(
        self, sequences: Sequence[TokenSequence], rows: Sequence[Sequence[int]], *, probabilities: bool = False
    ) -> Float[Tensor, "sequence target"]:
        """The values of other inputs, read off their own rows; or the probabilities of their labels there."""
        values: dict[int, Tensor] = {}
        with torch.no_grad():
            for places in _alike(sequences):
                for batch in self._batches([sequences[place] for place in places]):
                    logits = self._run(batch)
                    for index, each in zip(batch.indices, logits, strict=True):
                        values[places[index]] = self._read(each, rows[places[index]], probabilities=probabilities)
        return torch.stack([values[place] for place in range(len(sequences))])

    def of_states(
        self, *states: Float[Tensor, "batch _ d"], probabilities: bool = False
    ) -> Float[Tensor, "batch target"]:
        """The values if these states entered the first blocks, differentiable where gradients are enabled; or the
        probabilities of their labels."""
        self._refuse_module_between()
        (batch,) = self.model.batches([self.sequence])
        many = batch.repeated(len(states[0]))
        # A copy, since some blocks add to their input in place.
        with self._first_blocks(lambda place, _: states[place].clone()):
            return torch.stack([self._read(each, self.rows, probabilities=probabilities) for each in self._run(many)])

    # ---- a pass --------------------------------------------------------------------------------------------------------

    def _batches(self, sequences: Sequence[TokenSequence]) -> Iterator[Batch]:
        if self._one_at_a_time:
            for index, sequence in enumerate(sequences):
                (batch,) = self.model.batches([sequence])
                yield replace(batch, indices=[index])
        else:
            yield from self.model.batches(sequences)

    @property
    def _one_at_a_time(self) -> bool:
        """Classifiers that look for the last token by the id of padding take one input at a time where there is none."""
        if isinstance(self.question, DirectionQuestion):
            return False
        picks = any(isinstance(part, LastToken) for part in head_of(self.model.module).parts)
        return picks and self.model.config.get_text_config().pad_token_id is None

    def _run(self, batch: Batch) -> list[Float[Tensor, "row label"]]:
        """The logits of every sequence of a batch (or its last states along the direction)."""
        module, lengths = self.model.module, batch.target_lengths or batch.lengths
        if not isinstance(self.question, DirectionQuestion):
            output = self.model.run(batch)
            return [logits_of(module, head_of(module), output, row, size) for row, size in enumerate(lengths)]
        last: list[Tensor] = []
        blocks = blocks_of(module, self.stacks[0])
        self.model.run(batch, lambda: [block.register_forward_hook(_noter(last)) for block in blocks], head=False)
        return [self._along_direction(last[-1][row, :size]) for row, size in enumerate(lengths)]

    def _along_direction(self, states: Float[Tensor, "token d"]) -> Float[Tensor, "token 1"]:
        """States along the direction requested, which is that of the input's own state where it is the state itself."""
        if self._direction is None:
            (step,) = self.question.head_of(states.detach()).steps
            assert isinstance(step, Linear)
            self._direction = step.weight
        return states @ self._direction.T

    def _read(
        self, logits: Float[Tensor, "row label"], rows: Sequence[int], *, probabilities: bool = False
    ) -> Float[Tensor, " target"]:
        if probabilities:
            labels = [next(iter(answer.target.weights)) for answer in self.answers]
            chances = (probabilities_of(self.model.module, logits[row]) for row in rows)
            return torch.stack([chance[label] for chance, label in zip(chances, labels, strict=True)])
        return torch.stack(
            [self._value(answer.target, logits[row]) for row, answer in zip(rows, self.answers, strict=True)]
        )

    def _value(self, target: Target, logits: Float[Tensor, " label"]) -> Float[Tensor, ""]:
        """The value of a target where these are the logits of its row. Centred logits keep the input's own probabilities."""
        if not target.centred:
            return sum((weight * logits[label] for label, weight in target.weights.items()), logits.new_zeros(()))
        own = self.logits[target.row].detach()
        possible = own.isfinite()
        return (target.direction(own).to(logits)[possible] * logits[possible]).sum()

    @contextmanager
    def _first_blocks(self, replaced: Callable[[int, Tensor], Tensor]) -> Generator[None]:
        """What enters the first block of each stack goes through a function; a shared block is met once."""
        with hooks(self.model.module) as handles:
            for place, stack in enumerate(self.stacks):
                block = blocks_of(self.model.module, stack)[0]
                handles.append(block.register_forward_pre_hook(_replacing(place, replaced), with_kwargs=True))
            yield

    def _refuse_module_between(self) -> None:
        for stack in self.stacks:
            refuse_module_between(self.model, module_between(self.model.module, stack))


def refuse_module_between(model: Model, path: str | None) -> None:
    """Nothing is followed from the prediction to the embeddings past a module that acts between two blocks."""
    if path is not None:
        raise UnsupportedArchitectureError(
            f"In {model.name} the module {path!r} acts between two blocks, and nothing can be followed through it from "
            f"the prediction back to the tokens yet. Maps of single layers and leave-one-out are not affected."
        )


def _alike(sequences: Sequence[TokenSequence]) -> list[list[int]]:
    """The indices of sequences of the same lengths together, so that nothing is padded."""
    groups: dict[tuple[int, int], list[int]] = {}
    for place, sequence in enumerate(sequences):
        target = 0 if sequence.target is None else len(sequence.target)
        groups.setdefault((len(sequence), target), []).append(place)
    return list(groups.values())


def _noter(kept: list[Tensor]) -> Callable[..., None]:
    def note(_: nn.Module, __: tuple[object, ...], output: Tensor | Sequence[Any]) -> None:
        kept[:] = [(output if isinstance(output, Tensor) else output[0]).clone()]

    return note


def _replacing(place: int, replaced: Callable[[int, Tensor], Tensor]) -> Callable[..., Any]:
    done = False

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        nonlocal done
        if done:
            return args, kwargs
        done = True
        own: Tensor = args[0] if args else kwargs["hidden_states"]
        states = replaced(place, own).to(own.device)
        return ((states, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": states})

    return hook
