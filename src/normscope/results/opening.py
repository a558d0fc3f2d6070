"""Opening result files: what is in a file decides what comes out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from normscope.paths import kind
from normscope.results import explanation_schema, files, schema, similarity_schema
from normscope.results import zarr as streaming
from normscope.results.analysis import Analysis
from normscope.results.explanation import Explanation
from normscope.results.similarity import Similarity

_KINDS: dict[str, Any] = {explanation_schema.KIND: Explanation, similarity_schema.KIND: Similarity}
"""The results that say of which kind they are; all others are analyses."""


def _together(*tables: schema.Variables) -> schema.Variables:
    """The variables of several kinds of results: one of the same name may have the dimensions of each."""
    names = dict.fromkeys(name for table in tables for name in table)
    return {name: ", ".join(dict.fromkeys(table[name] for table in tables if name in table)) for name in names}


_VARIABLES = _together(schema.VARIABLES, explanation_schema.VARIABLES, similarity_schema.VARIABLES)


def open(path: str | Path) -> Any:
    """Read what `Analysis.save` wrote, an `Analysis`, or an `Explanation` or a `Similarity` that saved itself.

    A Zarr folder, as `Analyzer.analyze(..., out=)` writes it, is an `Analysis` whose maps are read when they are looked at.

    Examples:
        >>> import normscope as ns
        >>> path = ns.load().analyze("A text.", scopes="AttnRes").save("text.nc")
        >>> ns.open(path).tokens
        ['[CLS]', 'a', 'text', '.', '[SEP]']
    """
    if kind(path, "read") == "a folder":
        return streaming.read(path)
    tree = files.read_netcdf(path, _VARIABLES)
    main = tree[schema.DECODER] if schema.DECODER in tree.children else tree
    result = _KINDS.get(str(main.attrs.get("kind")), Analysis)
    return result.from_tree(tree)
