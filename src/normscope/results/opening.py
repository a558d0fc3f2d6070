"""Opening result files: what is in a file decides what comes out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from normscope.errors import require_extra
from normscope.paths import kind
from normscope.results import answer_schema, files, schema
from normscope.results.analysis import Analysis
from normscope.results.answer import Answer
from normscope.results.explanation import Explanation
from normscope.results.explanation_schema import KIND, VARIABLES


def open(path: str | Path) -> Any:
    """Read what a result's `save` wrote to netCDF: an `Analysis`, an `Explanation` or an `Answer`.

    A Zarr folder, as `Analyzer.analyze(..., out=)` writes it, is an `Analysis` whose maps are read when they are looked at.

    Examples:
        >>> import normscope as ns
        >>> path = ns.load().analyze("A text.", scopes="AttnRes").save("text.nc")
        >>> ns.open(path).tokens
        ['[CLS]', 'a', 'text', '.', '[SEP]']
    """
    if kind(path, "read") == "a folder":
        require_extra("zarr", "A result in a folder", "zarr")
        from normscope.results.zarr import read  # noqa: PLC0415  (an extra)

        return read(path)
    tree = files.read_netcdf(path, {**schema.VARIABLES, **VARIABLES, **answer_schema.VARIABLES})
    main = tree[schema.DECODER] if schema.DECODER in tree.children else tree
    results = {KIND: Explanation, answer_schema.KIND: Answer}
    return results.get(str(main.attrs.get("kind")), Analysis).from_tree(tree)
