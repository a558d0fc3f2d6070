"""Explained answers to files, in the format that the file's ending names: pictures, a page, tidy tables, JSON, netCDF."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from normscope.errors import FileError
from normscope.options import Unit
from normscope.output.export import plain, write_figure, write_json, write_table
from normscope.paths import ANSWERS, FIGURES, NETCDF, PAGE, ZARR, ending
from normscope.results import answer_schema as names
from normscope.results.files import write_netcdf

if TYPE_CHECKING:
    from normscope.results.answer import Answer
    from normscope.results.spans import Spans

VERSION = 1
"""The version of the JSON document."""


def export_answer(answer: Answer, path: str | Path, *, unit: Unit = "sentence", **options: Any) -> Path:
    """Write an explained answer to a file: svg, png, pdf, html, csv, parquet, json, nc or zarr by its ending.

    Args:
        answer: what to write.
        path: the file. Tables are tidy: a row for every span of the unit and for everything that was left out.
        unit: the unit of tables, pictures, pages and of the spans in JSON.
        options: for pictures, those of `normscope.plots.plot_answer`.
    """
    kind = ending(path, ANSWERS, without=NETCDF)
    if options and kind not in FIGURES:
        raise FileError(f"Only pictures have the options {', '.join(options)}: {', '.join(FIGURES)}.")
    if kind in FIGURES:
        return write_figure(answer.plot(unit=unit, **options), path)
    if kind == PAGE:
        from normscope.explorer.page import write_answer_page  # noqa: PLC0415  (only pages need it)

        return write_answer_page(answer, path, unit)
    if kind == NETCDF:
        return write_netcdf(answer.tree, path)
    if kind == ZARR:
        from normscope.results.answer_zarr import write_answer  # noqa: PLC0415  (an extra)

        return write_answer(answer, path)
    if kind == "json":
        return write_json(document_of(answer, unit), path)
    rows = answer.spans(unit).rows()
    return write_table({name: np.array([row[name] for row in rows], dtype=object) for name in rows[0]}, path)


def document_of(answer: Answer, unit: Unit = "sentence") -> dict[str, object]:
    """Everything about an answer as plain lists: what a page needs to show it. Positions are characters of `text`.

    `text` is the prompt with the answer after it. `tokens` has every token that the model read (`output` is its index in
    the answer, or null), `outputs` every token of the answer, `segments` the documents, question, turns and the answer, and
    `spans` the units of the context with their share, ranked. Shares of the tokens, `bias` and `routed` (what stays with
    attention weights) add up to `value`, and so do those of `spans` and `left_out`. `table[output][token]` explains every
    token of the answer by itself, if it was computed.
    """
    data = answer.dataset
    return {
        "version": VERSION,
        "attributes": plain({name: value for name, value in answer.attrs.items() if name != "text"}),
        "text": str(data.attrs["text"]),
        "answer": answer.text,
        "explained": answer.explained,
        "objective": answer.objective,
        "value": answer.value,
        "bias": answer.bias,
        "routed": answer.routed,
        "completeness_error": answer.completeness,
        "tokens": {
            "token": answer.tokens,
            "start": data["token_start"].values.tolist(),
            "end": data["token_end"].values.tolist(),
            "output": [None if place < 0 else place for place in data["token_output"].values.tolist()],
            "sink": data["token_sink"].values.tolist(),
            "share": _plain(data[names.ATTRIBUTION].values),
        },
        "outputs": {
            "token": answer.output_tokens,
            "start": data["output_start"].values.tolist(),
            "end": data["output_end"].values.tolist(),
            "probability": answer.probabilities,
            "explained": data[names.SELECTED].values.tolist(),
        },
        "segments": [
            {"kind": str(kind), "name": str(name), "start": int(start), "end": int(end)}
            for kind, name, start, end in zip(
                *(data[f"segment_{each}"].values for each in ("group", "name", "start", "end")), strict=True
            )
        ],
        **_spans(answer, unit),
        "table": _table(answer),
    }


def _spans(answer: Answer, unit: Unit) -> dict[str, object]:
    spans: Spans = answer.spans(unit)
    rows = spans.rows()
    return {
        "unit": unit,
        "spans": [row for row in rows if row["rank"] is not None],
        "left_out": [{name: row[name] for name in ("text", "share", "tokens")} for row in rows if row["rank"] is None],
    }


def _table(answer: Answer) -> dict[str, object] | None:
    data = answer.tree.to_dataset()
    if names.TABLE not in data:
        return None
    return {
        "share": [_plain(row) for row in data[names.TABLE].values],
        "value": _plain(data[names.TABLE_VALUE].values),
        "bias": _plain(data[names.TABLE_BIAS].values),
        **({"routed": _plain(data[names.TABLE_ROUTED].values)} if names.TABLE_ROUTED in data else {}),
    }


def _plain(values: np.ndarray) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.astype(float).tolist()]
