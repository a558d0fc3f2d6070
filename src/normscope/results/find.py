"""Tokens by name: the token of a text that a word stands for, if it is given instead of a position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches

import numpy as np
import xarray as xr

from normscope.errors import SelectionError, listing
from normscope.options import whole_number
from normscope.results.tokens import pieces

_MOST_LISTED = 30


def find_token(
    name: str,
    tokens: Sequence[str],
    *,
    words: Sequence[str] | None = None,
    positions: Sequence[int] | None = None,
    what: str = "token",
) -> int:
    """The index of the token that a name means.

    A name is compared with the tokens as the tokenizer writes them, then as they are read (without marks of spaces and
    joins), then in any case, and at last with the words that the tokens belong to. The first comparison that finds a token
    decides; if it finds several, the error names their positions.
    """
    texts, wanted = [piece.text for piece in pieces(tokens)], name.strip()
    numbers = list(range(len(tokens)) if positions is None else positions)
    comparisons: list[Callable[[int], bool]] = [
        lambda index: tokens[index] == name,
        lambda index: texts[index] == wanted,
        lambda index: texts[index].casefold() == wanted.casefold(),
    ]
    for matches in comparisons:
        found = [index for index in range(len(tokens)) if matches(index)]
        if len(found) == 1:
            return found[0]
        if found:
            places = listing(numbers[index] for index in found)
            raise SelectionError(f"The token {name!r} occurs {len(found)} times: choose by position ({places}).")
    members = [index for index, word in enumerate(words or ()) if word.casefold() == wanted.casefold()]
    if wanted and len(members) == 1:
        return members[0]
    if wanted and members:
        pairs = listing(f"{tokens[index]!r} at {numbers[index]}" for index in members)
        raise SelectionError(f"The word {name!r} is not one token here: choose one of {pairs}.")
    raise SelectionError(_missing(name, tokens, texts, what))


def _missing(name: str, tokens: Sequence[str], texts: Sequence[str], what: str) -> str:
    close = get_close_matches(name.strip().casefold(), [text.casefold() for text in texts], n=1)
    hint = f" Did you mean {next(text for text in texts if text.casefold() == close[0])!r}?" if close else ""
    more = f" and {len(tokens) - _MOST_LISTED} more" if len(tokens) > _MOST_LISTED else ""
    return f"No {what} is the token {name!r}.{hint} Tokens: {listing(tokens[:_MOST_LISTED])}{more}."


def find_query(values: xr.DataArray, query: int | str) -> int:
    """The row of a query, given by its position (negative from the end) or by its token, if only one query has it."""
    positions = values["query"].values
    if isinstance(query, str):
        words = values.coords.get("query_word_text")
        return find_token(
            query,
            [str(token) for token in values["query_token"].values],
            words=None if words is None else [str(word) for word in words.values],
            positions=positions.tolist(),
            what="query",
        )
    asked = whole_number(query, "The position of a query")
    position = asked if asked >= 0 else asked + int(positions.max()) + 1
    rows = np.flatnonzero(positions == position)
    if not len(rows):
        raise SelectionError(f"There is no query {query} here. Positions: {listing(positions)}.")
    return int(rows[0])


def chosen(values: xr.DataArray, layer: int | None, query: int | str | None) -> xr.DataArray:
    """One layer and one row of maps or ratios, or all of them."""
    if layer is not None:
        layers, number = [int(each) for each in values["layer"].values], whole_number(layer, "A layer")
        if number not in layers:
            raise SelectionError(f"There is no layer {number} here. Analysed layers: {listing(layers)}.")
        values = values.sel(layer=number)
    return values if query is None else values.isel(query=find_query(values, query))
