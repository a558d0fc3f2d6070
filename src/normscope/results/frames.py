"""Results as tidy tables: the columns that files have too, and the strongest numbers first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import xarray as xr

from normscope.errors import InputError
from normscope.options import also_spelled, whole_number
from normscope.results.explanation_words import shares_of
from normscope.results.find import find_query
from normscope.results.select import check_scopes, select_map
from normscope.scopes import Scope

if TYPE_CHECKING:
    from normscope.results.analysis import Analysis
    from normscope.results.explanation import Explanation
    from normscope.results.flow import Flow
    from normscope.results.verification import Verification

Columns = dict[str, np.ndarray]
"""A table as one array for each column."""


def cell_columns(scope: str, values: xr.DataArray, how: str | None = None) -> Columns:
    """Maps `[layer, query, key]`, an entry for each cell that exists; if some maps are approximate, a column says which."""
    ordered = values.transpose("layer", "query", "key")
    layer, query, key = np.nonzero(np.isfinite(ordered.values))
    columns: Columns = {"scope": _repeated(str(scope), len(layer)), "layer": values["layer"].values[layer]}
    if "head" in values.coords:
        columns["head"] = np.full(len(layer), int(values["head"].item()))
    columns |= {
        "query": values["query"].values[query],
        "query_token": values["query_token"].values[query],
        "key": values["key"].values[key],
        "key_token": values["key_token"].values[key],
    }
    if how is not None:
        columns["approximate"] = _repeated(how if "Ff" in Scope(scope).components else "exact", len(layer))
    if len(set(values["key_group"].values)) > 1:
        columns["key_group"] = values["key_group"].values[key]
    return {**columns, "value": ordered.values[layer, query, key]}


@also_spelled(normalize="normalise")
def map_frame(
    analysis: Analysis,
    scope: str | Sequence[str] | None = None,
    layer: int | Sequence[int] | None = None,
    *,
    head: int | None = None,
    normalise: str = "none",
) -> pd.DataFrame:
    """The cells of maps, one row each, in the columns of a saved table."""
    selections = [
        select_map(analysis, name, layer, head=head, normalised=normalise) for name in check_scopes(analysis, scope)
    ]
    tables = [pd.DataFrame(cell_columns(each.scope, each.values, analysis.approximate)) for each in selections]
    return pd.concat(tables, ignore_index=True)


@also_spelled(normalize="normalise")
def top_cells(
    analysis: Analysis,
    k: int = 10,
    scope: str | None = None,
    layer: int | Sequence[int] | None = None,
    *,
    query: int | str | None = None,
    head: int | None = None,
    normalise: str = "none",
    own: bool = False,
) -> pd.DataFrame:
    """The strongest cells of maps, by absolute value. A token's own part tops most rows: it counts with `own` only."""
    layers = analysis.layers[-1] if layer is None else layer
    selection = select_map(analysis, scope, layers, head=head, normalised=normalise)
    values = selection.values if query is None else selection.values.isel(query=[find_query(selection.values, query)])
    frame = pd.DataFrame(cell_columns(selection.scope, values, analysis.approximate))
    if not own:
        other = frame["query"] != frame["key"]
        frame = frame.loc[other | (frame["key_group"] == "source") if "key_group" in frame else other]
    return _strongest(frame, "value", k)


def attribution_columns(explanation: Explanation) -> Columns:
    """Every value and token; with the bias, the attributions of a value add up to it where they are meant to."""
    shares = explanation.shares
    target, token = np.nonzero(np.isfinite(shares.values))
    columns: Columns = {
        "target": target,
        "target_name": np.array(explanation.targets, dtype=object)[target],
        "target_position": shares["target_position"].values[target],
        "token_group": shares["token_group"].values[token],
        "position": shares["token_position"].values[token],
        "token": shares["token_token"].values[token],
        **_characters(shares, token),
        "attribution": shares.values[target, token],
        "value": np.array(explanation.values)[target],
    }
    if explanation.adds_up:
        columns["bias"] = np.array(explanation.biases)[target]
    if explanation.counts_weights:
        looked = np.atleast_2d(explanation.looked_at.values)
        columns |= {"routed": np.array(explanation.accounts)[target], "looked_at": looked[target, token]}
    return {**columns, "method": _repeated(explanation.method, len(target))}


def _characters(shares: xr.DataArray, token: np.ndarray) -> Columns:
    """Where each token stands in its text, in characters, -1 for those that stand for none of it; nothing if not known."""
    known = [name for name in ("start", "end") if f"token_{name}" in shares.coords]
    return {name: shares[f"token_{name}"].values[token] for name in known}


def attribution_frame(explanation: Explanation) -> pd.DataFrame:
    """The attribution of every value to every token, one row each, in the columns of a saved table."""
    return pd.DataFrame(attribution_columns(explanation))


def top_tokens(explanation: Explanation, k: int = 10, *, target: int | None = None) -> pd.DataFrame:
    """The tokens with the largest shares by absolute value: of one value, or of all values together."""
    shares = shares_of(explanation, None if target is None else explanation.index_of(target))
    frame = pd.DataFrame(
        {
            "token": shares["token_token"].values,
            "position": shares["token_position"].values,
            "token_group": shares["token_group"].values,
            "attribution": shares.values,
        }
    )
    sinks = explanation.sinks
    if sinks:
        frame["sink"] = frame.index.isin(sinks)
    return _strongest(frame.dropna(subset=["attribution"]), "attribution", k)


def edge_frame(flow: Flow) -> pd.DataFrame:
    """The edges of a flow graph, one row each, in their order."""
    return pd.DataFrame(
        {
            "layer": [edge.layer for edge in flow.edges],
            "key": [edge.key for edge in flow.edges],
            "key_token": [flow.key_tokens[edge.key] for edge in flow.edges],
            "query": [edge.query for edge in flow.edges],
            "query_token": [flow.tokens[edge.query] for edge in flow.edges],
            "value": [edge.value for edge in flow.edges],
        }
    )


def top_edges(flow: Flow, k: int = 10) -> pd.DataFrame:
    """The strongest edges of a flow graph, by absolute value."""
    return _strongest(edge_frame(flow), "value", k)


def _repeated(text: str, count: int) -> np.ndarray:
    return np.full(count, text, dtype=object)


def _strongest(frame: pd.DataFrame, column: str, k: int) -> pd.DataFrame:
    count = whole_number(k, "How many to show (k)")
    if count < 1:
        raise InputError(f"At least one is shown, not {count}.")
    order = np.argsort(-np.abs(frame[column].to_numpy()), kind="stable")[:count]
    return frame.iloc[order].reset_index(drop=True)


def cut_frame(verified: Verification) -> pd.DataFrame:
    """Edges that were cut, one row each: what was predicted of the value, and what was observed; where weights are counted,
    also the share that the explanation gives the edge."""
    edges, tokens = verified.edges, verified.tokens
    shares = {"share": verified.explained.shares} if verified.explained.counts_weights else {}
    return pd.DataFrame(
        {
            "layer": [edge.layer for edge in edges],
            "query": [edge.query for edge in edges],
            "query_token": [tokens[edge.query] for edge in edges],
            "key": [edge.key for edge in edges],
            "key_token": [tokens[edge.key] for edge in edges],
            **shares,
            "predicted": verified.predicted,
            "observed": verified.observed,
        }
    )
