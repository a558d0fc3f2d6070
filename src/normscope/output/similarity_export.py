"""Similarities to files, in the format that the file's ending names: pictures, a page, tidy tables, JSON, netCDF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from normscope.errors import FileError
from normscope.output.export import Columns, plain, write_figure, write_json, write_table
from normscope.paths import FIGURES, NETCDF, PAGE, RESULTS, ending
from normscope.results.files import write_netcdf
from normscope.results.similarity import check_one_model

if TYPE_CHECKING:
    from normscope.results.similarity import Similarity


def export_similarities(similarities: Sequence[Similarity], path: str | Path, **options: Any) -> Path:
    """Write one similarity, or several of one model, to a file: svg, png, pdf, html, csv, parquet, json or nc by its ending.

    Args:
        similarities: what to write. A picture and a netCDF file hold one.
        path: the file. Tables are tidy: a row for every cell, for every token's margin, and for the constant.
        options: for pictures, those of `normscope.plots.plot_similarity`.
    """
    kind = ending(path, RESULTS, without=NETCDF)
    check_one_model(similarities)
    if kind in (*FIGURES, NETCDF):
        check_single(similarities, path)
    if kind in FIGURES:
        return write_figure(similarities[0].plot(**options), path)
    if kind == PAGE:
        from normscope.explorer.page import write_page  # noqa: PLC0415  (only pages need it)

        return write_page(*similarities, path=path)
    if kind == NETCDF:
        return write_netcdf(similarities[0].tree, path)
    if kind == "json":
        return write_json({"similarities": [document_of(each) for each in similarities]}, path)
    return write_table(table_of(similarities), path)


def check_single(similarities: Sequence[Similarity], path: str | Path) -> None:
    """Raise if several similarities would go into a file that holds one."""
    if len(similarities) > 1:
        raise FileError(
            f"{str(path)!r} holds one similarity, and there are {len(similarities)}: write a page (html), a table (csv, "
            f"parquet) or JSON."
        )


def table_of(similarities: Sequence[Similarity]) -> Columns:
    """One row for every number; those of a similarity add up to its value. Without a table, those of the first text do."""
    rows = [row for number, each in enumerate(similarities) for row in _rows(number, each)]
    names = ("similarity", "value", "part", "first", "first_token", "second", "second_token", "share")
    return {name: np.array([row[index] for row in rows], dtype=object) for index, name in enumerate(names)}


def _rows(number: int, similarity: Similarity) -> list[tuple[Any, ...]]:
    first, second = list(enumerate(similarity.first_tokens)), list(enumerate(similarity.second_tokens))
    none, start = (None, None), (number, similarity.value)
    if not similarity.has_table:
        shares = [(*start, "token", *token, *none, float(similarity.first[token[0]])) for token in first]
        return [*shares, (*start, "bias", *none, *none, similarity.first_bias)]
    cells, margins, columns = similarity.table.values, similarity.first_margin.values, similarity.second_margin.values
    return [
        *((*start, "cell", *one, *other, float(cells[one[0], other[0]])) for one in first for other in second),
        *((*start, "margin", *one, *none, float(margins[one[0]])) for one in first),
        *((*start, "margin", *none, *other, float(columns[other[0]])) for other in second),
        (*start, "constant", *none, *none, similarity.constant),
    ]


def document_of(similarity: Similarity) -> dict[str, Any]:
    """A similarity as plain lists."""
    matches = similarity.matches
    return {
        "attributes": plain(similarity.attrs),
        "measure": similarity.measure,
        "value": similarity.value,
        "completeness_error": similarity.completeness,
        "first": _side(similarity, "first"),
        "second": _side(similarity, "second"),
        "table": similarity.table.values.tolist() if similarity.has_table else None,
        "constant": similarity.constant if similarity.has_table else None,
        "match": None if matches is None else matches["match"].values.tolist(),
    }


def _side(similarity: Similarity, side: str) -> dict[str, Any]:
    dataset = similarity.dataset
    return {
        "text": dataset.attrs[f"{side}_text"],
        "prompt": dataset.attrs[f"{side}_prompt"],
        "token": [str(token) for token in dataset[f"{side}_token"].values],
        "is_prompt": np.asarray(dataset[f"{side}_prompt"].values, bool).tolist(),
        "share": getattr(similarity, side).values.tolist(),
        "bias": getattr(similarity, f"{side}_bias"),
        "margin": dataset[f"{side}_margin"].values.tolist() if similarity.has_table else None,
    }
