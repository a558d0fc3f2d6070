"""Options of the public calls, each declared once: for the Python API, the command line, the estimate and the corpus run.

The options of a call are the fields of a frozen dataclass, such as `AnalysisRequest`. A field that is also an option of a
command is annotated with `Documentation`. Next to each dataclass is the `TypedDict` that types the keywords of the call. A
new option is one field there, and one use. Nothing here imports torch, so that a command line starts quickly.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from operator import index
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypedDict,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from normscope.errors import InputError, SelectionError, listing

if TYPE_CHECKING:
    import numpy as np
    import torch

    from normscope.explain.question import LabelName
    from normscope.inputs import Target
    from normscope.measures.approximated import Approximate
    from normscope.methods import LayerMethod, Method

    Dtype = torch.dtype
    Vector = torch.Tensor | np.ndarray | Sequence[float]
else:  # importing torch takes seconds, and a command line that only shows its options should not wait for it
    LabelName = Target = Approximate = LayerMethod = Method = Dtype = Vector = Any

_Class = TypeVar("_Class", bound=type)
_Function = TypeVar("_Function", bound=Callable[..., Any])

Text = str | tuple[str, str]
"""One text, or a pair of texts."""

OnProgress = Callable[[int, int], None]
"""Called with the number of layers that are done and the number of all layers; may raise, to cancel."""

Clock = Callable[[], float]
"""Returns the time in seconds."""


@dataclass(frozen=True)
class Documentation:
    """What a field means; its flags on the command line, if they do not follow from its name; its type there; and the
    heading under which `--help` lists it, if it is not that of its dataclass."""

    text: str
    flags: tuple[str, ...] = ()
    command_line_type: Any = None
    panel: str | None = None


@dataclass(frozen=True)
class DocumentedField:
    """A field of a dataclass with its type, default and documentation."""

    name: str
    type: Any
    default: Any
    documentation: Documentation


def documented_fields(kind: type) -> Iterator[DocumentedField]:
    """The documented fields of a dataclass, in their order."""
    annotations = get_type_hints(kind, include_extras=True)
    for item in fields(kind):
        annotation = annotations[item.name]
        if get_origin(annotation) is Annotated:
            actual, documentation = get_args(annotation)
            yield DocumentedField(item.name, actual, item.default, documentation)


def with_documentation(kind: _Class) -> _Class:
    """Class decorator: the texts of the documented fields, below the docstring."""
    lines = [f"        {item.name}: {item.documentation.text}" for item in documented_fields(kind)]
    kind.__doc__ = "\n".join([(kind.__doc__ or "").rstrip(), "", "    Args:", *lines, "    "])
    return kind


def with_keywords(keywords: type, *kinds: type) -> Callable[[_Function], _Function]:
    """Decorator: the signature at runtime shows the keywords of a `TypedDict`, with the defaults of dataclass fields.

    A type checker reads them from `**options: Unpack[...]`; `help` and the completion of a notebook read the signature.
    """
    defaults = {field.name: field.default for kind in kinds for field in fields(kind)}
    types = {name: getattr(kind, "__forward_arg__", kind) for name, kind in inspect.get_annotations(keywords).items()}
    shown = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=kind)
        for name, kind in types.items()
    ]

    def decorate(function: _Function) -> _Function:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        function.__dict__["__signature__"] = signature.replace(parameters=[*own, *shown])
        return function

    return decorate


# ---- Numbers as people give them, of Python, numpy or torch: whole ones, alone or several, places among others, and
# shares.
#
# Layers, heads, positions, labels and token ids are read here, so that every call takes and refuses the same. Truth
# values and fractions are no whole numbers.


def is_whole(value: object) -> bool:
    """Whether a value is one whole number."""
    try:
        whole_number(value, "")
    except SelectionError:
        return False
    return True


def whole_number(value: Any, what: str) -> int:
    """One whole number; `what` it counts is said where it is none."""
    try:
        if not _is_truth(value) and not getattr(
            value, "shape", ()
        ):  # numpy and torch take an array of one number for it
            return index(value)
    except (TypeError, RuntimeError):
        pass
    raise SelectionError(f"{what} is a whole number, not {value!r:.60}.")


def whole_numbers(values: Any, what: str) -> list[int]:
    """One whole number or several, as a list."""
    if is_whole(values):
        return [whole_number(values, what)]
    several = isinstance(values, Iterable) and not isinstance(values, str | bytes) and getattr(values, "shape", True)
    if not several:
        raise SelectionError(f"{what} is a whole number, or a list of them, not {values!r:.60}.")
    return [whole_number(value, what) for value in cast("Iterable[Any]", values)]


def position_of(position: Any, length: int, what: str = "token") -> int:
    """A place among so many, negative from the end."""
    place = whole_number(position, f"The position of a {what}")
    if not -length <= place < length:
        raise SelectionError(
            f"There is no {what} {place}: the input has {length} tokens, 0 to {length - 1} (or -{length} to -1)."
        )
    return place % length


def is_share(value: Any) -> bool:
    """Whether a value is a number from 0 to 1."""
    try:
        return not _is_truth(value) and not isinstance(value, str | bytes) and 0 <= float(value) <= 1
    except (TypeError, ValueError, OverflowError):
        return False


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


# ---- The choices that several calls and commands offer by name.
#
# They stand apart from the code that carries them out, so that a command line knows them without loading it.

ValueBias = Literal["token", "bias"]
"""Whether the bias of the value projection counts with the token, as in the papers, or with the bias."""

FeedForwardBaseline = Literal["zero", "bias"]
"""Where the integrated gradients of a feed-forward start: from zero, as in the papers, or from what no token put in."""

Arithmetic = Literal["float32", "float64"]
"""The arithmetic in which states are decomposed."""

Masking = Literal["paper", "all", "none"]
"""Mask tokens for the experiments whose paper does, for all, or for none."""

ApproximationName = Literal["slopes", "sketch", "both", "patterns", "fast"]
"""How maps from the feed-forward on may be approximated; 'fast' takes the cheapest way that keeps the ranks."""

Products = Literal["tf32", "bf16"]
"""Less precise arithmetic of the feed-forward's large products, for devices that are faster in it."""

TooLong = Literal["truncate", "skip", "refuse"]
"""What becomes of sequences of a corpus that are too long."""

StackName = Literal["decoder", "encoder"]
"""The stack of an encoder-decoder model that is looked at."""

Correlation = Literal["pearson", "spearman"]
"""How alike two maps are: Pearson's r of their cells, or Spearman's rho, which is that of the ranks of their cells."""

MOST_JOBS = 1024
"""How many processes of one machine a run may be shared out to; a typing error would end the machine."""

NormaliseAxis = Literal["none", "row", "column"]
"""Norms as they are, or as shares of a row or of a column."""


def normalise_axis(name: str) -> NormaliseAxis:
    """The way of normalising that a name stands for."""
    return _chosen(name, get_args(NormaliseAxis), "Maps are normalised by {}, not by")


def value_bias_of(name: str) -> ValueBias:
    """What the bias of the value projection counts with."""
    return _chosen(name, get_args(ValueBias), "The bias of the value projection (value_bias) counts with {}, not with")


def ff_baseline_of(name: str) -> FeedForwardBaseline:
    """Where the integrated gradients of feed-forwards start."""
    return _chosen(
        name, get_args(FeedForwardBaseline), "Integrated gradients of feed-forwards (ff_baseline) start at {}, not at"
    )


def stack_name(name: str) -> StackName:
    """The stack that a name stands for."""
    return _chosen(name, get_args(StackName), "The stack is one of {}, not")


def _chosen(name: Any, known: Sequence[Any], message: str) -> Any:
    if isinstance(name, str) and name in known:
        return name
    raise InputError(f"{message.format(listing(known))} {name!r:.60}.")


# ---- The options of each call, and the keywords that type it: `Analyzer` and `run` say what they mean.


_Baseline = Annotated[
    FeedForwardBaseline,
    Documentation(
        "Start the integrated gradients of feed-forwards at 'zero', as in the papers, or at the 'bias': what no token put "
        "in."
    ),
]
_Truncate = Annotated[bool, Documentation("Cut a text that is longer than the model takes, instead of refusing it.")]


@dataclass(frozen=True, kw_only=True)
class Conventions:
    """What the decomposition counts where; the defaults are those of the papers."""

    value_bias: Annotated[
        ValueBias, Documentation("Count the bias of the value projection with the 'token' or with the 'bias'.")
    ] = "token"
    ff_baseline: _Baseline = "zero"


class ConventionOptions(TypedDict, total=False):
    """The fields of `Conventions` as keywords."""

    value_bias: ValueBias
    ff_baseline: FeedForwardBaseline


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which scopes and layers are computed, and how."""

    scopes: str | Sequence[str] | None = None
    layers: int | Sequence[int] | None = None
    truncate: _Truncate = False
    dtype: Dtype | None = None


class SelectionOptions(TypedDict, total=False):
    """The fields of `Selection` as keywords."""

    scopes: str | Sequence[str] | None
    layers: int | Sequence[int] | None
    truncate: bool
    dtype: Dtype | None


@dataclass(frozen=True, kw_only=True)
class MapSelection(Selection):
    """What decides how much work maps are."""

    queries: int | Sequence[int] | None = None
    heads: bool = False
    approximate: Annotated[
        str | Approximate | None,
        Documentation(
            "Approximate the maps from the feed-forward on, and say how near they come to exact ones on sampled queries.",
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

    queries: int | Sequence[int] | None
    heads: bool
    approximate: str | Approximate | None
    products: Products | None


@dataclass(frozen=True, kw_only=True)
class PassOptions:
    """What a pass over the inputs takes in addition: the decoder's target, and how progress is shown."""

    target: Target | None = None
    progress: bool | None = None
    on_progress: OnProgress | None = None


class PassKeywords(TypedDict, total=False):
    """The fields of `PassOptions` as keywords."""

    target: Target | None
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


_EXPLAINED, _HOW = "What is explained", "How"


@dataclass(frozen=True, kw_only=True)
class ExplainRequest:
    """The options of `Analyzer.explain`."""

    target: Annotated[
        LabelName | Sequence[int] | None,
        Documentation(
            "A word, a whole continuation, or a label; the text that an encoder-decoder outputs. Mind the space before a "
            "word. Default: what the model predicts.",
            ("--target", "-t"),
            str,
            _EXPLAINED,
        ),
    ] = None
    against: Annotated[
        LabelName | None,
        Documentation(
            "Another word or label: why the one rather than the other.", command_line_type=str, panel=_EXPLAINED
        ),
    ] = None
    at: Annotated[
        int | None,
        Documentation(
            "The position (from 0, or negative from the end) of the token whose prediction is explained. Default: the "
            "last, the mask, or the only one.",
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
    reply: str | Sequence[int] | None = None
    method: Annotated[
        str | Method,
        Documentation("How to attribute; `normscope methods` lists the methods.", command_line_type=str, panel=_HOW),
    ] = "pull-back"
    heads: Annotated[bool, Documentation("Also keep the edges of every head (in a .nc).", panel=_HOW)] = False
    ff_baseline: _Baseline = "zero"
    truncate: _Truncate = False
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


class ExplainOptions(TypedDict, total=False):
    """The fields of `ExplainRequest` as keywords."""

    target: LabelName | Sequence[int] | None
    against: LabelName | None
    at: int | None
    continue_for: int | None
    direction: Vector | Literal["state"] | None
    reply: str | Sequence[int] | None
    method: str | Method
    heads: bool
    ff_baseline: FeedForwardBaseline
    truncate: bool
    dtype: Dtype | None
    max_memory: int | None
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
        Documentation("The stack of an encoder-decoder model to look at. Default: the decoder."),
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
