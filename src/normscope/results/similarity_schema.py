"""The written schema of a similarity: names, dimensions and coordinates of the dataset behind every `Similarity`.

The tokens of the first text lie along `first`, those of the second along `second`. Cells, margins and the constant add up to
the value; a similarity without its table has the shares of the tokens instead. The documentation's schema page says the
same in prose.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from normscope.inputs import TokenSequence
from normscope.results import schema

KIND = "similarity"
SIDES = ("first", "second")

VALUE, ERROR = "value", "completeness_error"
TABLE, CONSTANT = "table", "constant"
MARGIN, SHARE, BIAS, PROMPT = "margin", "share", "bias", "prompt"
MATCH, MATCH_VALUE = "first_match", "first_match_value"

_OF_TOKENS = (
    *("", "_token", "_special", "_word", "_word_text", "_start", "_end"),
    *("_row", "_column", f"_{PROMPT}"),
)

VARIABLES: schema.Variables = {
    **{f"{side}{name}": side for side in SIDES for name in _OF_TOKENS},
    **{f"{side}_{name}": side for side in SIDES for name in (MARGIN, SHARE)},
    **{f"{side}_{BIAS}": "" for side in SIDES},
    **{f"{side}_{schema.IMAGE}": f"{side}_y {side}_x channel" for side in SIDES},
    VALUE: "",
    ERROR: "",
    TABLE: "first second",
    CONSTANT: "",
    MATCH: "first",
    MATCH_VALUE: "first",
}
"""Everything that the dataset of a similarity may have."""


@dataclass(frozen=True)
class Account:
    """How a similarity adds up: `table[k, l]`, the margins of both texts and the constant.

    Without a table, `first_share[k]` and `first_bias` add up to the value by themselves, and so do those of the second text.
    """

    table: np.ndarray | None = None
    first_margin: np.ndarray | None = None
    second_margin: np.ndarray | None = None
    constant: float | None = None
    first_share: np.ndarray | None = None
    second_share: np.ndarray | None = None
    first_bias: float | None = None
    second_bias: float | None = None


@dataclass(frozen=True)
class Matches:
    """For late interaction, for every token of the first text: the token of the second that it matched (-1 for tokens
    without a match), and how similar their vectors are, which adds up to the value."""

    tokens: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class Text:
    """One text as the model read it: its tokens, and which of them belong to the instruction (the prompt) before it."""

    text: str
    prompt: str
    sequence: TokenSequence
    is_prompt: list[bool]


def similarity_dataset(
    value: float,
    error: float,
    account: Account,
    texts: tuple[Text, Text],
    facts: schema.Attributes,
    matches: Matches | None = None,
) -> xr.Dataset:
    """The dataset of two texts. `facts` say where it came from, `measure` and `pooling` among them."""
    variables: dict[str, object] = {VALUE: ((), value), ERROR: ((), error)}
    for name, values in vars(account).items():
        if values is not None:
            dimensions = VARIABLES[name].split()
            variables[name] = tuple(dimensions), values
    if matches is not None:
        variables |= {MATCH: ("first", matches.tokens), MATCH_VALUE: ("first", matches.values)}
    coordinates: dict[str, object] = {}
    for side, text in zip(SIDES, texts, strict=True):
        coordinates |= schema.token_coordinates(side, {"": text.sequence})
        if text.sequence.image is not None:
            variables[f"{side}_{schema.IMAGE}"] = (f"{side}_y", f"{side}_x", "channel"), text.sequence.image
        coordinates[f"{side}_{PROMPT}"] = side, np.array(text.is_prompt, dtype=bool)
    attributes = {"schema_version": schema.VERSION, "kind": KIND, "unit": "token", **facts}
    for side, text in zip(SIDES, texts, strict=True):
        attributes |= {f"{side}_text": text.text, f"{side}_prompt": text.prompt}
    return xr.Dataset(variables, coordinates, attributes)
