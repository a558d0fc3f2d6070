"""The methods as they are listed: name, options, what a number means, what it costs, where it comes from.

A declaration is all that a command line needs, so this module imports nothing heavy. The class of the same name in `module`
extends it by the computation. A new method is a module of this package and a class here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from normscope.methods.base import GivesAttribution, GivesLayerMaps

if TYPE_CHECKING:
    from normscope.options import BiasShare, Removal


class Gradient(GivesAttribution):
    """What the methods that read one gradient cost."""

    cost = "a forward pass, and a backward pass for each value"
    operations = "6 L n (4 d^2 + 2 d F + n d)"
    passes = 3


@dataclass(frozen=True)
class PullBack(GivesAttribution):
    """`weights`: what becomes of attention weights, in place of what the call says."""

    weights: str = ""

    name = "pull-back"
    module = "normscope.methods.pull_back"
    summary = (
        "what each token contributes to the logit, exactly, with weights, deviations and slopes fixed; adds up to it"
    )
    quantity = "logit"
    signed = True
    follows = True
    cost = "a forward and a backward pass"
    operations = "4 L n (4 d^2 + 2 d F + n d)"
    paper = "this package; with separate biases, equals DecompX (Modarressi et al. 2023) contracted with the output row"


@dataclass(frozen=True)
class DecompX(GivesAttribution):
    """`bias`: how biases are shared out over the tokens, by `"absdot"`, `"norm"` or `"equal"`, or kept `"apart"`."""

    bias: BiasShare = "absdot"

    name = "decompx"
    module = "normscope.methods.propagated"
    summary = "what each token contributes to the logit, with all biases shared out over the tokens; adds up"
    quantity = "logit"
    signed = True
    cost = "about n forward passes in one batch; memory of n x n vectors"
    operations = "2 L n^2 (4 d^2 + 2 d F + n d)"
    paper = "Modarressi et al. 2023"
    passes_per_token = True


class AltiLogit(GivesAttribution):
    name = "alti-logit"
    module = "normscope.methods.alti"
    summary = "what each layer's attention adds to the logit directly, followed to the tokens by ALTI; no feed-forwards"
    quantity = "update of the logit by attention"
    signed = True
    cost = "that of ALTI's maps, and a pass that keeps all traces"
    operations = "2 L n^2 H d"
    paper = "Ferrando et al. 2023"
    passes = 3


class GradientNorm(Gradient):
    name = "gradient-norm"
    module = "normscope.methods.gradients"
    summary = "the norm of the logit's gradient at the token's embedding: how sensitive the logit is to it"
    quantity = "gradient norm"
    paper = "Simonyan et al. 2014; Li et al. 2016"


class GradientTimesInput(Gradient):
    name = "gradient-x-input"
    module = "normscope.methods.gradients"
    summary = "the logit's gradient times the token's embedding: what the token puts in, to first order"
    quantity = "gradient x input"
    signed = True
    paper = "Shrikumar et al. 2016; Denil et al. 2014"


@dataclass(frozen=True)
class IntegratedGradients(GivesAttribution):
    """`steps`: how many points of the path gradients are taken at."""

    steps: int = 50

    name = "integrated-gradients"
    module = "normscope.methods.gradients"
    summary = "the gradient integrated from zero embeddings to the token's own; adds up with many steps"
    quantity = "integrated gradient"
    signed = True
    cost = "a forward and a backward pass for each step (50) and value"
    operations = "6 steps L n (4 d^2 + 2 d F + n d)"
    paper = "Sundararajan et al. 2017"


@dataclass(frozen=True)
class LeaveOneOut(GivesAttribution):
    """`removal`: how a token is taken out, `"mask"`, `"drop"`, `"mean"`, or `"auto"`, the first that the model can."""

    removal: Removal = "auto"

    name = "leave-one-out"
    module = "normscope.methods.removal"
    summary = "how much the logit falls when the token is masked, dropped or replaced by the mean embedding"
    quantity = "change of the logit"
    signed = True
    cost = "a forward pass for each token"
    operations = "2 L n^2 (4 d^2 + 2 d F + n d)"
    paper = "Li et al. 2016"
    passes_per_token = True


@dataclass(frozen=True)
class Random(GivesAttribution):
    """`seed`: other seeds give other numbers."""

    seed: int = 0

    name = "random"
    module = "normscope.methods.prediction"
    summary = "uniform random numbers, the same for the same input and seed: what chance looks like"
    quantity = "random number"
    cost = "a forward pass"
    operations = "n"
    paper = "none"
    passes = 1


class Norms(GivesLayerMaps):
    name = "norms"
    module = "normscope.methods.norms"
    summary = "the norm of the vector that a token contributes to a state, at every scope of a layer"
    quantity = "norm"
    cost = "one product of n x n vectors with the feed-forward's second matrix in every layer"
    operations = "2 L n^2 F d"
    paper = "Kobayashi et al. 2020, 2021, 2024"
    passes_per_token = True


class ProjectionsMethod(GivesLayerMaps):
    name = "projections"
    module = "normscope.methods.projections"
    summary = "the share of a token in a state: signed, adding up to 1 with the bias, per head at every scope"
    quantity = "projection"
    signed = True
    cost = "about a backward pass for each scope; no product of n x n vectors"
    operations = "4 L S n F d for S scopes after the feed-forward"
    paper = "normscope"


@dataclass(frozen=True)
class Propagated(GivesLayerMaps):
    """The parts of the inputs carried through all layers.

    `bias` is kept `"apart"`, or shared out over the tokens by `"absdot"`, `"norm"` or `"equal"`, as DecompX does. `first` is
    the layer whose inputs are followed. `max_memory` (bytes) limits the vectors that are carried at once.
    """

    bias: BiasShare = "apart"
    first: int = 1
    max_memory: int | None = None

    name = "propagated"
    module = "normscope.methods.propagated"
    summary = "the norm of the vector that an input token contributes to a state through all layers so far"
    quantity = "norm"
    cost = "about n forward passes of n tokens; half of that for causal models"
    operations = "4 L n^2 (F d + d^2) (gated: 6 F d)"
    paper = "Modarressi et al. 2023 (DecompX)"
    passes_per_token = True


class AttentionRollout(GivesLayerMaps):
    name = "attention-rollout"
    module = "normscope.methods.rollout"
    summary = "half attention weights (mean over heads), half identity, multiplied over layers by `rollout`"
    quantity = "weight"
    cost = "a forward pass that shows its attention weights"
    operations = "2 L n^3"
    paper = "Abnar & Zuidema 2020"


@dataclass(frozen=True)
class GlobEnc(GivesLayerMaps):
    """`normalise`: whether a rollout divides rows by their sums first. The authors multiply the norms as they are."""

    normalise: bool = False

    name = "globenc"
    module = "normscope.methods.globenc"
    summary = "norms of the parts through a whole layer, with the feed-forward's output left out"
    quantity = "norm"
    cost = "less than a forward pass for short texts: the parts stay factored"
    operations = "2 L (n^2 H^2 + n H^2 d)"
    paper = "Modarressi et al. 2022"


class Alti(GivesLayerMaps):
    name = "alti"
    module = "normscope.methods.alti"
    summary = "how much closer (L1) a part brings the state after attention and residual, as a share of the row"
    quantity = "contribution"
    cost = "every part as a vector, tile by tile"
    operations = "2 L n^2 H d"
    paper = "Ferrando et al. 2022"


class ValueZeroingMethod(GivesLayerMaps):
    name = "value-zeroing"
    module = "normscope.methods.value_zeroing"
    summary = "how far a layer's output turns (cosine) without a token's value vector, as a share of the row"
    quantity = "cosine distance"
    cost = "the feed-forward once for every pair of tokens: about n forward passes"
    operations = "4 L n^2 F d (gated: 6)"
    paper = "Mohebbi et al. 2023"
    passes_per_token = True


class ContributionWeightsMethod(GivesLayerMaps):
    name = "contribution-weights"
    module = "normscope.methods.contribution_weights"
    summary = "attention weight x size of the transformed value x cosine with the attention's output; signed"
    quantity = "aligned norm"
    signed = True
    cost = "less than a forward pass"
    operations = "2 L (n^2 d + n d^2)"
    paper = "the projection of Kobayashi et al. 2020's vectors on their sum"
