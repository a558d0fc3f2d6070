"""Opening result files: the content of a file determines the kind of result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from normscope.errors import require_extra
from normscope.paths import kind
from normscope.results import answer_schema, explanation_schema, files, schema, similarity_schema
from normscope.results.analysis import Analysis
from normscope.results.answer import Answer
from normscope.results.base import Result
from normscope.results.explanation import Explanation
from normscope.results.similarity import Similarity

_KINDS: dict[str, type[Result]] = {
    explanation_schema.KIND: Explanation,
    similarity_schema.KIND: Similarity,
    answer_schema.KIND: Answer,
}
"""The kinds of results by the attribute `kind` of their dataset; without one, a dataset is an analysis."""


def _together(*tables: schema.Variables) -> schema.Variables:
    """The variables of several kinds of results: one of the same name may have the dimensions of each."""
    names = dict.fromkeys(name for table in tables for name in table)
    return {name: ", ".join(dict.fromkeys(table[name] for table in tables if name in table)) for name in names}


_VARIABLES = _together(
    schema.VARIABLES, explanation_schema.VARIABLES, similarity_schema.VARIABLES, answer_schema.VARIABLES
)


def open(path: str | Path) -> Any:
    """Read what a result's `save` wrote to netCDF: an `Analysis`, an `Explanation`, an `Answer` or a `Similarity`.

    A Zarr folder, as `Analyzer.analyze(..., out=)` writes it, is an `Analysis` whose maps are loaded lazily, and one that
    an answer was saved to is an `Answer` whose table is.

    Examples:
        >>> import normscope as ns
        >>> path = ns.load().analyze("A text.", scopes="AttnRes").save("text.nc")
        >>> ns.open(path).tokens
        ['[CLS]', 'a', 'text', '.', '[SEP]']
    """
    if kind(path, "read") == "a folder":
        require_extra("zarr", "A result in a folder", "zarr")
        from normscope.results.answer_zarr import is_answer, read_answer  # noqa: PLC0415  (an extra)
        from normscope.results.zarr import read  # noqa: PLC0415

        return read_answer(path) if is_answer(path) else read(path)
    tree = files.read_netcdf(path, _VARIABLES)
    main = tree[schema.DECODER] if schema.DECODER in tree.children else tree
    return _KINDS.get(str(main.attrs.get("kind")), Analysis).from_tree(tree)
