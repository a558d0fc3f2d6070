"""An explanation in words and a few numbers, as pictures, tables and pages say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from normscope.labels import name_of

if TYPE_CHECKING:
    from normscope.explain.explanation import Explanation


def meaning(explanation: Explanation) -> str:
    """What a share is."""
    return "share of the logit" if explanation.quantity == "logit" else explanation.quantity


def heading(explanation: Explanation, target: int) -> str:
    """What is explained, how it adds up, and by which method."""
    value = explanation.values[target]
    shown = f"{name_of(explanation.targets[target])}: {value:.2f}"
    if explanation.adds_up:
        bias = explanation.biases[target]
        shown += f" = tokens {_signed(value - bias)} and bias {_signed(bias)}"
    return f"{shown}   ({explanation.method})"


def sums(explanation: Explanation, target: int) -> list[tuple[str, str]]:
    """The bias, the sum, the model's own value and how far the two are apart, where shares are meant to add up."""
    value = explanation.values[target]
    if not explanation.adds_up:
        return [("value", f"{value:+.4f}")]
    bias = explanation.biases[target]
    total = float(np.nansum(explanation.shares.isel(target=target).values)) + bias
    return [
        ("bias", f"{bias:+.4f}"),
        ("sum", f"{total:+.4f}"),
        ("the model's own value", f"{value:+.4f}"),
        ("conservation error", f"{explanation.completeness:.1e}"),
    ]


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "\u2212")
