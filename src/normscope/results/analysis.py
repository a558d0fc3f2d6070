"""The result of an analysis: maps, mixing ratios and their proof, as labelled arrays that show, combine and save themselves.

An `Analysis` is a thin, read-only view on an xarray dataset with a written schema; every method that selects or combines
gives a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from normscope.errors import InputError, SelectionError, listing
from normscope.options import NormaliseAxis, also_spelled, whole_numbers
from normscope.results import schema
from normscope.results import words as units
from normscope.results.base import StackResult
from normscope.results.find import chosen
from normscope.results.maps import last_scope_of_heads, map_at
from normscope.results.rollout import (
    checked_identity,
    from_inputs,
    normalise,
    normalised_by_method,
    normalised_rows,
    residual_share,
    rollout,
)
from normscope.results.turns import with_turns
from normscope.results.views import view
from normscope.scopes import HALF_ATTENTION_WEIGHTS, Scope, basis, resolve, with_derived

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class Analysis(StackResult):
    """What flowed between the tokens of one input, layer by layer, at every scope that was requested.

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
        >>> analysis.top(1, query="singer")[["query_token", "key_token"]].values.tolist()
        [['singer', 'opera']]
    """

    # ---- what there is -------------------------------------------------------------------------------------------------

    @property
    def method(self) -> str:
        """What the maps were made by: `norms` of parts, or another method."""
        return str(self._dataset.attrs.get("method", schema.NORMS))

    @property
    def tokens(self) -> list[str]:
        """The tokens of the input (the keys, in order)."""
        return [str(token) for token in self._dataset["key_token"].values]

    @property
    def layers(self) -> list[int]:
        """The layers analysed, numbered from 1."""
        return [int(layer) for layer in self._dataset["layer"].values]

    @property
    def scopes(self) -> list[Scope]:
        """The scopes analysed, in the order in which the map grows, and those derived from them."""
        return with_derived(str(scope) for scope in self._dataset["scope"].values)

    @property
    def default_scope(self) -> Scope:
        """The scope that is meant where none is named: that of the method, or the most that was analysed of a layer."""
        own = self._dataset.attrs.get("scope")
        computed = [str(scope) for scope in self._dataset["scope"].values]
        return Scope(computed[-1]) if own is None else resolve(str(own), self.scopes)

    def _named(self, scope: str | None) -> Scope:
        return self.default_scope if scope is None else resolve(scope, self.scopes)

    @property
    def completeness(self) -> xr.DataArray:
        """`[layer]`: relative error of (sum of parts + bias) against the model's own state, worst query and component."""
        return self._dataset[schema.COMPLETENESS]

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

    def map(
        self,
        scope: str | None = None,
        *,
        layer: int | None = None,
        query: int | str | None = None,
        heads: bool = False,
        quantity: str | None = None,
    ) -> xr.DataArray:
        """`[layer, query, key]` (with `heads`, `[layer, head, query, key]`): the attribution map at a scope.

        Args:
            scope: the scope; by default the whole layer, as far as it was analysed, and with `heads` the last scope at
                which heads are separate.
            layer: one layer alone.
            query: one row alone, by its position (from 0, negative from the end) or by its token.
            heads: the maps of single heads.
            quantity: what the cells measure, by default what the method does. `"projection"` is also available in analyses
                with `projections=True`: signed, adding up over keys to 1 minus the bias' share, and split over heads at
                every scope.

        Examples:
            >>> analysis.map().shape  # [layer, query, key], of the whole layer
            (6, 10, 10)
            >>> row = analysis.map("AttnResLnFf", layer=3, query="opera")  # [key]: what "opera" is made of
            >>> analysis.tokens[int(row.argmax("key"))]
            'opera'
        """
        if scope is None and heads and quantity is None:
            scope = last_scope_of_heads(self._dataset)
        return chosen(map_at(self._dataset, self._named(scope), heads=heads, quantity=quantity), layer, query)

    @also_spelled(normalize="normalise")
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

    def normalised(
        self,
        scope: str | None = None,
        axis: NormaliseAxis = "row",
        *,
        layer: int | None = None,
        query: int | str | None = None,
    ) -> xr.DataArray:
        """`[layer, query, key]`: a map with every row (query) or every column (key) scaled to sum to 1, or as it is.

        Scope, layer and query are chosen as in `map`.

        Examples:
            >>> analysis.normalised("Attn", "column").sum("query").round(4).values.min().item()
            1.0
            >>> round(float(analysis.normalised(layer=3, query="opera").sum()), 4)
            1.0
        """
        return chosen(normalise(self.map(scope), axis), layer, query)

    normalized = normalised

    def amplification(self, before: str, after: str, *, axis: NormaliseAxis = "column") -> xr.DataArray:
        """`[layer, query, key]`: how the components between two scopes change the (normalised) map.

        Examples:
            >>> change = analysis.amplification("AttnResLn", "AttnResLnFf")
            >>> change.name, change.shape
            ('AttnResLnFf - AttnResLn', (6, 10, 10))
        """
        difference = self.normalised(after, axis) - self.normalised(before, axis)
        return difference.rename(f"{resolve(after, self.scopes)} - {resolve(before, self.scopes)}")

    def mixing_ratio(
        self, scope: str | None = None, *, layer: int | None = None, query: int | str | None = None
    ) -> xr.DataArray:
        """`[layer, query]`: how much of a state comes from other tokens, from 0 (none) to 1 (all).

        Scope, layer and query are chosen as in `map`.

        Examples:
            >>> ratio = analysis.mixing_ratio()
            >>> ratio.shape, bool(((ratio >= 0) & (ratio <= 1)).all())
            ((6, 10), True)
            >>> analysis.mixing_ratio("AttnRes", query="opera").dims
            ('layer',)
        """
        name = self._named(scope)
        if schema.MIXING_RATIO not in self._dataset:
            raise SelectionError(f"There are no mixing ratios here: maps of the method {self.method!r} have none.")
        ratios = chosen(self._dataset[schema.MIXING_RATIO].sel(scope=basis(name)).rename(name), layer, query)
        return 0.5 * ratios if name == HALF_ATTENTION_WEIGHTS else ratios

    def mixing_shares(self, scope: str | None = None) -> xr.DataArray:
        """`[share, layer, query]`, summing to 1: how much of a state comes from its own token, from other tokens of the
        sequence, and (after a cross-attention) from the encoder's tokens.

        Examples:
            >>> shares = analysis.mixing_shares("AttnRes")
            >>> [str(name) for name in shares["share"].values], shares.shape
            (['own', 'others', 'source'], (3, 6, 10))
        """
        name = self._named(scope)
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

    def turns(self, *, keys: units.Reduction = "sum", queries: units.Reduction = "mean") -> Analysis:
        """The same with the turns of a chat for tokens, reduced as words are; what the template adds is one unit more.

        Examples:
            >>> reader = ns.load()
            >>> reader.tokenizer.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}"
            >>> chat = [{"role": "user", "content": "It rained."}, {"role": "assistant", "content": "Indeed."}]
            >>> reader.analyze(chat).turns().tokens
            ['template', '1 user', '2 assistant']
        """
        return self._with(
            lambda dataset: units.by_word(with_turns(dataset, ""), keys=keys, queries=queries, unit="turn")
        )

    def without_special_tokens(self) -> Analysis:
        """The same without the rows and columns of special tokens. Values are not renormalised.

        Examples:
            >>> analysis.without_special_tokens().tokens
            ['the', 'opera', 'singer', 'caught', 'a', 'soap', 'bubble', '.']
        """
        return self._with(units.without_special)

    def _with(self, change: Callable[[xr.Dataset], xr.Dataset]) -> Analysis:
        encoder = self.encoder._with(change) if self.has_encoder else None
        return Analysis(change(self._dataset), encoder)

    # ---- out of here ---------------------------------------------------------------------------------------------------

    def plot(
        self,
        scope: str | None = None,
        layer: int | Sequence[int] | None = None,
        *,
        query: int | str | None = None,
        **options: object,
    ) -> Figure:
        """A heat map of one layer, or of all layers as small multiples; of an image, over the image itself.

        The scope is by default the whole layer. With `query`, one row of one layer (by default the last) as the text with
        its tokens coloured. Options are those of `normscope.plots.plot_map`, of `plot_image_map` for an image, or of
        `plot_tokens` for a query.

        Examples:
            >>> analysis.plot("AttnResLnFf", layer=3, normalise="row").savefig("map.svg")
            >>> analysis.plot(query="opera").savefig("opera.svg")
        """
        of_image = "key_row" in self._dataset.coords
        if query is None or of_image:
            row = {} if query is None else {"query": query}
            plot = view("plots:plot_image_map" if of_image else "plots:plot_map")
            return plot(self, scope, layer, **row, **options)
        numbers = self.layers[-1:] if layer is None else whole_numbers(layer, "A layer")
        if len(numbers) != 1:
            raise SelectionError(f"A row is drawn of one layer, not of {len(numbers)}: choose one.")
        return view("plots:plot_tokens")(self, scope, numbers[0], query, **options)

    @also_spelled(normalize="normalise")
    def top(
        self,
        k: int = 10,
        scope: str | None = None,
        layer: int | Sequence[int] | None = None,
        *,
        query: int | str | None = None,
        head: int | None = None,
        normalise: str = "none",
        own: bool = False,
    ) -> pd.DataFrame:
        """The strongest cells of a map, strongest first: by default those of the whole last layer.

        A token's own part, which is the strongest of most rows, counts only with `own`.

        Examples:
            >>> analysis.top(3, query="singer")["key_token"].tolist()
            ['opera', 'bubble', 'soap']
        """
        options = {"query": query, "head": head, "normalise": normalise, "own": own}
        return view("results.frames:top_cells")(self, k, scope, layer, **options)

    @also_spelled(normalize="normalise")
    def to_pandas(
        self,
        scope: str | Sequence[str] | None = None,
        layer: int | Sequence[int] | None = None,
        *,
        head: int | None = None,
        normalise: str = "none",
    ) -> pd.DataFrame:
        """All cells of all maps, or of those chosen, as a tidy table: one row each, as in a saved csv file.

        Examples:
            >>> analysis.to_pandas("Attn", layer=3).columns.tolist()
            ['scope', 'layer', 'query', 'query_token', 'key', 'key_token', 'value']
        """
        return view("results.frames:map_frame")(self, scope, layer, head=head, normalise=normalise)

    def save(self, path: str | Path, **options: object) -> Path:
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
