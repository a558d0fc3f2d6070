"""An explanation as a fragment of HTML, for notebooks without the explorer. Every text is escaped; nothing is fetched."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from jinja2 import Environment, PackageLoader
from matplotlib.colors import to_hex

from normscope.plots.style import DIVERGING, SEQUENTIAL, diverging_norm, ink_on, sequential_norm
from normscope.results.explanation_words import heading, sink_note, token_names, without_sinks
from normscope.results.tokens import name_of, pieces

if TYPE_CHECKING:
    from normscope.results.explanation import Explanation


def fragment(explanation: Explanation) -> str:
    """The coloured text of every value, for a notebook's cell."""
    environment = _environment()
    coloured = environment.get_template("fragment.html").make_module().coloured  # pyright: ignore[reportAttributeAccessIssue]
    style = environment.get_template("style.css").render()
    shown = [coloured(_view(explanation, target)) for target in range(len(explanation.targets))]
    return "\n".join([f"<style>{style}</style>", *(str(each) for each in shown)])


@cache
def _environment() -> Environment:
    return Environment(loader=PackageLoader("normscope.output"), autoescape=True, trim_blocks=True, lstrip_blocks=True)


def _view(explanation: Explanation, target: int) -> dict[str, object]:
    """What the fragment shows for one value."""
    shares = explanation.shares.isel(target=target)
    biases = [explanation.biases[target]] if explanation.adds_up else []
    colour = _colours(explanation, np.array([*without_sinks(explanation, shares.values), *biases]))
    return {
        "heading": heading(explanation, target),
        "tokens": _tokens(explanation, shares, colour),
        "sink_note": sink_note(explanation),
        "bias": {**colour(biases[0]), "value": f"{biases[0]:+.4f}"} if biases else None,
        "predictions": _predictions(explanation, target),
        "probabilities_of": explanation.probabilities_of,
        "note": explanation.note if target == 0 else "",
    }


def _tokens(
    explanation: Explanation, shares: xr.DataArray, colour: Callable[[float], dict[str, str]]
) -> list[dict[str, object]]:
    names, sinks = shares["token_token"].values.tolist(), set(explanation.sinks)
    groups = [str(name) for name in shares["token_group"].values]
    running = pieces(names, shares["token_special"].values.tolist())
    return [
        {
            "text": piece.text,
            "spaced": piece.spaced,
            "line_before": index > 0 and groups[index] != groups[index - 1],
            "label": label,
            "sink": index in sinks,
            "position": int(position),
            "value": f"{value:+.4f}" if np.isfinite(value) else "",
            **colour(np.nan if index in sinks else value),
        }
        for index, (piece, label, position, value) in enumerate(
            zip(running, token_names(explanation), shares["token_position"].values, shares.values.tolist(), strict=True)
        )
    ]


def _colours(explanation: Explanation, values: np.ndarray) -> Callable[[float], dict[str, str]]:
    """A function from a share to its background and ink."""
    ranges = diverging_norm if explanation.signed else sequential_norm
    norm, colours = ranges(np.nan_to_num(values)[None], None, "linear"), DIVERGING if explanation.signed else SEQUENTIAL

    def colour(value: float) -> dict[str, str]:
        if not np.isfinite(value):
            return {"background": "", "ink": ""}
        shown = colours(norm(value))
        return {"background": to_hex(shown), "ink": ink_on(shown)}

    return colour


def _predictions(explanation: Explanation, target: int) -> list[dict[str, str]]:
    return [
        {"name": name_of(name), "probability": f"{probability:.1%}"}
        for name, probability in explanation.top_predictions(target)
    ]
