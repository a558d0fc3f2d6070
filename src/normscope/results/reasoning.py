"""Credit passed on through generated text: from the tokens that a model wrote itself to the tokens behind them.

`credit[r]` is what an answer owes to every token before it. A generated token `s` stands there because the model wrote it:
its credit goes to what made it, in proportion to the positive shares of its own explanation,

    S[s, r] = max(table[s, r], 0) / sum over r' of max(table[s, r'], 0)

A token depends on earlier ones alone, so that S among generated tokens is strictly lower triangular, and all hops at once
are one triangular solve: credit of the prompt = c_P + c_T (I - S_TT)^-1 S_TP. The credit as a whole stays what it was.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from normscope.errors import InputError


def handed_on(
    credit: Float[np.ndarray, "*answer token"],
    table: Float[np.ndarray, "output token"],
    outputs: Int[np.ndarray, " token"],
    hops: int | None = None,
) -> Float[np.ndarray, "*answer token"]:
    """The credit of every token after some hops, or after as many as there are; of one answer, or of several at once.

    `outputs[token]` is the row of the table that explains a token, negative for one that the model did not write. Credit of
    a token that nothing speaks for stays where it is, and so does what is still on its way after the last hop.
    """
    if hops is not None and hops < 0:
        raise InputError(
            f"Credit is handed on a number of times (hops), or as often as there are steps, not {hops} times."
        )
    written = np.flatnonzero(outputs >= 0)
    shares = _shares(table, outputs, written)
    passes = shares.any(-1)
    result = credit.astype(np.float64)  # a copy
    if hops is None:
        moving = np.where(passes, _arriving(result[..., written], shares[:, written]), 0.0)
        result[..., written] -= moving
        return result + moving @ shares
    for _ in range(hops):
        moving = np.where(passes, result[..., written], 0.0)
        result[..., written] -= moving
        result += moving @ shares
    return result


def _shares(
    table: Float[np.ndarray, "output token"], outputs: Int[np.ndarray, " token"], written: Int[np.ndarray, " written"]
) -> Float[np.ndarray, "written token"]:
    """Which part of its credit a written token hands on to each token before it; nothing if nothing speaks for it."""
    positive = np.maximum(np.nan_to_num(table[outputs[written]].astype(np.float64)), 0)
    _check_earlier(positive, written)
    sums = positive.sum(-1, keepdims=True)
    return np.divide(positive, sums, out=np.zeros_like(positive), where=sums > 0)


def _arriving(
    credit: Float[np.ndarray, "*answer written"], shares: Float[np.ndarray, "written written"]
) -> Float[np.ndarray, "*answer written"]:
    """All that ever reaches each written token: the triangular solve, by substitution from the last token on."""
    arriving = credit.copy()
    for token in range(len(shares) - 1, 0, -1):
        arriving[..., :token] += arriving[..., token, None] * shares[token, :token]
    return arriving


def _check_earlier(positive: Float[np.ndarray, "written token"], written: Int[np.ndarray, " written"]) -> None:
    """A token that was written because of itself, or of a later one, would hand on credit for ever."""
    if any(row[token:].any() for row, token in zip(positive, written, strict=True)):
        raise InputError(
            "The table explains a generated token by itself or by a later one: it is not one of a causal model."
        )
