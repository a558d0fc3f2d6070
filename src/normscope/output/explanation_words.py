"""An explanation in words and a few numbers, as pictures, tables and pages say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from normscope.results.tokens import labels, name_of

if TYPE_CHECKING:
    from normscope.results.explanation import Explanation


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


SINK = "attention sink"
"""How a token is called that gets much of the attention whatever it says."""


def token_names(explanation: Explanation) -> list[str]:
    """The tokens as tables call them: sinks are named as such."""
    names = labels(explanation.tokens)
    return [f"{name} ({SINK})" if place in explanation.sinks else name for place, name in enumerate(names)]


def sink_note(explanation: Explanation) -> str:
    """What a reader has to know of the sinks, in a sentence; empty without any."""
    if not explanation.sinks:
        return ""
    named = ", ".join(f'"{name_of(explanation.tokens[place])}"' for place in explanation.sinks)
    are = f"is an {SINK}" if len(explanation.sinks) == 1 else f"are {SINK}s"
    return (
        f"{named} {are}: much attention goes there whatever the token is, so a large share tells little about the word."
    )


def sums(explanation: Explanation, target: int) -> list[tuple[str, str]]:
    """The bias, the sum, the model's own value and how far the two are apart, where shares are meant to add up; what sinks
    and other tokens put in, where there are any."""
    value = explanation.values[target]
    if not explanation.adds_up:
        return [("value", f"{value:+.4f}")]
    bias = explanation.biases[target]
    shares = np.nan_to_num(explanation.shares.isel(target=target).values)
    total, parked = float(shares.sum()) + bias, float(shares[explanation.sinks].sum())
    apart = [(f"{SINK}s", f"{parked:+.4f}"), ("other tokens", f"{total - bias - parked:+.4f}")]
    return [
        *(apart if explanation.sinks else []),
        ("bias", f"{bias:+.4f}"),
        ("sum", f"{total:+.4f}"),
        ("the model's own value", f"{value:+.4f}"),
        ("conservation error", f"{explanation.completeness:.1e}"),
    ]


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "\u2212")
