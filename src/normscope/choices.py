"""The choices that several calls and commands offer by name.

They stand apart from the code that carries them out, so that a command line knows them without loading it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from normscope.errors import InputError, listing

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
