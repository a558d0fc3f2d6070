"""Methods that attribute a prediction to the input tokens: the exact pull-back, and those that it is compared with.

Each says what a share means and what it costs. How models are run and traces pulled back is `explain`'s concern.
"""

from __future__ import annotations

import zlib
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from normscope.errors import CompletenessError, InputError, listing
from normscope.explain.model_values import Values
from normscope.explain.pulling import pull_back
from normscope.explain.removal import NO_ROW, Removal, removal_of, without_each
from normscope.explain.task import Asked, Attributed, predictions_of
from normscope.methods.base import Gives, Method
from normscope.results.explanation_schema import attribution_tree, explanation_tree

_STATES_AT_ONCE = 2048
"""How many tokens' states go through the model at once."""


class Attribution(Method):
    """A method of `Analyzer.explain`."""

    gives: ClassVar[Gives] = "attribution"
    follows: ClassVar[bool] = False
    """Whether it follows what flows through the layers: edges, heads, feed-forwards."""
    through_slopes: ClassVar[bool] = False
    """Whether it goes through feed-forwards by the slopes of integrated gradients, which start at a baseline."""

    @abstractmethod
    def explain(self, asked: Asked) -> xr.DataTree:
        """The datasets of the explanation."""


@dataclass(frozen=True)
class PullBack(Attribution):
    """The exact attribution of a logit through all layers."""

    name = "pull-back"
    summary = "what each token puts into the logit, exactly, with weights, deviations and slopes fixed; adds up to it"
    quantity = "logit"
    signed = True
    follows = True
    through_slopes = True
    cost = "a forward and a backward pass"
    operations = "4 L n (4 d^2 + 2 d F + n d)"
    paper = "this package; biases apart, equals DecompX (Modarressi et al. 2023) contracted with the output row"

    def explain(self, asked: Asked) -> xr.DataTree:
        model, sequence, question = asked.model, asked.sequence, asked.question
        pulled = pull_back(model, sequence, question, asked.request)
        predictions = predictions_of(model, question, pulled.logits, pulled.answers)
        return explanation_tree(pulled, sequence, facts_of(self, asked), predictions)


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
    return {**asked.model.facts, **method.facts, **how, "objective": asked.question.objective}


# ---- gradients ---------------------------------------------------------------------------------------------------------


class _Gradient(SharesOnly):
    """A method that reads the gradient of each value at the states that enter the first block."""

    cost = "a forward pass, and a backward pass for each value"
    operations = "6 L n (4 d^2 + 2 d F + n d)"
    passes = 3

    def attribute(self, asked: Asked) -> Attributed:
        values = Values(asked.model, asked.sequence, asked.question)
        states = tuple(each.detach().requires_grad_() for each in values.entering)
        with torch.enable_grad():
            outputs = values.of_states(*states)[0]
        shares = [
            [self.share(gradient[0], state[0]) for gradient, state in zip(gradients, states, strict=True)]
            for gradients in (torch.autograd.grad(output, states, retain_graph=True) for output in outputs)
        ]
        main, *encoder = (torch.stack(list(each)).detach() for each in zip(*shares, strict=True))
        return Attributed(values.answers, values.logits, values.own, main, encoder[0] if encoder else None)

    @abstractmethod
    def share(self, gradient: Float[Tensor, "token d"], state: Float[Tensor, "token d"]) -> Float[Tensor, " token"]:
        """A token's share, from its gradient and its state."""


@dataclass(frozen=True)
class GradientNorm(_Gradient):
    """How sensitive a value is to a token."""

    name = "gradient-norm"
    summary = "the norm of the logit's gradient at the token's embedding: how sensitive the logit is to it"
    quantity = "gradient norm"
    paper = "Simonyan et al. 2014; Li et al. 2016"

    def share(self, gradient: Float[Tensor, "token d"], state: Float[Tensor, "token d"]) -> Float[Tensor, " token"]:
        return gradient.norm(dim=-1)


@dataclass(frozen=True)
class GradientTimesInput(_Gradient):
    """A linear guess at what a token puts into a value."""

    name = "gradient-x-input"
    summary = "the logit's gradient times the token's embedding: what the token puts in, to first order"
    quantity = "gradient x input"
    signed = True
    paper = "Shrikumar et al. 2016; Denil et al. 2014"

    def share(self, gradient: Float[Tensor, "token d"], state: Float[Tensor, "token d"]) -> Float[Tensor, " token"]:
        return (gradient * state).sum(-1)


@dataclass(frozen=True)
class IntegratedGradients(SharesOnly):
    """Gradients along the straight path from zero embeddings, by captum."""

    steps: int = 50

    name = "integrated-gradients"
    summary = "the gradient integrated from zero embeddings to the token's own; adds up with many steps"
    quantity = "integrated gradient"
    signed = True
    cost = "a forward and a backward pass for each step (50) and value"
    operations = "6 steps L n (4 d^2 + 2 d F + n d)"
    paper = "Sundararajan et al. 2017"

    def calls(self, length: int) -> int:
        return 3 * self.steps

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"Integrated gradients take at least one step, not {self.steps}.")

    def attribute(self, asked: Asked) -> Attributed:
        integrated = _captum()
        values = Values(asked.model, asked.sequence, asked.question)
        zero = tuple(torch.zeros_like(each) for each in values.entering)
        at_once = max(1, _STATES_AT_ONCE // max(each.shape[1] for each in zero))
        found = [
            integrated(values.of_states).attribute(
                values.entering, zero, target=target, n_steps=self.steps, internal_batch_size=at_once
            )
            for target in range(len(values.answers))
        ]
        main, *encoder = (torch.cat([each[side].sum(-1) for each in found]).detach() for side in range(len(zero)))
        with torch.no_grad():
            bias, own = values.of_states(*zero)[0], values.own
        every = torch.cat([main, *encoder], dim=-1)
        size = torch.maximum(every.abs().sum(-1) + bias.abs(), own.abs())
        errors = (every.sum(-1) + bias - own).abs() / size
        return Attributed(values.answers, values.logits, own, main, encoder[0] if encoder else None, bias, errors)


def _captum() -> Any:
    try:
        from captum.attr import IntegratedGradients as Integrated  # noqa: PLC0415  (an extra, and slow to import)
    except ImportError as error:
        raise InputError(
            "The method 'integrated-gradients' needs captum, which is not installed: pip install 'normscope[captum]'."
        ) from error
    return Integrated


# ---- other inputs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LeaveOneOut(SharesOnly):
    """What a value loses without a token."""

    removal: Removal = "auto"

    name = "leave-one-out"
    leaves_out = True
    summary = "how much the logit falls when the token is masked, dropped or replaced by the mean embedding"
    quantity = "change of the logit"
    signed = True
    cost = "a forward pass for each token"
    operations = "2 L n^2 (4 d^2 + 2 d F + n d)"
    paper = "Li et al. 2016"
    passes_per_token = True

    def __post_init__(self) -> None:
        if self.removal not in get_args(Removal):
            raise InputError(f"A token is removed by {listing(get_args(Removal))}, not by {self.removal!r}.")

    def attribute(self, asked: Asked) -> Attributed:
        model, sequence, question = asked.model, asked.sequence, asked.question
        removal = removal_of(model, sequence, self.removal)
        values = Values(model, sequence, question)
        shares = _without_states(values) if removal == "mean" else _without_tokens(asked, values, removal)
        length = values.entering[0].shape[1]
        encoder = shares[:, length:] if len(values.entering) > 1 else None
        return Attributed(values.answers, values.logits, values.own, shares[:, :length], encoder)


def _without_tokens(asked: Asked, values: Values, removal: Removal) -> Float[Tensor, "target token"]:
    """What every value loses without each token; missing where it does not exist without it."""
    withouts = without_each(asked.model, asked.sequence, asked.question, values.rows, removal)
    count = sum(each.shape[1] for each in values.entering)
    shares = values.own.new_full((len(values.answers), count), torch.nan)
    if not withouts:
        return shares
    others = values.of_sequences([each.sequence for each in withouts], [each.rows for each in withouts])
    for without, other in zip(withouts, others, strict=True):
        lost = torch.tensor([row == NO_ROW for row in without.rows], device=other.device)
        shares[:, without.place] = _loss(values, other).masked_fill(lost, torch.nan)
    return shares


def _without_states(values: Values) -> Float[Tensor, "target token"]:
    """What every value loses when the mean of the states that enter the first block takes the place of one of them."""
    pieces: list[Tensor] = []
    with torch.no_grad():
        for side, states in enumerate(values.entering):
            length = states.shape[1]
            at_once = max(1, _STATES_AT_ONCE // max(each.shape[1] for each in values.entering))
            for places in torch.arange(length, device=states.device).split(at_once):
                changed = [each.repeat(len(places), 1, 1) for each in values.entering]
                changed[side][torch.arange(len(places), device=places.device), places] = states.mean(1)
                pieces.append(_loss(values, values.of_states(*changed)))
    return torch.cat(pieces).T


def _loss(values: Values, other: Float[Tensor, "*input target"]) -> Float[Tensor, "*input target"]:
    """How much the values lose. What is no number is infinite here: missing is only what does not exist."""
    return (values.own - other).nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)


@dataclass(frozen=True)
class Random(SharesOnly):
    """Chance, to compare with."""

    seed: int = 0

    name = "random"
    summary = "uniform random numbers, the same for the same input and seed: what chance looks like"
    quantity = "random number"
    cost = "a forward pass"
    operations = "n"
    paper = "none"
    passes = 1

    def attribute(self, asked: Asked) -> Attributed:
        values = Values(asked.model, asked.sequence, asked.question)
        text = repr((asked.sequence.tokens, asked.sequence.target and asked.sequence.target.tokens, self.seed))
        generator = torch.Generator().manual_seed(zlib.crc32(text.encode()))
        main, *encoder = (
            torch.rand(len(values.answers), each.shape[1], generator=generator, device=generator.device)
            for each in values.entering
        )
        return Attributed(values.answers, values.logits, values.own, main, encoder[0] if encoder else None)
