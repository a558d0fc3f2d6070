"""Methods that attribute a prediction to the input tokens: what they have in common, and chance, to compare with.

Each says what a share means and what it costs. How models are run and traces pulled back is `explain`'s concern.
"""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import xarray as xr

from normscope.errors import CompletenessError
from normscope.explain.model_values import Values
from normscope.explain.task import Asked, Attributed, predictions_of
from normscope.methods import declared
from normscope.methods.base import GivesAttribution, Method
from normscope.results.explanation_schema import attribution_tree

STATES_AT_ONCE = 2048
"""How many tokens' states go through the model at once."""


class Attribution(GivesAttribution):
    """A method of `Analyzer.explain`, and how it is computed."""

    through_slopes: ClassVar[bool] = False
    """Whether it goes through feed-forwards by the slopes of integrated gradients, which start at a baseline."""

    @abstractmethod
    def explain(self, asked: Asked) -> xr.DataTree:
        """The datasets of the explanation."""

    def explain_all(self, asked: Sequence[Asked]) -> list[xr.DataTree]:
        """The same of several inputs, each by itself."""
        return [self.explain(each) for each in asked]


class SharesOnly(Attribution):
    """A method that gives the tokens' shares and follows nothing through the layers."""

    leaves_out: ClassVar[bool] = False
    """Whether some tokens may have no share, which is then missing (NaN)."""

    def explain(self, asked: Asked) -> xr.DataTree:
        attributed = self.attribute(asked)
        self._refuse_what_is_no_number(attributed)
        predictions = predictions_of(asked.model, asked.question, attributed.logits, attributed.answers)
        return attribution_tree(attributed, asked.sequence, self.quantity, facts_of(self, asked), predictions)

    @abstractmethod
    def attribute(self, asked: Asked) -> Attributed:
        """The shares of the tokens in each value."""

    def _refuse_what_is_no_number(self, attributed: Attributed) -> None:
        results = {"value": attributed.values, "bias": attributed.bias, "error": attributed.errors}
        shares = {"share of a token": attributed.shares, "share of a token of the encoder": attributed.encoder}
        for name, numbers in (results | shares).items():
            if numbers is None:
                continue
            missing = numbers.isnan() if self.leaves_out and name in shares else torch.zeros_like(numbers).bool()
            wrong = numbers[~(numbers.isfinite() | missing)]
            if len(wrong):
                raise CompletenessError(
                    f"By the method {self.facts['method']!r} a {name} is {float(wrong[0])}, so there is no explanation. "
                    f"The model's weights or states are infinite, or too large for {attributed.logits.dtype}."
                )


def facts_of(method: Method, asked: Asked) -> dict[str, str | int | float]:
    """What an explanation says about how it was made. `causal`: a value is read off a token that knows none after it."""
    causal = asked.model.family.stack.causal and asked.question.reads_tokens
    how = {"signed": int(method.signed), "causal": int(causal), "ff_baseline": asked.request.ff_baseline}
    weights = {"weights": asked.request.weights} if method.follows else {}
    return {**asked.model.facts, **method.facts, **how, **weights, "objective": asked.question.objective}


@dataclass(frozen=True)
class Random(declared.Random, SharesOnly):
    """Chance, to compare with."""

    def attribute(self, asked: Asked) -> Attributed:
        values = Values(asked.model, asked.sequence, asked.question)
        text = repr((asked.sequence.tokens, asked.sequence.target and asked.sequence.target.tokens, self.seed))
        generator = torch.Generator().manual_seed(zlib.crc32(text.encode()))
        main, *encoder = (
            torch.rand(len(values.answers), each.shape[1], generator=generator, device=generator.device)
            for each in values.entering
        )
        return Attributed(values.answers, values.logits, values.own, main, encoder[0] if encoder else None)
