"""The choices that several calls and commands offer by name.

They stand apart from the code that carries them out, so that a command line knows them without loading it.
"""

from __future__ import annotations

from typing import Literal, get_args

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

NormaliseAxis = Literal["none", "row", "column"]
"""Norms as they are, or as shares of a row or of a column."""


def normalise_axis(name: str) -> NormaliseAxis:
    """The way of normalising that a name stands for."""
    for axis in get_args(NormaliseAxis):
        if name == axis:
            return axis
    raise InputError(f"Maps are normalised by {listing(get_args(NormaliseAxis))}, not by {name!r}.")
