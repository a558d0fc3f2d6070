"""The experiments as they are listed: name, paper, what they show, options with defaults.

A declaration is all that a command line needs, so this module imports nothing heavy. The class of the same name in `module`
extends it by the computation. A new experiment is a module of this package and a class here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from normscope.methods.registry import Declaration

if TYPE_CHECKING:
    from normscope.options import Correlation, NormaliseAxis


class DeclaredExperiment(Declaration):
    """What is listed of an experiment. Its options are its fields."""

    paper: ClassVar[str]
    shows: ClassVar[str]
    summary: ClassVar[str]
    reads_corpus: ClassVar[bool] = True
    """Whether it needs a corpus; otherwise it is computed from the model alone."""
    rank_options: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """The options with which its tables depend on the ranks of map values alone, so that maps may be approximate."""


@dataclass(frozen=True)
class GroupAmplification(DeclaredExperiment):
    """Options: `unit`, whether a pair is one of types, averaged over its occurrences, or each occurrence counts by itself;
    `axis` of normalisation, `distance` signed or absolute, `resamples`, `sides`, `level`, `correction`."""

    unit: str = "type"
    axis: NormaliseAxis = "column"
    distance: str = "signed"
    resamples: int = 10_000
    sides: str = "two"
    level: float = 0.05
    correction: str = "none"

    paper = "Kobayashi et al. 2024"


@dataclass(frozen=True)
class MethodTrial(DeclaredExperiment):
    """A trial of methods: of those named, or of all."""

    methods: tuple[str, ...] = ("all",)


class Dispersion(DeclaredExperiment):
    name = "dispersion"
    module = "normscope.experiments.dispersion"
    paper = "Kobayashi et al. 2020"
    shows = "dispersion of ||x|| and ||f(x)||"
    summary = "how much the norms of input vectors and of each head's transformed vectors vary"


class Categories(DeclaredExperiment):
    name = "categories"
    module = "normscope.experiments.categories"
    paper = "Kobayashi et al. 2020"
    shows = "attention to [CLS], [SEP], punctuation and other tokens"
    summary = "what special tokens and punctuation get by attention weights and by norms"


class WeightVersusNorm(DeclaredExperiment):
    name = "weight-vs-norm"
    module = "normscope.experiments.weight_norm"
    paper = "Kobayashi et al. 2020"
    shows = "relation of attention weight and ||f(x)||"
    summary = "attention weight against the norm of the vector it weighs, over all layers, heads, queries and keys"


@dataclass(frozen=True)
class Sinks(DeclaredExperiment):
    """Options: `massive`, how many times the sequence's median the norm of a massive state is."""

    massive: float = 5.0

    name = "sinks"
    module = "normscope.experiments.sinks"
    paper = "Xiao et al. 2024; Sun et al. 2024; norms after Kobayashi et al. 2020"
    shows = "attention sinks and massive states, compared with norms"
    summary = "what the first token, separators and massive states get by weights and by norms"


class Frequency(DeclaredExperiment):
    name = "frequency"
    module = "normscope.experiments.frequency"
    paper = "Kobayashi et al. 2020"
    shows = "frequency rank against attention weight and ||f(x)||"
    summary = "how attention weights and ||f(x)|| go with token frequency"


@dataclass(frozen=True)
class Alignment(DeclaredExperiment):
    """Options: `setting`, AWO, AWI or both; `eos`, whether the end of the sentence takes part (`argmax`, as in the authors'
    code), does not (`exclude`), or both; `links`, whether the table of links is that of the best layer, of all layers or
    none; `examples`, for how many of the first pairs soft, hard and gold alignments are drawn."""

    setting: str = "both"
    eos: str = "both"
    links: str = "best"
    examples: int = 3

    name = "alignment"
    module = "normscope.experiments.alignment"
    paper = "Kobayashi et al. 2020"
    shows = "alignment error rates of weights and norms"
    summary = "word alignment from cross-attention: error rate by layer and head (needs pairs with gold links)"


@dataclass(frozen=True)
class MixingRatio(DeclaredExperiment):
    """Option `masked`: whether tokens are masked first, as in the paper."""

    masked: bool = True

    name = "mixing-ratio"
    module = "normscope.experiments.mixing"
    paper = "Kobayashi et al. 2021"
    shows = "Tables 2, 5, 6, 7, Figure 3"
    summary = "share of a state that comes from other tokens: mean, maximum, minimum; by layer and kind of token"


@dataclass(frozen=True)
class MixingFrequency(DeclaredExperiment):
    """Option `masked`: whether tokens are masked first (the paper does not)."""

    masked: bool = False

    name = "mixing-frequency"
    module = "normscope.experiments.frequency"
    paper = "Kobayashi et al. 2021"
    shows = "Tables 3, 9, 10, 11, Figure 4"
    summary = "how the mixing ratio of a token goes with its frequency"


@dataclass(frozen=True)
class ExpansionRate(DeclaredExperiment):
    """Option `form`: `affine`, as in the paper, `[x 1] -> [x W_V W_O + b  1]` with `b = b_V W_O + b_O`; `linear`, the linear
    map alone, divided by sqrt(d); `authors`, as their code has it: the affine map with b_O in a column instead of a row."""

    form: str = "affine"

    name = "expansion-rate"
    module = "normscope.experiments.expansion"
    paper = "Kobayashi et al. 2021"
    shows = "expansion rate of f"
    reads_corpus = False
    summary = "how much the attention's value and output projections stretch vectors (from the weights alone)"


@dataclass(frozen=True)
class ScopeSimilarity(DeclaredExperiment):
    """Options: `correlations`, those of pearson and spearman to compute; `normalisations`, those of none, row and column to
    scale maps by first; `masked`, whether tokens are masked first."""

    correlations: tuple[Correlation, ...] = ("pearson",)
    normalisations: tuple[NormaliseAxis, ...] = ("none",)
    masked: bool = True

    name = "scope-similarity"
    module = "normscope.experiments.scope_similarity"
    paper = "Kobayashi et al. 2024"
    shows = "Table 1, Figures 5, 9, 12"
    summary = "correlation of the maps at two scopes: adjacent, against the FF input, all pairs"
    rank_options: ClassVar[Mapping[str, tuple[str, ...]]] = {"correlations": ("spearman",)}


@dataclass(frozen=True)
class FeedForwardAmplification(DeclaredExperiment):
    """Options: `axis`, how maps are scaled; `top`, pairs per layer; `minimum_count`, how often a pair has to occur;
    `same_type`, whether pairs of a type with itself are listed; `special_tokens`, whether they take part; `kinds`, those of
    ff, group and ln to list."""

    axis: NormaliseAxis = "column"
    top: int = 10
    minimum_count: int = 2
    same_type: bool = True
    special_tokens: bool = True
    kinds: tuple[str, ...] = ("ff", "group", "ln")

    name = "ff-amplification"
    module = "normscope.experiments.amplification"
    paper = "Kobayashi et al. 2024"
    shows = "Tables 2, 3"
    summary = "the pairs of subword types that the feed-forward (and the group around it) brings together most"


class WordSplit(GroupAmplification):
    name = "word-split"
    module = "normscope.experiments.groups"
    shows = "Figures 7a, 8"
    summary = "whether the feed-forward brings subwords of one word together, against other pairs of the same distances"


class Entities(GroupAmplification):
    name = "entities"
    module = "normscope.experiments.groups"
    shows = "Figure 7b"
    summary = "whether the feed-forward brings tokens of one named entity together (needs a CoNLL corpus)"


@dataclass(frozen=True)
class FeedForwardNormsExperiment(DeclaredExperiment):
    """Option `masked`: whether tokens are masked first."""

    masked: bool = True

    name = "ff-norms"
    module = "normscope.experiments.ff_norms"
    paper = "Kobayashi et al. 2024"
    shows = "Figure 10"
    summary = "norm of the feed-forward's output compared with the norm of what bypasses it"


@dataclass(frozen=True)
class OutlierDimensions(DeclaredExperiment):
    """Options: `fraction`, the share of dimensions with the smallest gamma to remove; `correlations` and `normalisations`,
    how maps are compared, as in scope-similarity; `masked`."""

    fraction: float = 0.01
    correlations: tuple[Correlation, ...] = ("pearson",)
    normalisations: tuple[NormaliseAxis, ...] = ("none",)
    masked: bool = True

    name = "outlier-dimensions"
    module = "normscope.experiments.outlier_dimensions"
    paper = "Kobayashi et al. 2024"
    shows = "Figure 11, removal"
    summary = "dimensions of the feed-forward against the gamma of the norm after it, and the map without the outliers"


@dataclass(frozen=True)
class EvidenceExperiment(MethodTrial):
    """Options: `methods`, names separated by commas, or all; `order`, whether tokens are ranked by their shares
    (`signed`) or by their sizes (`absolute`); `reference`, the method (else the first) that others are compared with
    row by row; `special`, whether special tokens take part; `objectives`, what the logit of the good word is compared
    with: `contrastive` (the bad word), `plain` (nothing), `centred`, `alternatives` or `runner-up`; `without_sinks`,
    whether it is also measured without attention sinks, which leaves out rows whose evidence is nothing else."""

    order: str = "signed"
    reference: str = "pull-back"
    special: bool = False
    objectives: tuple[str, ...] = ("contrastive", "plain")
    without_sinks: bool = False

    name = "evidence"
    module = "normscope.experiments.faithfulness.evidence"
    paper = "Yin & Neubig 2022; Ferrando et al. 2023"
    shows = "rank of the evidence by method"
    summary = "does a method find the words that decide between two continuations? (--format evidence)"


@dataclass(frozen=True)
class Deletion(MethodTrial):
    """Options: `methods`, names separated by commas, or all; `removals`, those of mask, drop and mean to try; `steps`,
    the most steps of a curve; `beam`, the width of the search for the best and worst order (0: none), for texts whose
    tokens are taken away one by one; `reference`, the method (else the first) that others are compared with text by
    text; `objective`, what of the predicted label methods explain: its `logit`, or what `explain` compares it with
    (`alternatives`, `centred`, `contrast`)."""

    removals: tuple[str, ...] = ("mask", "drop", "mean")
    steps: int = 20
    beam: int = 3
    reference: str = "pull-back"
    objective: str = "logit"

    name = "deletion"
    module = "normscope.experiments.faithfulness.deletion"
    paper = "DeYoung et al. 2020; Edin et al. 2025; Blücher et al. 2024"
    shows = "deletion curves by method"
    summary = "does a prediction fall when the tokens that a method calls important are taken away?"


@dataclass(frozen=True)
class Agreement(MethodTrial):
    """Options: `methods`, names separated by commas, or all; `level`, whether attributions of the prediction are compared,
    or the maps of layers, or both; `own`, whether a token's share in its own state takes part in the maps' rankings."""

    level: str = "both"
    own: bool = False

    name = "agreement"
    module = "normscope.experiments.faithfulness.agreement"
    paper = "none"
    shows = "rank correlation of any two methods"
    summary = "how far do methods rank the same tokens first, for a prediction and in every layer?"


@dataclass(frozen=True)
class Shapley(DeclaredExperiment):
    """Options: `exact`, up to how many tokens all coalitions are counted; `pairs`, how many random orders (each with its
    reverse) are sampled beyond; `queries`, how many queries of a text are looked at; `bias`, whether what is of no token
    is always `present`, one more `player`, or both in turn; `cells`, how many of the largest disagreements are listed."""

    exact: int = 10
    pairs: int = 32
    queries: int = 4
    bias: str = "both"
    cells: int = 20

    name = "shapley"
    module = "normscope.experiments.faithfulness.shapley"
    paper = "left open by Kobayashi et al. 2024"
    shows = "integrated gradients against Shapley values"
    summary = "do the feed-forward maps by integrated gradients agree with Shapley values?"


@dataclass(frozen=True)
class Redundancy(DeclaredExperiment):
    """Options: `heads`, whether single heads are skipped too; `correlation` (pearson or spearman) and `normalisation` (none,
    row or column), how maps are compared, as in scope-similarity."""

    heads: bool = True
    correlation: Correlation = "pearson"
    normalisation: NormaliseAxis = "none"

    name = "redundancy"
    module = "normscope.experiments.faithfulness.redundancy"
    paper = "1 - r after Kobayashi et al. 2024"
    shows = "what components change and what the model loses without them"
    summary = "how much each component changes the map, against the loss when it is skipped"


@dataclass(frozen=True)
class TextSimilarity(DeclaredExperiment):
    """Options: `pooling`, as in `Analyzer.embed`, for models without a description of their embedding; `removal`, whether
    texts without each of their words are embedded too; `gradients`, whether integrated gradients are computed beside it."""

    pooling: str = ""
    removal: bool = True
    gradients: bool = False

    name = "similarity"
    module = "normscope.experiments.faithfulness.text_similarity"
    paper = "none"
    shows = "where the similarity of two texts lies"
    summary = "where the similarity of two texts lies, and what its table finds (--format text-pairs)"


@dataclass(frozen=True)
class Answers(MethodTrial):
    """Options: `methods`, names separated by commas, or all; `objectives`, what the pull-back compares the answer's
    logits with, the first of which the other methods explain too; `answer`, the known one (`given`) or the model's own
    (`own`), of which the part that says the known one is explained; `removals`, up to how many sentences each is taken
    out by itself (0: none is, and no falls are measured); `reference`, the method (else the first) that others are
    compared with row by row."""

    methods: tuple[str, ...] = ("pull-back", "gradient-norm", "gradient-x-input", "attention-rollout", "random")
    objectives: tuple[str, ...] = ("alternatives", "contrast", "centred", "logit")
    answer: str = "given"
    removals: int = 40
    reference: str = "pull-back alternatives"

    name = "answers"
    module = "normscope.experiments.faithfulness.answers"
    paper = "Cohen-Wang et al. 2024"
    shows = "rank of the evidence, and what the answer loses without it, by method"
    summary = "does a method find the sentence that an answer is from? (--format answers)"
