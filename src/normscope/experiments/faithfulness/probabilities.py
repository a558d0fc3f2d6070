"""The probability of a prediction without some of the tokens, in batches, each input asked once: answers are kept by what
the model reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from normscope.errors import InputError
from normscope.experiments.faithfulness.attributions import Case
from normscope.explain.model_values import Values
from normscope.explain.probabilities import has_probabilities
from normscope.explain.removal import NO_ROW, Removal, without
from normscope.inputs import TokenSequence

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

Removed = frozenset[int]
"""Places of tokens that are taken away."""

_TOKENS_AT_ONCE = 2048


class Probabilities:
    """The probability of the label that the model gives the whole input, as a function of the tokens taken away."""

    def __init__(self, analyzer: Analyzer, case: Case) -> None:
        self.analyzer, self.case = analyzer, case
        self.values = Values(analyzer, case.sequence, case.question)
        if not has_probabilities(analyzer.model, self.values.logits.shape[-1]):
            raise InputError(
                f"{analyzer.name} gives a number and no probabilities (a regression): nothing is predicted."
            )
        self._kept: dict[tuple[object, ...], float] = {}
        self.calls = 1

    def removals(self) -> tuple[Removal, ...]:
        """The ways in which tokens of this model can be taken away."""
        has_mask = getattr(self.analyzer.tokenizer, "mask_token_id", None) is not None
        return ("mask", "drop", "mean") if has_mask else ("drop", "mean")

    def without(self, removed: Sequence[Removed], removal: Removal) -> np.ndarray:
        """The probability without each of these sets of tokens; NaN where nothing is left to read."""
        keys = [self._key(each, removal) for each in removed]
        asked = {key: each for key, each in zip(keys, removed, strict=True) if key not in self._kept}
        if asked:
            self.calls += len(asked)
            ask = self._of_states if removal == "mean" else self._of_sequences
            self._kept.update(zip(asked, ask(list(asked.values()), removal), strict=True))
        return np.array([self._kept[key] for key in keys])

    def _key(self, removed: Removed, removal: Removal) -> tuple[object, ...]:
        """What the model reads: token ids and the row of the answer, or the places of mean states."""
        if removal == "mean":
            return ("mean", *sorted(removed))
        sequence, rows = self._changed(removed, removal)
        return (*sequence.features["input_ids"], tuple(rows))

    def _changed(self, removed: Removed, removal: Removal) -> tuple[TokenSequence, list[int]]:
        case = self.case
        return without(self.analyzer, case.sequence, case.question, self.values.rows, removed, removal)

    def _of_sequences(self, removed: Sequence[Removed], removal: Removal) -> list[float]:
        changed = [self._changed(each, removal) for each in removed]
        readable = [place for place, (sequence, rows) in enumerate(changed) if len(sequence) and rows[0] != NO_ROW]
        answers = [float("nan")] * len(removed)
        if readable:
            sequences, rows = zip(*(changed[place] for place in readable), strict=True)
            values = self.values.of_sequences(sequences, rows, probabilities=True)[:, 0].tolist()
            for place, value in zip(readable, values, strict=True):
                answers[place] = float(value)
        return answers

    def _of_states(self, removed: Sequence[Removed], removal: Removal) -> list[float]:
        (states,) = self.values.entering
        mean, answers = states.mean(1)[0], list[float]()
        at_once = max(1, _TOKENS_AT_ONCE // states.shape[1])
        with torch.no_grad():
            for start in range(0, len(removed), at_once):
                some = removed[start : start + at_once]
                changed = states.repeat(len(some), 1, 1)
                for row, places in enumerate(some):
                    changed[row, sorted(places)] = mean
                answers += self.values.of_states(changed, probabilities=True)[:, 0].tolist()
        return answers
