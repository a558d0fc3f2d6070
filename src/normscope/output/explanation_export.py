"""Explanations to files, in the format that the file's ending names: pictures, a page, tidy tables, JSON, netCDF."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from normscope.errors import FileError
from normscope.output.export import plain, write_figure, write_json, write_table
from normscope.paths import FIGURES, NETCDF, PAGE, RESULTS, ending
from normscope.results.files import write_netcdf
from normscope.results.frames import Columns, attribution_columns

if TYPE_CHECKING:
    from normscope.results.explanation import Explanation


def export_explanation(
    explanation: Explanation, path: str | Path, *, flow: float | None = None, **options: Any
) -> Path:
    """Write an explanation to a file: svg, png, pdf, html (the explorer), csv, parquet, json or nc by its ending.

    Args:
        explanation: what to write.
        path: the file. Tables are tidy: a row for every value and token.
        flow: in a picture, the graph of the edges that carry this share of the flow, instead of the coloured text.
        options: for pictures, those of `normscope.plots.plot_explanation` or `plot_flow`; for a page, those of
            `normscope.explorer.write_page`.
    """
    kind = ending(path, RESULTS, without=NETCDF)
    if flow is not None and kind not in FIGURES:
        raise FileError(f"A flow graph alone is a picture: give a file that ends in {', '.join(FIGURES)}.")
    if kind in FIGURES:
        figure = explanation.plot(**options) if flow is None else explanation.plot_flow(flow, **options)
        return write_figure(figure, path)
    if kind == PAGE:
        from normscope.explorer.page import write_page  # noqa: PLC0415  (only pages need it)

        return write_page(explanation, path=path, **options)
    if kind == NETCDF:
        return write_netcdf(explanation.tree, path)
    if kind == "json":
        return write_json(document_of(explanation), path)
    return write_table(table_of(explanation), path)


def table_of(explanation: Explanation) -> Columns:
    """One row for every value and token; with the bias, the attributions of a value add up to it where they are meant to."""
    return attribution_columns(explanation)


def document_of(explanation: Explanation) -> dict[str, object]:
    """The same as plain lists; a token that has no share has null."""
    shares = explanation.shares
    return {
        "attributes": plain(explanation.attrs),
        "method": explanation.method,
        "quantity": explanation.quantity,
        "probabilities_of": explanation.probabilities_of or None,
        "position": shares["token_position"].values.tolist(),
        "token": explanation.tokens,
        "token_group": shares["token_group"].values.tolist(),
        "targets": [
            {
                "name": name,
                "position": int(shares["target_position"].values[index]),
                "value": explanation.values[index],
                "bias": explanation.biases[index] if explanation.adds_up else None,
                "attribution": [value if np.isfinite(value) else None for value in shares.values[index].tolist()],
                **_account_of(explanation, index),
                "predictions": [
                    {"name": label, "probability": probability}
                    for label, probability in explanation.top_predictions(index)
                ],
            }
            for index, name in enumerate(explanation.targets)
        ],
    }


def _account_of(explanation: Explanation, target: int) -> dict[str, object]:
    """The share of the weights in one value, in total and by the tokens that were attended to."""
    if not explanation.counts_weights:
        return {}
    looked = np.atleast_2d(explanation.looked_at.values)[target]
    return {"routed": explanation.accounts[target], "looked_at": looked.tolist()}
