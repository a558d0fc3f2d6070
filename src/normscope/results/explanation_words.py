"""An explanation in words and a few numbers, as pictures, tables, pages and terminals say it."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten
from typing import TYPE_CHECKING

import numpy as np

from normscope.inputs import NO_SEGMENT
from normscope.results import explanation_schema as names
from normscope.results.tokens import labels, name_of

if TYPE_CHECKING:
    import xarray as xr

    from normscope.results.explanation import Explanation


_COMPARED = {
    "alternatives": "compared with what else it might have said",
    "centred": "compared with all that it might have said",
    "logit": "as a raw logit, compared with nothing",
}
"""What a value is, by the objective. A contrast has both words in its name."""

_SHARES = {
    "alternatives": "share of the logit above the alternatives",
    "contrast": "share of the difference of logits",
    "centred": "share of the centred logit",
}


def meaning(explanation: Explanation) -> str:
    """What a share is."""
    objective = str(explanation.attrs.get("objective", ""))
    return _SHARES.get(objective, "share of the logit") if explanation.quantity == "logit" else explanation.quantity


def asked(explanation: Explanation, target: int) -> str:
    """What is explained, in words: a label, and what its logit is compared with."""
    name = name_of(explanation.targets[target])
    objective = str(explanation.attrs.get("objective", ""))
    if objective == "contrast" and " - " in name:
        return name.replace(" - ", " rather than ", 1)
    return f"{name}, {_COMPARED[objective]}" if objective in _COMPARED else name


def heading(explanation: Explanation, target: int) -> str:
    """What is explained, how it adds up, and by which method."""
    value = explanation.values[target]
    shown = f"{asked(explanation, target)}: {value:.2f}"
    if explanation.adds_up:
        bias, routed = explanation.biases[target], explanation.accounts[target]
        parked = float(np.nansum(explanation.shares.values[target][explanation.sinks]))
        sinks = f", {SINK}s {_signed(parked)}" if explanation.sinks else ""
        kept = f", {LOOKING} {_signed(routed)}" if explanation.counts_weights else ""
        shown += f" = tokens {_signed(value - bias - routed - parked)}{sinks}{kept} and bias {_signed(bias)}"
    return f"{shown}   ({explanation.method})"


_LONGEST_SENTENCE = 90
"""The most characters of a sentence in a table."""

SEGMENTS = {0: "first text", 1: "second text", NO_SEGMENT: "special tokens"}
"""How the sums over the texts of a pair are called."""

_SMALL = 0.1
"""Values nearer to zero than this are not compared with their biases."""

LOOKING = "routing"
"""How what stays with attention weights is called."""

SINK = "attention sink"
"""How a token is called that gets much of the attention whatever it says."""


def token_names(explanation: Explanation) -> list[str]:
    """The tokens or other units as tables call them: sinks are named as such."""
    sinks = set(explanation.sinks)
    if explanation.attrs.get("unit") == "sentence":
        names = [shorten(token, _LONGEST_SENTENCE, placeholder="\u2026") for token in explanation.tokens]
    else:
        names = labels(explanation.tokens)
    return [f"{name} ({SINK})" if index in sinks else name for index, name in enumerate(names)]


def sink_note(explanation: Explanation) -> str:
    """What a reader has to know of the sinks, in a sentence; empty without any."""
    sinks, tokens = explanation.sinks, explanation.tokens
    if not sinks:
        return ""
    named = ", ".join(f'"{name_of(tokens[index])}"' for index in sinks)
    are = f"is an {SINK}" if len(sinks) == 1 else f"are {SINK}s"
    return (
        f"{named} {are}: much attention goes there whatever the token is, so a large share tells little about the word, "
        f"and is shown apart."
    )


def cancels(explanation: Explanation, target: int) -> float:
    """How much of the bias is opposed by the tokens, so that neither shows in the value."""
    if not explanation.adds_up:
        return 0.0
    bias = explanation.biases[target]
    tokens = explanation.values[target] - bias - explanation.accounts[target]
    return min(abs(tokens), abs(bias)) if tokens * bias < 0 else 0.0


def cancellation_note(explanation: Explanation, targets: Sequence[int]) -> str:
    """What to know where much of tokens and biases cancels, and what avoids it, in a sentence; empty where it does not."""
    values, biases = explanation.values, explanation.biases if explanation.adds_up else []
    found = [target for target in targets if cancels(explanation, target) > max(abs(values[target]), _SMALL) / 2]
    if not found:
        return ""
    most = max(found, key=lambda target: cancels(explanation, target))
    named = "" if len(targets) == 1 else f" (most of all in {name_of(explanation.targets[most])})"
    tokens = values[most] - biases[most] - explanation.accounts[most]
    sums = f"tokens ({_signed(tokens)}) and biases ({_signed(biases[most])})"
    note = f"Much of {sums} cancels{named}, so that shares say more about each other than about the value."
    if str(explanation.attrs.get("ff_baseline", "")) != "zero" or not _from_layers(explanation, most):
        return note
    return (
        f"{note} Most comes from constant inputs of feed-forwards, which pass the slopes that the tokens' inputs pass: "
        f"ff_baseline='bias' (--ff-baseline bias) counts only what the tokens change."
    )


def _from_layers(explanation: Explanation, target: int) -> bool:
    """Whether most of the bias comes from layers, not from the head."""
    head = explanation.dataset.get(names.END_BIAS)
    own = 0.0 if head is None else float(head[target])
    return abs(explanation.biases[target] - own) > abs(own)


def without_sinks(explanation: Explanation, shares: np.ndarray) -> np.ndarray:
    """Shares `[..., token]` as colours show them: those of attention sinks are missing, so that others can be seen."""
    shown = shares.copy()
    shown[..., explanation.sinks] = np.nan
    return shown


def shares_of(explanation: Explanation, target: int | None) -> xr.DataArray:
    """`[token]`: the shares in one value, or (`None`) their sums over all values; missing where no value has one."""
    shares = explanation.shares
    return shares.sum("target", min_count=1) if target is None else shares.isel(target=target)


def beginnings(shares: xr.DataArray) -> list[int]:
    """The places of tokens with which another text begins: that of another stack, or the second of a pair."""
    groups = shares["token_group"].values
    segments = shares.coords.get("token_segment", shares["token_special"] * 0).values
    second = np.flatnonzero(segments == 1)[:1]
    return sorted({*(np.flatnonzero(groups[1:] != groups[:-1]) + 1).tolist(), *second.tolist()})


def sums(explanation: Explanation, target: int | None) -> list[tuple[str, str]]:
    """The bias, the sum, the model's own value and how far apart the two are, where shares are meant to add up; what sinks
    and other tokens put in, where there are any. Without a target, of all values together."""
    chosen = slice(None) if target is None else slice(target, target + 1)
    value = sum(explanation.values[chosen])
    if not explanation.adds_up:
        return [("value", f"{value:+.4f}")]
    bias = sum(explanation.biases[chosen])
    shares = np.nan_to_num(shares_of(explanation, target).values)
    sinks = explanation.sinks
    routed = sum(explanation.accounts[chosen])
    total, parked = float(shares.sum()) + bias + routed, float(shares[sinks].sum())
    others = [("other tokens", total - bias - routed - parked)] if sinks else []
    kept = np.delete(shares, sinks)
    segments = explanation.shares.coords.get("token_segment")
    if segments is not None:
        of = np.delete(segments.values, sinks)
        others = [(name, float(kept[of == text].sum())) for text, name in SEGMENTS.items()]
    apart = [*others, *([(f"{SINK}s", parked)] if sinks else [])]
    return [
        *((name, f"{share:+.4f}") for name, share in apart),
        *([(f"{LOOKING} (what stays with attention weights)", f"{routed:+.4f}")] if explanation.counts_weights else []),
        ("bias", f"{bias:+.4f}"),
        ("sum", f"{total:+.4f}"),
        ("the model's own value", f"{value:+.4f}"),
        ("conservation error", f"{explanation.completeness:.1e}"),
    ]


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "\u2212")
