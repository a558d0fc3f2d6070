"""Explained answers as Zarr folders: the table, which grows with answer times prompt, is written block by block.

It is computed as it is written, so that it never has to fit into memory, and read back lazily. The folder has another name
until it is complete.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import xarray as xr

from normscope.results import answer_schema as names
from normscope.results.answer import Answer
from normscope.results.zarr import ZarrStore, created, folder_in_the_making, read_zarr, write_rest

_CHUNK = 2**20
"""Cells of the table that are stored together, in whole rows."""


def write_answer(answer: Answer, path: str | Path) -> Path:
    """Write an answer with its table, of which no more than a block is in memory unless it was computed before."""
    data = answer.dataset
    outputs, tokens = data.sizes["output"], data.sizes["token"]
    table: Any = None
    rows: list[xr.Dataset] = []
    with folder_in_the_making(path) as folder:
        store, first = ZarrStore.at(folder), 0
        for block in answer.table_blocks():
            values = block[names.TABLE]
            if table is None:
                chunks = (max(1, min(outputs, _CHUNK // tokens)), tokens)
                table = created(store, names.TABLE, ("output", "token"), (outputs, tokens), chunks, values.dtype)
                table.attrs.update(values.attrs)
            table[first : first + len(values)] = values.values
            first += len(values)
            rows.append(block.drop_vars(names.TABLE))
        known = xr.concat(rows, "output")
        write_rest(data.assign({str(name): known[name].variable for name in known.data_vars}), store, names.TABLE)
    return Path(path)


def is_answer(path: str | Path) -> bool:
    """Whether a folder has the table of an answer."""
    return (Path(path) / names.TABLE).is_dir()


def read_answer(path: str | Path) -> Answer:
    """The answer in a folder. Its table is loaded lazily, chunk by chunk."""
    return Answer(read_zarr(path, names.TABLE, names.VARIABLES))
