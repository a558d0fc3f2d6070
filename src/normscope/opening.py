"""Opening result files: what is in a file decides what comes out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from normscope import files, schema, streaming
from normscope.analysis import Analysis
from normscope.explain.datasets import KIND
from normscope.explain.explanation import Explanation


def open(path: str | Path) -> Any:
    """Read what `Analysis.save` wrote, an `Analysis`, or what `Explanation.save` wrote, an `Explanation`.

    A Zarr folder, as `Analyzer.analyze(..., out=)` writes it, is an `Analysis` whose maps are read when they are looked at.

    Examples:
        >>> import normscope as ns
        >>> path = ns.load().analyze("A text.", scopes="AttnRes").save("text.nc")
        >>> ns.open(path).tokens
        ['[CLS]', 'a', 'text', '.', '[SEP]']
    """
    if Path(path).is_dir():
        return streaming.read(path)
    tree = files.read_netcdf(path)
    main = tree[schema.DECODER] if schema.DECODER in tree.children else tree
    kind = Explanation if main.attrs.get("kind") == KIND else Analysis
    return kind.from_tree(tree)
