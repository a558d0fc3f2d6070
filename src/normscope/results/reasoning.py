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
    credit: Float[np.ndarray, " token"],
    table: Float[np.ndarray, "output token"],
    outputs: Int[np.ndarray, " token"],
    hops: int | None = None,
) -> Float[np.ndarray, " token"]:
    """The credit of every token after some hops, or after as many as there are.

    `outputs[token]` is the row of the table that explains a token, negative for one that the model did not write. Credit of
    a token that nothing speaks for stays where it is, and so does what is still on its way after the last hop.
    """
    if hops is not None and hops < 0:
        raise InputError(
            f"Credit is handed on a number of times (hops), or as often as there are steps, not {hops} times."
        )
    written = np.flatnonzero(outputs >= 0)
    positive = np.maximum(np.nan_to_num(table[outputs[written]].astype(np.float64)), 0)
    _check_earlier(positive, written)
    sums = positive.sum(-1, keepdims=True)
    shares = np.divide(positive, sums, out=np.zeros_like(positive), where=sums > 0)
    result = credit.astype(np.float64).copy()
    if hops is None:  # the triangular solve, by substitution: whoever a token hands credit on to comes after it here
        for token, row in zip(written[::-1], shares[::-1], strict=True):
            moving = 0.0 if not row.any() else result[token]
            result[token] -= moving
            result += moving * row
        return result
    for _ in range(hops):
        moving = np.where(shares.any(-1), result[written], 0.0)
        result[written] -= moving
        result += moving @ shares
    return result


def _check_earlier(positive: Float[np.ndarray, "written token"], written: Int[np.ndarray, " written"]) -> None:
    """A token that was written because of itself, or of a later one, would hand on credit for ever."""
    if any(row[token:].any() for row, token in zip(positive, written, strict=True)):
        raise InputError(
            "The table explains a generated token by itself or by a later one: it is not one of a causal model."
        )
