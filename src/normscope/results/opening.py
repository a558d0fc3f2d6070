"""Opening result files: what is in a file decides what comes out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from normscope.errors import require_extra
from normscope.paths import kind
from normscope.results import files, schema
from normscope.results.analysis import Analysis
from normscope.results.explanation import Explanation
from normscope.results.explanation_schema import KIND, VARIABLES


def open(path: str | Path) -> Any:
    """Read what `Analysis.save` wrote, an `Analysis`, or what `Explanation.save` wrote, an `Explanation`.

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
    tree = files.read_netcdf(path, {**schema.VARIABLES, **VARIABLES})
    main = tree[schema.DECODER] if schema.DECODER in tree.children else tree
    result = Explanation if main.attrs.get("kind") == KIND else Analysis
    return result.from_tree(tree)
