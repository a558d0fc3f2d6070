"""The result of an analysis: maps, mixing ratios and their proof, as labelled arrays that show, combine and save themselves.

An `Analysis` is a thin, read-only view on an xarray dataset with a written schema; every method that selects or combines
gives a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xarray as xr

from normscope.errors import InputError, SelectionError, listing
from normscope.options import NormaliseAxis, normalise_axis
from normscope.results import schema
from normscope.results import words as units
from normscope.results.rollout import (
    checked_identity,
    from_inputs,
    normalised_by_method,
    normalised_rows,
    residual_share,
    rollout,
)
from normscope.results.views import view, widget
from normscope.scopes import HALF_ATTENTION_WEIGHTS, Scope, basis, resolve, with_derived

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Analysis:
    """What flowed between the tokens of one input, layer by layer, at every scope that was asked for.

    Made by `Analyzer.analyze`, or read from a file by `normscope.open`. Every method that selects or combines gives a new
    one, or a labelled array.

    Examples:
        >>> import normscope as ns
        >>> analysis = ns.load().analyze("The opera singer caught a soap bubble.")
        >>> analysis.map("AttnResLnFf").sel(layer=3).shape  # [query, key]
        (10, 10)
        >>> bool(abs(analysis.normalised("AttnResLnFf", "row").sum("key") - 1).max() < 1e-5)
        True
        >>> analysis.mixing_ratio("AttnResLnFfResLn").dims
        ('layer', 'query')
        >>> analysis.words().without_special_tokens().tokens
        ['the', 'opera', 'singer', 'caught', 'a', 'soap', 'bubble', '.']
    """

    def __init__(self, dataset: xr.Dataset, encoder: Analysis | None = None) -> None:
        self._dataset, self._encoder = dataset, encoder

    @classmethod
    def from_tree(cls, tree: xr.DataTree) -> Analysis:
        """The analysis that a tree of datasets holds, as `tree` gives it.

        Examples:
            >>> ns.Analysis.from_tree(analysis.tree).scopes == analysis.scopes
            True
        """
        if schema.DECODER not in tree.children:
            return cls(tree.to_dataset())
        main, encoder = (tree[name].to_dataset() for name in (schema.DECODER, schema.ENCODER))
        return cls(main, cls(encoder))

    # ---- what there is -------------------------------------------------------------------------------------------------

    @property
    def dataset(self) -> xr.Dataset:
        """All numbers and labels, in the documented schema."""
        return self._dataset

    @property
    def tree(self) -> xr.DataTree:
        """The same as a tree: one dataset at its root, or those of `decoder` and `encoder` beside each other below it."""
        return schema.tree(self._dataset, None if self._encoder is None else self._encoder.dataset)

    @property
    def method(self) -> str:
        """What the maps were made by: `norms` of parts, or another method."""
        return str(self._dataset.attrs.get("method", schema.NORMS))

    @property
    def tokens(self) -> list[str]:
        """The tokens of the input (the keys, in order)."""
        return [str(token) for token in self._dataset["key_token"].values]

    @property
    def encoder(self) -> Analysis:
        """The encoder's own analysis, for an encoder-decoder model; this one is then the decoder's."""
        if self._encoder is None:
            raise SelectionError("There is no encoder here: the model has none, or no scope of it was asked for.")
        return self._encoder

    @property
    def has_encoder(self) -> bool:
        """Whether this is the analysis of a decoder, with that of its encoder as `encoder`."""
        return self._encoder is not None

    @property
    def layers(self) -> list[int]:
        """The layers analysed, numbered from 1."""
        return [int(layer) for layer in self._dataset["layer"].values]

    @property
    def scopes(self) -> list[Scope]:
        """The scopes analysed, in the order in which the map grows, and those derived from them."""
        return with_derived(str(scope) for scope in self._dataset["scope"].values)

    @property
    def completeness(self) -> xr.DataArray:
        """`[layer]`: relative error of (sum of parts + bias) against the model's own state, worst query and component."""
        return self._dataset[schema.COMPLETENESS]

    @property
    def attrs(self) -> dict[str, Any]:
        """Where the result came from: model, fingerprint, family, dtype, versions."""
        return dict(self._dataset.attrs)

    def __repr__(self) -> str:
        worst = float(self.completeness.max())
        lines = (
            f"Analysis({len(self.tokens)} tokens, {len(self.layers)} layers, model={self.attrs['model']!r}, "
            f"completeness error {worst:.1e})",
            f"scopes: {listing(self.scopes)}",
            self.approximation_note,
        )
        return "\n".join(filter(None, lines))

    @property
    def approximation_note(self) -> str:
        """How near approximate maps came to exact ones, in a sentence; nothing if they are exact."""
        kind = self.approximate
        if kind is None:
            return ""
        if kind == "exact":
            return "No approximation that saves time keeps the ranks: all maps are exact."
        spearman, error = self.attrs["approximate_spearman"], self.attrs["approximate_error"]
        return (
            f"Maps from the feed-forward on are approximate ({kind}): on sampled queries, rank correlation with exact "
            f"ones at least {spearman:.4f}, median error of a cell at most {100 * error:.1f} %."
        )

    @property
    def approximate(self) -> str | None:
        """How the maps from the feed-forward on were approximated; `None` if not at all, `"exact"` if `"fast"` could not."""
        kind = self._dataset.attrs.get("approximate")
        return None if kind is None else str(kind)

    # ---- maps ----------------------------------------------------------------------------------------------------------

    def map(self, scope: str, *, heads: bool = False, quantity: str | None = None) -> xr.DataArray:
        """`[layer, query, key]` (with `heads`, `[layer, head, query, key]`): the attribution map at a scope.

        `quantity` is what its cells measure, by default what the method does. `"projection"` is there of analyses with
        `projections=True` too: signed, adding up over keys to 1 less the bias' share, and split over heads at every scope.

        Examples:
            >>> analysis.map("AttnResLnFf").shape  # [layer, query, key]
            (6, 10, 10)
            >>> row = analysis.map("AttnResLnFf").sel(layer=3).isel(query=2)  # what "opera" is made of
            >>> analysis.tokens[int(row.argmax("key"))]
            'opera'
        """
        name = resolve(scope, self.scopes)
        if quantity is not None and quantity != self._quantity_at(name):
            return self._other_map(name, quantity, heads=heads)
        if heads:
            return self._head_map(name)
        values = self._dataset[schema.MAP].sel(scope=basis(name)).rename(name)
        if name == HALF_ATTENTION_WEIGHTS:
            same = self._dataset["query"] == self._dataset["key"]
            values = values.copy(data=(0.5 * values + 0.5 * same).transpose(*values.dims))
        return values.assign_attrs(quantity=_quantity(values, name))

    def _quantity_at(self, name: Scope) -> str:
        return _quantity(self._dataset[schema.MAP], name)

    def _other_map(self, name: Scope, quantity: str, *, heads: bool) -> xr.DataArray:
        variable = schema.HEAD_PROJECTION if heads else schema.PROJECTION
        if quantity == "projection" and variable in self._dataset:
            values = self._dataset[variable]
            available = [str(scope) for scope in values["projection_scope"].values]
            return values.sel(projection_scope=resolve(name, available)).rename(name)
        missing = f"quantity {quantity!r}" + (" of single heads" if heads else "")
        advice = "analyse with projections=True" + (", heads=True" if heads else "")
        hint = f": {advice}." if quantity == "projection" else "."
        raise SelectionError(f"There is no {missing} here; maps at {name} are of the {self._quantity_at(name)}{hint}")

    def rollout(
        self, scope: str | None = None, *, add_identity: float | None = None, normalise: bool | None = None
    ) -> xr.DataArray:
        """`[layer, query, key]`: the maps at a scope multiplied over layers, from the inputs to the state after each layer.

        Args:
            scope: the scope to roll out; by default that of the method, or the only one.
            add_identity: the share of the identity in every layer's map, for the residual: `0.5` is as much as the map. By
                default half where the scope has no residual of its own, none elsewhere.
            normalise: divide every row by the sum of its absolute values first. By default as the method does: all but
                `"globenc"`, whose authors multiply norms as they are.

        Keys that do not exist count nothing. In a decoder the encoder's states are keys that enter every layer as they are;
        what lies before them is in the rollout of `encoder`. Maps of a method that goes through all layers, such as
        `"propagated"`, are from the inputs already: they are only normalised.

        Examples:
            >>> analysis.rollout("AttnResLnFfResLn").sel(layer=6).shape  # [query, key], from the inputs on
            (10, 10)
        """
        name = self._rollout_scope(scope)
        if normalise is None:
            normalise = normalised_by_method(self.attrs)
        if from_inputs(self.attrs):
            if add_identity is not None:
                raise InputError(
                    f"Maps of the method {self.method!r} hold the residuals already: no identity is added."
                )
            return normalised_rows(self.map(name)) if normalise else self.map(name)
        identity = residual_share(name) if add_identity is None else add_identity
        return rollout(self.map(name), identity=checked_identity(identity), normalise=normalise)

    def _rollout_scope(self, scope: str | None) -> Scope:
        if scope is not None:
            return resolve(scope, self.scopes)
        own = self._dataset.attrs.get("scope")
        if own is None and len(self.scopes) != 1:
            raise SelectionError(f"Which scope to roll out? There are {listing(self.scopes)}.")
        return self.scopes[0] if own is None else resolve(str(own), self.scopes)

    def _head_map(self, name: Scope) -> xr.DataArray:
        if schema.HEAD_MAP not in self._dataset:
            raise SelectionError("There are no maps of single heads here: analyse with heads=True.")
        available = [str(scope) for scope in self._dataset["head_scope"].values]
        if name not in available:
            raise SelectionError(f"Heads are separate only at {listing(available)}; at {name} they are already mixed.")
        values = self._dataset[schema.HEAD_MAP].sel(head_scope=name).rename(name)
        return values.assign_attrs(quantity=_quantity(values, name))

    def normalised(self, scope: str, axis: NormaliseAxis = "row") -> xr.DataArray:
        """`[layer, query, key]`: a map with every row (query) or every column (key) scaled to sum to 1, or as it is.

        Examples:
            >>> analysis.normalised("Attn", "column").sum("query").round(4).values.min().item()
            1.0
        """
        return normalise(self.map(scope), axis)

    def amplification(self, before: str, after: str, *, axis: NormaliseAxis = "column") -> xr.DataArray:
        """`[layer, query, key]`: how the components between two scopes change the (normalised) map.

        Examples:
            >>> change = analysis.amplification("AttnResLn", "AttnResLnFf")
            >>> change.name, change.shape
            ('AttnResLnFf - AttnResLn', (6, 10, 10))
        """
        difference = self.normalised(after, axis) - self.normalised(before, axis)
        return difference.rename(f"{resolve(after, self.scopes)} - {resolve(before, self.scopes)}")

    def mixing_ratio(self, scope: str) -> xr.DataArray:
        """`[layer, query]`: how much of a state comes from other tokens, from 0 (none) to 1 (all).

        Examples:
            >>> ratio = analysis.mixing_ratio("AttnResLnFfResLn")
            >>> ratio.shape, bool(((ratio >= 0) & (ratio <= 1)).all())
            ((6, 10), True)
        """
        name = resolve(scope, self.scopes)
        if schema.MIXING_RATIO not in self._dataset:
            raise SelectionError(f"There are no mixing ratios here: maps of the method {self.method!r} have none.")
        ratios = self._dataset[schema.MIXING_RATIO].sel(scope=basis(name)).rename(name)
        return 0.5 * ratios if name == HALF_ATTENTION_WEIGHTS else ratios

    def mixing_shares(self, scope: str) -> xr.DataArray:
        """`[share, layer, query]`, summing to 1: how much of a state comes from its own token, from other tokens of the
        sequence, and (after a cross-attention) from the encoder's tokens.

        Examples:
            >>> shares = analysis.mixing_shares("AttnRes")
            >>> [str(name) for name in shares["share"].values], shares.shape
            (['own', 'others', 'source'], (3, 6, 10))
        """
        name = resolve(scope, self.scopes)
        ratio = self.mixing_ratio(name)
        source = xr.zeros_like(ratio)
        if schema.SOURCE_MIXING_RATIO in self._dataset:
            source = self._dataset[schema.SOURCE_MIXING_RATIO].sel(scope=name, drop=True).fillna(0)
        shares = [1 - ratio, ratio - source, source]
        return xr.concat(shares, xr.Variable("share", ["own", "others", "source"]), coords="minimal").rename(name)

    # ---- other units ---------------------------------------------------------------------------------------------------

    def words(self, *, keys: units.Reduction = "sum", queries: units.Reduction = "mean") -> Analysis:
        """The same with words for tokens: summed over the tokens of a key word, averaged over those of a query word.

        Examples:
            >>> read = analyzer.analyze("unbelievably", scopes="Attn", layers=1)
            >>> len(read.tokens), read.words().tokens
            (7, ['[CLS]', 'unbelievably', '[SEP]'])
        """
        return self._with(lambda dataset: units.by_word(dataset, keys=keys, queries=queries))

    def without_special_tokens(self) -> Analysis:
        """The same without the rows and columns of special tokens. Values are not renormalised.

        Examples:
            >>> analysis.without_special_tokens().tokens
            ['the', 'opera', 'singer', 'caught', 'a', 'soap', 'bubble', '.']
        """
        return self._with(units.without_special)

    def _with(self, change: Callable[[xr.Dataset], xr.Dataset]) -> Analysis:
        encoder = None if self._encoder is None else self._encoder._with(change)
        return Analysis(change(self._dataset), encoder)

    # ---- out of here ---------------------------------------------------------------------------------------------------

    def plot(self, scope: str, layer: int | None = None, **options: Any) -> Figure:
        """A heat map of one layer, or of all layers as small multiples; of an image, over the image itself.

        Options are those of `normscope.plots.plot_map`, or of `plot_image_map` for an image.

        Examples:
            >>> analysis.plot("AttnResLnFf", layer=3, normalise="row").savefig("map.svg")
        """
        plot = view("plots:plot_image_map" if "key_row" in self._dataset.coords else "plots:plot_map")
        return plot(self, scope, layer, **options)

    def explore(self, compare: Analysis | None = None) -> Any:
        """The explorer as a notebook widget, alone or beside another analysis (needs the extra `notebook`).

        Examples:
            >>> widget = analysis.explore()  # at the end of a cell, it shows itself
        """
        return widget(self, *([] if compare is None else [compare]))

    def _repr_html_(self) -> str | None:
        """The explorer inside a notebook's cell, without any extra; the plain text of large analyses."""
        return view("explorer.page:frame")(self)

    def save(self, path: str | Path, **options: Any) -> Path:
        """Write to a file in the format that its ending names: nc, html, csv, parquet, json, svg, png or pdf.

        A netCDF file (nc, or no ending) holds everything. `normscope.open` reads it back, and it opens without normscope.
        A page (html) is the explorer's. Tables and pictures hold the maps that options choose, which are those of
        `normscope.output.export.export_map`.

        Examples:
            >>> path = analysis.save("bubble.nc")
            >>> ns.open(path).tokens == analysis.tokens
            True
        """
        return view("output.export:export_analysis")(self, path, **options)


def _quantity(values: xr.DataArray, scope: Scope) -> str:
    """What a map measures: attention weights at the scopes of weights, elsewhere what its method does."""
    return "weight" if scope.quantity == "weight" else str(values.attrs.get("quantity", scope.quantity))


def normalise(values: xr.DataArray, axis: str) -> xr.DataArray:
    """Scale rows or columns to sum to 1; keys that do not exist stay missing."""
    match normalise_axis(axis):
        case "none":
            return values
        case "row":
            return values / values.sum("key")
        case "column":
            return values / values.sum("query")
