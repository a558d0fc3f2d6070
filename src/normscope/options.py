"""Options as users give them: fields that document themselves, numbers, and choices by name.

The requests of single calls are in `request`. Nothing here imports torch, so that a command line starts quickly.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import wraps
from operator import index
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from normscope.errors import InputError, SelectionError, listing

_Class = TypeVar("_Class", bound=type)
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Documentation:
    """What a field means; its flags on the command line, if they do not follow from its name; its type there; the heading
    under which `--help` lists it, if it is not that of its dataclass; and whether it is not listed, as an old name is."""

    text: str
    flags: tuple[str, ...] = ()
    command_line_type: Any = None
    panel: str | None = None
    hidden: bool = False


@dataclass(frozen=True)
class DocumentedField:
    """A field of a dataclass with its type, default and documentation."""

    name: str
    type: object
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
    An unknown keyword is a `TypeError` that names the call, as Python's own is, and the keyword that was meant.
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
        complete = signature.replace(parameters=[*own, *shown])

        @wraps(function)
        def wrapper(*arguments: Any, **given: Any) -> Any:
            check_keywords(function.__name__, given, [name for name in complete.parameters if name != "self"])
            return function(*arguments, **given)

        wrapper.__dict__["__signature__"] = complete
        return cast(_Function, wrapper)

    return decorate


def check_keywords(call: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raise `TypeError`, as Python does, for a keyword that a call does not take; the nearest one is suggested."""
    for name in given:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}.{hint} It takes {listing(known)}.")


def also_spelled(**spellings: str) -> Callable[[_Function], _Function]:
    """Decorator: a function also takes keywords in another spelling, given as `other="own"`, such as `normalize`."""

    def decorate(function: _Function) -> _Function:
        @wraps(function)
        def wrapper(*arguments: Any, **given: Any) -> Any:
            for other in spellings.keys() & given.keys():
                own = spellings[other]
                if own in given:
                    raise InputError(
                        f"{function.__name__} got {own!r} twice, also as {other!r}: leave out one of them."
                    )
                given[own] = given.pop(other)
            return function(*arguments, **given)

        return cast(_Function, wrapper)

    return decorate


# ---- Numbers as people give them, of Python, numpy or torch: whole ones, alone or several, indices among others, and
# shares.
#
# Layers, heads, positions, labels and token ids are read here, so that every call takes and refuses the same. Truth
# values and fractions are no whole numbers.


MOST_DIGITS = 18
"""A text of more digits is taken for no number."""


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


def whole_numbers(values: object, what: str) -> list[int]:
    """One whole number or several, as a list."""
    if is_whole(values):
        return [whole_number(values, what)]
    several = isinstance(values, Iterable) and not isinstance(values, str | bytes) and getattr(values, "shape", True)
    if not several:
        raise SelectionError(f"{what} is a whole number, or a list of them, not {values!r:.60}.")
    return [whole_number(value, what) for value in cast("Iterable[object]", values)]


def position_of(position: object, length: int, what: str = "token") -> int:
    """An index among this many, negative from the end."""
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


def _is_truth(value: object) -> bool:
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


# ---- The choices that several calls and commands offer by name.
#
# They stand apart from the code that carries them out, so that a command line knows them without loading it.

ValueBias = Literal["token", "bias"]
"""Whether the bias of the value projection counts with the token, as in the papers, or with the bias."""

Gates = Literal["fixed", "joint"]
"""Gates of attention are constants of the pass, or take a share of what they let through."""

FeedForwardBaseline = Literal["zero", "bias"]
"""Where the integrated gradients of a feed-forward start: from zero, as in the papers, or from what no token put in."""

Weights = Literal["constant", "half", "players", "joint"]
"""What becomes of `weight x value` in an attention: all to the value, half of it, or to each of query, key and value what
integrated gradients give."""

Objective = Literal["alternatives", "contrast", "centred", "logit"]
"""What is explained of a label, such as a token: its logit above the mean of all other labels' (weighted by their
probabilities), above that of one other label, above the mean of all with its own, or the logit itself."""

DEFAULT_OBJECTIVE: Objective = "alternatives"
"""The default objective for labels that exclude each other."""

Unit = Literal["token", "word", "line", "sentence", "paragraph", "document", "turn"]
"""A unit of a text that shares are summed over."""

UNITS = get_args(Unit)

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

StackName = Literal["decoder", "encoder", "image", "text"]
"""The stack of an encoder-decoder model to analyse, or the tower of a model of images and texts."""

Correlation = Literal["pearson", "spearman"]
"""How alike two maps are: Pearson's r of their cells, or Spearman's rho, which is that of the ranks of their cells."""

PoolingMode = Literal["mean", "first", "last", "weighted-mean", "max", "mean-sqrt-len"]
"""How the states of all tokens become one vector; `weighted-mean` counts later tokens more, `max` is taken by element."""

LATE_INTERACTION = "late-interaction"
"""No pooling: every token of the one text is matched with the best of the other, and the matches add up."""

Pooling = str
"""A mode, several joined by a plus (`mean+max`), or `late-interaction`."""

Measure = Literal["cosine", "dot", "late-interaction"]
"""What the similarity of two embeddings is."""

MOST_JOBS = 1024
"""How many processes of one machine a run may be shared out to; a typing error would end the machine."""

BiasShare = Literal["apart", "absdot", "norm", "equal"]
"""What becomes of biases: kept separate, or shared out over the tokens as DecompX does, wherever one is added."""

Removal = Literal["auto", "mask", "drop", "mean"]
"""How a token is removed; `mean` puts the mean of the input's own embeddings in its place."""

NormaliseAxis = Literal["none", "row", "column"]
"""Norms as they are, or as shares of a row or of a column."""


@dataclass(frozen=True, kw_only=True)
class BaselineOptions:
    """Where the integrated gradients of feed-forwards start."""

    ff_baseline: Annotated[
        FeedForwardBaseline,
        Documentation(
            "Start the integrated gradients of feed-forwards at 'zero', as in the papers, or at the 'bias': what no token "
            "put in."
        ),
    ] = "zero"


@dataclass(frozen=True, kw_only=True)
class Conventions(BaselineOptions):
    """Conventions of the decomposition; the defaults are those of the papers."""

    value_bias: Annotated[
        ValueBias, Documentation("Count the bias of the value projection with the 'token' or with the 'bias'.")
    ] = "token"
    gates: Annotated[
        Gates,
        Documentation(
            "Take gates of attention as constants ('fixed'), or count their share with the query's own token ('joint')."
        ),
    ] = "fixed"


def counted(conventions: Conventions) -> dict[str, str]:
    """The conventions as facts of a result; gates only where they are not what they are by default."""
    facts: dict[str, str] = {"value_bias": conventions.value_bias, "ff_baseline": conventions.ff_baseline}
    return facts if conventions.gates == "fixed" else {**facts, "gates": conventions.gates}


PAPERS = Conventions()
"""As the papers count."""


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


def weights_of(name: str) -> Weights:
    """What becomes of attention weights."""
    return _chosen(name, get_args(Weights), "Attention weights (weights) are counted by {}, not by")


def gates_of(name: str) -> Gates:
    """What becomes of the gates of attention."""
    return _chosen(name, get_args(Gates), "Gates of attention (gates) are {}, not")


def objective_of(name: str) -> Objective:
    """What is explained of a token."""
    return _chosen(name, get_args(Objective), "What is explained of a token (objective) is one of {}, not")


def stack_name(name: str) -> StackName:
    """The stack that a name stands for."""
    return _chosen(name, get_args(StackName), "The stack is one of {}, not")


def _chosen(name: Any, known: Sequence[Any], message: str) -> Any:
    if isinstance(name, str) and name in known:
        return name
    raise InputError(f"{message.format(listing(known))} {name!r:.60}.")
