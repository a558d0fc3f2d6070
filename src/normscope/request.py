"""Requests: the options of the public calls, each declared once for Python, the command line, the estimate and corpus runs.

The options of a call are the fields of a frozen dataclass, such as `AnalysisRequest`. A field that is also an option of a
command is annotated with `Documentation`. Next to each dataclass is the `TypedDict` that types the keywords of the call. A
new option is one field there, and one use. Nothing here imports torch, so that a command line starts quickly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, TypeVar

from normscope.options import (
    ApproximationName,
    Arithmetic,
    BaselineOptions,
    Conventions,
    Documentation,
    FeedForwardBaseline,
    Gates,
    Masking,
    Measure,
    Objective,
    Pooling,
    Products,
    StackName,
    ValueBias,
    Weights,
)

if TYPE_CHECKING:
    import numpy as np
    import torch

    from normscope.explain.question import LabelName
    from normscope.inputs import DecoderText
    from normscope.inputs.prompt import Context
    from normscope.methods.approximate import Approximate
    from normscope.methods.base import Method
    from normscope.methods.layer import LayerMethod

    Dtype = torch.dtype
    Vector = torch.Tensor | np.ndarray | Sequence[float]
else:  # importing torch takes seconds, and a command line that only shows its options should not wait for it
    LabelName = DecoderText = Context = Approximate = LayerMethod = Method = Dtype = Vector = Any

Text = str | tuple[str, str]
"""One text, or a pair of texts."""

Messages = list[dict[str, str]]
"""The turns of a chat, each with a `role` and a `content`."""

OnProgress = Callable[[int, int], None]
"""Called with the number of layers that are done and the number of all layers; may raise, to cancel."""

Queries = int | str | Sequence[int | str]
"""Rows of a map: positions, negative from the end, or tokens by name."""

_Said = TypeVar("_Said")
Each = Sequence[_Said | None] | None
"""Nothing, or for a list of texts something (or nothing) for each of them."""

Clock = Callable[[], float]
"""Returns the time in seconds."""

_HOW = "How"
"""The heading of options that say how something is computed."""

_Truncate = Annotated[bool, Documentation("Cut a text that is longer than the model takes, instead of refusing it.")]


class BaselineKeywords(TypedDict, total=False):
    """The fields of `BaselineOptions` as keywords."""

    ff_baseline: FeedForwardBaseline


class ConventionOptions(BaselineKeywords, total=False):
    """The fields of `Conventions` as keywords."""

    value_bias: ValueBias
    gates: Gates


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """What becomes of a text that is longer than the model takes."""

    truncate: _Truncate = False


class ReadingKeywords(TypedDict, total=False):
    """The fields of `ReadingOptions` as keywords."""

    truncate: bool


@dataclass(frozen=True, kw_only=True)
class RecordingOptions(BaselineOptions):
    """How a pass is recorded that is followed back through all layers."""

    weights: Annotated[
        Weights,
        Documentation(
            "What becomes of weight times value in every attention: 'constant' gives all to the value, 'half' half of "
            "it, 'players' also hands a part on to the keys that were looked at, and 'joint' integrates through queries, "
            "keys and values. What is left is the routing account.",
            panel=_HOW,
        ),
    ] = "constant"
    dtype: Dtype | None = None
    max_memory: Annotated[
        int | None,
        Documentation(
            "Memory that the layers' traces may take, such as 500M or 2G. What does not fit is recomputed.",
            command_line_type=str,
            panel=_HOW,
        ),
    ] = None
    on_progress: OnProgress | None = None


class RecordingKeywords(BaselineKeywords, total=False):
    """The fields of `RecordingOptions` as keywords."""

    weights: Weights
    dtype: Dtype | None
    max_memory: int | None
    on_progress: OnProgress | None


@dataclass(frozen=True, kw_only=True)
class Selection(ReadingOptions):
    """Which scopes and layers are computed, and how."""

    scopes: str | Sequence[str] | None = None
    layers: int | Sequence[int] | None = None
    dtype: Dtype | None = None


class SelectionOptions(ReadingKeywords, total=False):
    """The fields of `Selection` as keywords."""

    scopes: str | Sequence[str] | None
    layers: int | Sequence[int] | None
    dtype: Dtype | None


@dataclass(frozen=True, kw_only=True)
class MapSelection(Selection):
    """What decides how much work maps are."""

    queries: Queries | None = None
    heads: bool = False
    approximate: Annotated[
        str | Approximate | None,
        Documentation(
            "Approximate the maps from the feed-forward on, and report how close they are to exact ones on sampled queries.",
            command_line_type=ApproximationName,
        ),
    ] = None
    products: Annotated[
        Products | None,
        Documentation(
            "Less precise products in the feed-forward, for devices that are faster in them; the error is reported."
        ),
    ] = None


class MapSelectionOptions(SelectionOptions, total=False):
    """The fields of `MapSelection` as keywords."""

    queries: Queries | None
    heads: bool
    approximate: str | Approximate | None
    products: Products | None


@dataclass(frozen=True, kw_only=True)
class PassOptions:
    """What a pass over the inputs takes in addition: what a decoder reads, and how progress is shown."""

    decoder_text: DecoderText | None = None
    progress: bool | None = None
    on_progress: OnProgress | None = None


class PassKeywords(TypedDict, total=False):
    """The fields of `PassOptions` as keywords."""

    decoder_text: DecoderText | None
    progress: bool | None
    on_progress: OnProgress | None


@dataclass(frozen=True, kw_only=True)
class MixingRequest(Selection, Conventions, PassOptions):
    """The options of `Analyzer.mixing_ratios`."""


class MixingOptions(SelectionOptions, ConventionOptions, PassKeywords, total=False):
    """The fields of `MixingRequest` as keywords."""


@dataclass(frozen=True, kw_only=True)
class AnalysisRequest(MapSelection, Conventions, PassOptions):
    """The options of `Analyzer.analyze`."""

    method: str | LayerMethod = "norms"
    projections: bool = False
    max_memory: int | None = None
    out: str | Path | None = None


class AnalysisOptions(MapSelectionOptions, ConventionOptions, PassKeywords, total=False):
    """The fields of `AnalysisRequest` as keywords."""

    method: str | LayerMethod
    projections: bool
    max_memory: int | None
    out: str | Path | None


@dataclass(frozen=True, kw_only=True)
class EstimateRequest(MapSelection):
    """The options of `Analyzer.estimate`."""

    maps: bool = True
    timed: bool = True
    clock: Clock = time.perf_counter


class EstimateOptions(MapSelectionOptions, total=False):
    """The fields of `EstimateRequest` as keywords."""

    maps: bool
    timed: bool
    clock: Clock


_EXPLAINED = "What is explained"


@dataclass(frozen=True, kw_only=True)
class ExplainedOptions:
    """What `Analyzer.explain` explains, and by which method."""

    target: Annotated[
        LabelName | Sequence[int] | Each[LabelName | Sequence[int]],
        Documentation(
            "A word, a whole continuation, or a label; the text that an encoder-decoder outputs. Mind the space before a "
            "word. Default: what the model predicts.",
            ("--target", "-t"),
            str,
            _EXPLAINED,
        ),
    ] = None
    against: Annotated[
        LabelName | Each[LabelName],
        Documentation(
            "Another word or label: why the one rather than the other.", command_line_type=str, panel=_EXPLAINED
        ),
    ] = None
    at: Annotated[
        int | str | Each[int | str],
        Documentation(
            "The token whose prediction is explained: its position (from 0, or negative from the end), or the token itself. "
            "Default: the last, the mask, or the only one.",
            command_line_type=str,
            panel=_EXPLAINED,
        ),
    ] = None
    continue_for: Annotated[
        int | None,
        Documentation(
            "Let the model continue the text by at most this many tokens, and explain each.", panel=_EXPLAINED
        ),
    ] = None
    direction: Vector | Literal["state"] | None = None
    decoder_text: Annotated[
        str | Sequence[int] | Each[str | Sequence[int]],
        Documentation(
            "For an encoder-decoder model, the text that its decoder reads. The target is then a word that could follow it.",
            command_line_type=str,
            panel=_EXPLAINED,
        ),
    ] = None
    objective: Annotated[
        Objective | None,
        Documentation(
            "Compare the target's logit with the 'alternatives': the mean of all others, weighted by their probabilities "
            "(default). Or with one word ('contrast': that of --against, else the next most probable one), with the mean "
            "of all ('centred'), or with nothing ('logit').",
            panel=_EXPLAINED,
            command_line_type=Objective,
        ),
    ] = None
    method: Annotated[
        str | Method,
        Documentation("How to attribute; `normscope methods` lists the methods.", command_line_type=str, panel=_HOW),
    ] = "pull-back"
    heads: Annotated[bool, Documentation("Also keep the edges of every head (in a .nc).", panel=_HOW)] = False
    edges: Annotated[
        bool | None,
        Documentation(
            "Keep what flows from every token to every other in each layer. Default: for inputs of fewer than 1,024 tokens, "
            "and for --flow.",
            panel=_HOW,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ExplainRequest(ReadingOptions, RecordingOptions, ExplainedOptions):
    """The options of `Analyzer.explain`."""


class ExplainOptions(ReadingKeywords, RecordingKeywords, total=False):
    """The fields of `ExplainRequest` as keywords."""

    target: LabelName | Sequence[int] | Each[LabelName | Sequence[int]]
    against: LabelName | Each[LabelName]
    at: int | str | Each[int | str]
    continue_for: int | None
    direction: Vector | Literal["state"] | None
    decoder_text: str | Sequence[int] | Each[str | Sequence[int]]
    objective: Objective | None
    method: str | Method
    heads: bool
    edges: bool | None


_ANSWERED, _GENERATED = "What is answered", "How it is answered"

OnText = Callable[[str], None]
"""Called with the text that was generated so far; may raise, to cancel."""


@dataclass(frozen=True, kw_only=True)
class AnsweredOptions:
    """The question, and how the model answers it."""

    context: Context | None = None
    question: Annotated[
        str | None, Documentation("The question that the model answers.", ("--question", "-q"), panel=_ANSWERED)
    ] = None
    messages: Sequence[Mapping[str, str]] | None = None
    answer: Annotated[
        str | Sequence[int] | None,
        Documentation(
            "Explain this answer. Default: what the model answers.", ("--answer", "-a"), str, panel=_ANSWERED
        ),
    ] = None
    objective: Annotated[
        Objective | None,
        Documentation(
            "Compare each token's logit with the mean of all others, weighted by their probabilities ('alternatives', the "
            "default), or of all ('centred'), with that of the most probable other one ('contrast'; with --against, of "
            "another answer), or with nothing ('logit').",
            panel=_EXPLAINED,
        ),
    ] = None
    against: Annotated[
        str | Sequence[int] | None,
        Documentation(
            "Another answer: why this one rather than the other, by the first token in which they differ.",
            command_line_type=str,
            panel=_EXPLAINED,
        ),
    ] = None
    max_new_tokens: Annotated[
        int, Documentation("The most tokens that the model may answer with.", panel=_GENERATED)
    ] = 128
    seed: Annotated[
        int | None,
        Documentation(
            "Generate by the model's own settings, such as sampling, with this seed. Default: the most probable token at "
            "each step.",
            panel=_GENERATED,
        ),
    ] = None
    stop: Annotated[
        str | None,
        Documentation(
            "End the answer at this text. Default: the end of the line, for a prompt without a chat template.",
            panel=_GENERATED,
        ),
    ] = None
    layout: Annotated[
        str | None,
        Documentation(
            "How documents and question make up the prompt: a text with the words context and question in curly brackets.",
            panel=_GENERATED,
        ),
    ] = None
    chat: bool | None = None
    table: Annotated[
        bool,
        Documentation(
            "Also explain every token of the answer by itself: files have the table, and pages the shares of single words.",
            panel=_EXPLAINED,
        ),
    ] = False
    on_text: OnText | None = None


@dataclass(frozen=True, kw_only=True)
class AnswerRequest(RecordingOptions, AnsweredOptions):
    """The options of `Analyzer.explain_answer`."""


class AnswerOptions(RecordingKeywords, total=False):
    """The fields of `AnswerRequest` as keywords."""

    context: Context | None
    question: str | None
    messages: Sequence[Mapping[str, str]] | None
    answer: str | Sequence[int] | None
    objective: Objective | None
    against: str | Sequence[int] | None
    max_new_tokens: int
    seed: int | None
    stop: str | None
    layout: str | None
    chat: bool | None
    table: bool
    on_text: OnText | None


_EMBEDDING = "The embedding"

_Pooling = Annotated[
    Pooling | None,
    Documentation(
        "How the last states become an embedding: mean, first, last, weighted-mean, max, mean-sqrt-len, several joined by a "
        "plus, or late-interaction. Default: what the model's modules.json says.",
        panel=_EMBEDDING,
    ),
]


@dataclass(frozen=True, kw_only=True)
class EmbeddingRequest(ReadingOptions):
    """The options of `Analyzer.embed`."""

    pooling: _Pooling = None
    task: Literal["query", "document"] | None = None
    prompt: str | None = None
    on_progress: OnProgress | None = None


class EmbeddingOptions(ReadingKeywords, total=False):
    """The fields of `EmbeddingRequest` as keywords."""

    pooling: Pooling | None
    task: Literal["query", "document"] | None
    prompt: str | None
    on_progress: OnProgress | None


@dataclass(frozen=True, kw_only=True)
class SimilarityRequest(ReadingOptions):
    """The options of `Analyzer.similarity`."""

    pooling: _Pooling = None
    measure: Annotated[
        Measure | None,
        Documentation(
            "What the similarity is: the cosine, or the dot product. Default: what the model's files say.",
            panel=_EMBEDDING,
        ),
    ] = None
    retrieval: Annotated[
        bool,
        Documentation(
            "The first text is a query and the second a document: each gets the prompt that the model has for it.",
            panel=_EMBEDDING,
        ),
    ] = False
    first_prompt: Annotated[str | None, Documentation("An instruction before the first text.", panel=_EMBEDDING)] = None
    second_prompt: Annotated[str | None, Documentation("An instruction before the second text.", panel=_EMBEDDING)] = (
        None
    )
    table: bool = True
    dtype: Dtype | None = None
    on_progress: OnProgress | None = None


class SimilarityOptions(ReadingKeywords, total=False):
    """The fields of `SimilarityRequest` as keywords."""

    pooling: Pooling | None
    measure: Measure | None
    retrieval: bool
    first_prompt: str | None
    second_prompt: str | None
    table: bool
    dtype: Dtype | None
    on_progress: OnProgress | None


@dataclass(frozen=True, kw_only=True)
class RunSettings(Conventions):
    """The settings of a corpus run that do not depend on its model, experiments and corpus."""

    masking: Annotated[Masking, Documentation("Mask tokens as each paper does, in all experiments, or in none.")] = (
        "paper"
    )
    seed: Annotated[int, Documentation("Seed of masking, sampling and bootstrap.")] = 0
    shard_size: Annotated[int, Documentation("Sequences per shard, the unit that is kept.", panel="The work")] = 16
    corpus_name: Annotated[
        str,
        Documentation(
            "Name of a corpus of the papers (wikipedia, sst2, mnli, conll), to show published values next to its own.",
            panel="The corpus",
        ),
    ] = ""
    ranks: Annotated[
        str | None,
        Documentation("Token frequencies, lines of 'rank count id'. Default: counted in the corpus."),
    ] = None
    dtype: Annotated[
        Arithmetic | None,
        Documentation(
            "Arithmetic of the decomposition. Default: float32, or float64 for a float64 model.", ("--arithmetic",)
        ),
    ] = None
    stack: Annotated[
        StackName | None,
        Documentation(
            "The stack of an encoder-decoder model to analyse (default: the decoder), or the tower of a model of images and "
            "texts."
        ),
    ] = None
    approximate: Annotated[
        ApproximationName | None,
        Documentation("Approximate the maps from the feed-forward on, for experiments that use their ranks alone."),
    ] = None


class RunOptions(ConventionOptions, total=False):
    """The fields of `RunSettings` as keywords, in which a dtype may be torch's and a path any path."""

    masking: Masking
    seed: int
    shard_size: int
    corpus_name: str
    ranks: str | Path | None
    dtype: Dtype | str | None
    stack: StackName | None
    approximate: ApproximationName | None
