"""Maps and mixing ratios to files, in the format that the file's ending names: pictures, tidy tables, JSON, netCDF.

Everything is checked before anything is computed or written, and a file appears under its name only when it is complete.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from normscope.errors import InputError, listing
from normscope.options import also_spelled, normalise_axis
from normscope.paths import FIGURES, MAPS, NETCDF, PAGE, PARQUET, RESULTS, ending
from normscope.results.files import replacing, write_netcdf
from normscope.results.frames import Columns, cell_columns
from normscope.results.select import check_layers, check_scopes, select_map
from normscope.scopes import Scope, basis, resolve_all

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from normscope.results.analysis import Analysis


def export_analysis(analysis: Analysis, path: str | Path, **options: Any) -> Path:
    """Write an analysis as the file's ending says: all of it to netCDF or a page of the explorer, maps to anything else.

    Args:
        analysis: what to write.
        path: the file. Without an ending it is netCDF.
        options: those of `normscope.explorer.write_page` for a page; else those of `export_map`, which choose maps.
    """
    kind = ending(path, RESULTS, without=NETCDF)
    if kind == PAGE:
        from normscope.explorer.page import write_page  # noqa: PLC0415  (only pages need it)

        return write_page(analysis, path=path, **options)
    if kind == NETCDF and not options:
        return write_netcdf(analysis.tree, path)
    return export_map(analysis, path, **options)


@also_spelled(normalize="normalise")
def export_map(
    analysis: Analysis,
    path: str | Path,
    scope: str | Sequence[str] | None = None,
    layer: int | Sequence[int] | None = None,
    *,
    head: int | None = None,
    normalise: str = "none",
    **options: Any,
) -> Path:
    """Write maps to a file: svg, png, pdf, csv, parquet, json or nc by its ending.

    Args:
        analysis: the analysis with the maps.
        path: the file. Tables are tidy: scope, layer, (head,) query, query_token, key, key_token, value; a cell whose key
            does not exist for its query has no row.
        scope: a scope or several (default all; a picture shows one, by default the whole layer).
        layer: a layer or several (default all).
        head: a head, at the scopes where heads are separate.
        normalise: `"none"`, `"row"` or `"column"`.
        options: for pictures, those of `normscope.plots.plot_map`.

    Examples:
        >>> from normscope.output.export import export_map
        >>> export_map(analysis, "maps.csv", ["Attn", "AttnRes"]).name
        'maps.csv'
    """
    kind = ending(path, MAPS)
    if kind in FIGURES:
        name = None if scope is None else _only(check_scopes(analysis, scope))
        from normscope.plots import plot_map  # noqa: PLC0415  (matplotlib is slow to import)

        return write_figure(plot_map(analysis, name, layer, head=head, normalise=normalise, **options), path)
    scopes = check_scopes(analysis, scope)
    if kind == NETCDF:
        return write_netcdf(narrowed(analysis, scopes, layer, head, normalise).tree, path)
    selections = [select_map(analysis, name, layer, head=head, normalised=normalise) for name in scopes]
    maps = {selection.scope: selection.values for selection in selections}
    if kind == "json":
        return write_json(map_document(maps, analysis.attrs, normalise), path)
    tables = [cell_columns(name, values, analysis.approximate) for name, values in maps.items()]
    return write_table({name: np.concatenate([table[name] for table in tables]) for name in tables[0]}, path)


def export_mixing_ratios(
    ratios: xr.DataArray, path: str | Path, scope: str | Sequence[str] | None = None, **options: Any
) -> Path:
    """Write mixing ratios `[scope, layer, query]` to a file: svg, png, pdf, csv, parquet, json or nc by its ending.

    Examples:
        >>> from normscope.output.export import export_mixing_ratios
        >>> export_mixing_ratios(analyzer.mixing_ratios("A text."), "ratios.parquet").name
        'ratios.parquet'
    """
    kind = ending(path, MAPS)
    scopes = resolve_all(scope, [str(name) for name in ratios["scope"].values])
    if kind in FIGURES:
        from normscope.plots import plot_mixing_ratio  # noqa: PLC0415  (matplotlib is slow to import)

        name = None if scope is None else _only(scopes)
        return write_figure(plot_mixing_ratio(ratios, name, **options), path)
    ratios = ratios.sel(scope=scopes)
    if kind == "json":
        return write_json(ratio_document(ratios), path)
    if kind == NETCDF:
        return write_netcdf(xr.DataTree(ratios.to_dataset(name="mixing_ratio")), path)
    return write_table(ratio_table(ratios), path)


def _only(scopes: Sequence[Scope]) -> Scope:
    """The only one of some scopes."""
    if len(scopes) > 1:
        raise InputError(f"A picture shows one scope: choose one of {listing(scopes)}, or write a table.")
    return scopes[0]


# ---- what goes into the files --------------------------------------------------------------------------------------------


def ratio_table(ratios: xr.DataArray) -> Columns:
    """Mixing ratios `[scope, layer, query]` as one row each."""
    ordered = ratios.transpose("scope", "layer", "query")
    scope, layer, query = np.nonzero(np.isfinite(ordered.values))
    return {
        "scope": ratios["scope"].values[scope].astype(object),
        "layer": ratios["layer"].values[layer],
        "query": ratios["query"].values[query],
        "query_token": ratios["query_token"].values[query],
        "mixing_ratio": ordered.values[scope, layer, query],
    }


def map_document(
    maps: Mapping[Scope, xr.DataArray], attributes: Mapping[Any, object], normalise: str
) -> dict[str, object]:
    """Maps as plain lists, with the tokens and attributes; a cell that does not exist is null."""
    first = next(iter(maps.values()))
    heads = {"head": int(first["head"].item())} if "head" in first.coords else {}
    return {
        "attributes": plain(attributes),
        "normalise": normalise,
        "query": first["query"].values.tolist(),
        "query_token": first["query_token"].values.tolist(),
        "key": first["key"].values.tolist(),
        "key_token": first["key_token"].values.tolist(),
        "key_group": first["key_group"].values.tolist(),
        "maps": [
            {"scope": scope, "layer": int(layer), **heads, "values": _nested(values.sel(layer=layer))}
            for scope, values in maps.items()
            for layer in values["layer"].values
        ],
    }


def ratio_document(ratios: xr.DataArray) -> dict[str, object]:
    """Mixing ratios as plain lists, `[layer][query]` for each scope."""
    return {
        "attributes": plain(ratios.attrs),
        "layer": ratios["layer"].values.tolist(),
        "query": ratios["query"].values.tolist(),
        "query_token": ratios["query_token"].values.tolist(),
        "mixing_ratios": [
            {"scope": str(scope), "values": _nested(ratios.sel(scope=scope))} for scope in ratios["scope"].values
        ],
    }


def narrowed(
    analysis: Analysis, scopes: Sequence[str], layer: int | Sequence[int] | None, head: int | None, normalise: str
) -> Analysis:
    """The analysis with only the requested scopes, layers and head, in the same schema; an encoder's stays whole."""
    if normalise_axis(normalise) != "none":
        raise InputError(
            "A netCDF file holds an analysis, whose maps are never normalised: leave normalise out and use "
            "Analysis.normalised after opening it, or write a table."
        )
    for scope in scopes:
        select_map(analysis, scope, layer, head=head)  # raises if there is no such map
    needed = {basis(Scope(scope)) for scope in scopes}
    selection: dict[str, object] = {
        "scope": [scope for scope in analysis.dataset["scope"].values if str(scope) in needed],
        "layer": check_layers(analysis, layer),
    }
    if head is not None:
        selection["head"] = [head]
    encoder = analysis.encoder if analysis.has_encoder else None
    return type(analysis)(analysis.dataset.sel(selection), encoder)


def _nested(values: xr.DataArray) -> list[list[float | None]]:
    rows = values.values.astype(float).tolist()
    return [[value if np.isfinite(value) else None for value in row] for row in rows]


def plain(attributes: Mapping[Any, object]) -> dict[str, object]:
    """Attributes as JSON values: numpy's numbers, as read from files, become plain ones."""
    return {str(name): value.item() if isinstance(value, np.generic) else value for name, value in attributes.items()}


# ---- writing -------------------------------------------------------------------------------------------------------------


def write_figure(figure: Figure, path: str | Path) -> Path:
    """Write a figure as svg, png or pdf; the same figure always gives the same file.

    Examples:
        >>> from normscope.output.export import write_figure
        >>> write_figure(analysis.plot("Attn", layer=3), "map.pdf").name
        'map.pdf'
    """
    kind = ending(path, FIGURES)
    from normscope.plots.picture import legible  # noqa: PLC0415  (matplotlib is slow to import)
    from normscope.plots.style import publication  # noqa: PLC0415

    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[kind]
    with replacing(path) as temporary, publication(), legible(figure, text_stays=kind == "svg"):
        figure.savefig(temporary, format=kind, metadata=metadata, bbox_inches="tight", pad_inches=0.05)
    return Path(path)


def write_table(columns: Columns, path: str | Path) -> Path:
    """Write a table as csv or parquet."""
    kind = ending(path, ("csv", PARQUET))
    with replacing(path) as temporary:
        if kind == PARQUET:
            import pyarrow as pa  # noqa: PLC0415  (an extra)
            from pyarrow import parquet  # noqa: PLC0415

            parquet.write_table(pa.table(columns), temporary)
        else:
            pd.DataFrame(columns).to_csv(temporary, index=False, lineterminator="\n")
    return Path(path)


def write_json(document: dict[str, object], path: str | Path) -> Path:
    """Write a document as UTF-8 JSON."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(document, ensure_ascii=False, allow_nan=False), encoding="utf-8")
    return Path(path)
