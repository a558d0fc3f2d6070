"""The result of an explanation: the attribution of a value to the input tokens, all that flows on the way, and its proof.

A thin, read-only view on datasets with a written schema, like `Analysis`. Any method gives one; the pull-back also gives
what flows through every layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from normscope.deprecated import warn_renamed
from normscope.errors import SelectionError, listing
from normscope.explain.cutting import EdgeCuts
from normscope.options import whole_number
from normscope.results import explanation_schema as names
from normscope.results import routing as accounts
from normscope.results import tokens as labels
from normscope.results import words as units
from normscope.results.base import StackResult
from normscope.results.flow import Flow, flow_of
from normscope.results.sentences import with_sentences
from normscope.results.turns import with_turns
from normscope.results.verification import Explained, Verification, named_edges, strongest_edges, verification
from normscope.results.views import view

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class Explanation(StackResult):
    """What made the model say this: signed shares of the input tokens, which with the bias add up to the value.

    Made by `Analyzer.explain`, or read from a file by `normscope.open`.

    Examples:
        >>> import normscope as ns
        >>> explanation = ns.load().explain("The opera singer sang.", direction="state", at=3)
        >>> explanation.tokens[int(explanation.attribution.argmax("token"))]
        'singer'
        >>> float(abs(explanation.attribution.sum() + explanation.bias - explanation.value)) < 1e-4
        True
        >>> explanation.top(2)["token"].tolist()
        ['singer', 'opera']
        >>> explanation.relevance.dims, explanation.edges(3).dims
        (('layer', 'token'), ('query', 'key'))
    """

    cuts: EdgeCuts | None = None
    """What runs the model again, where it is at hand."""

    verified: Mapping[int, Verification] = MappingProxyType({})
    """What `verify` has found last, by the number of the value: pages show it."""

    # ---- what there is -------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> xr.DataArray:
        """A variable of the dataset, as `encoder[name]` was one when the encoder was a dataset."""
        warn_renamed("Explanation.encoder[...]", "Explanation.encoder.dataset[...]")
        return self._dataset[name]

    @property
    def method(self) -> str:
        """How the value was attributed: by the `pull-back`, or by another method."""
        return str(self._dataset.attrs["method"])

    @property
    def quantity(self) -> str:
        """What the attribution measures: shares of a `logit`, or what its method does."""
        return str(self.attribution.attrs.get("quantity", names.LOGIT))

    @property
    def signed(self) -> bool:
        """Whether a share may speak against the value, below zero."""
        return bool(self._dataset.attrs.get("signed", 1))

    @property
    def adds_up(self) -> bool:
        """Whether attribution and bias are meant to add up to the value: `completeness` says how well they do."""
        return names.END_BIAS in self._dataset or self.follows

    @property
    def follows(self) -> bool:
        """Whether the method followed the value through the layers."""
        return names.RELEVANCE in self._dataset

    @property
    def has_edges(self) -> bool:
        """Whether edges were kept, for `edges` and `flow`: by default where the input is not long.

        Examples:
            >>> explanation.has_edges
            True
        """
        return names.EDGES in self._dataset

    @property
    def targets(self) -> list[str]:
        """What is explained, one name for each value."""
        return [str(name) for name in self._dataset["target_name"].values]

    @property
    def tokens(self) -> list[str]:
        """The input tokens: of an encoder-decoder, first those that the decoder reads, then those of the encoder."""
        return [str(token) for token in self.attribution["token_token"].values]

    @property
    def value(self) -> xr.DataArray:
        """The model's own logit, or difference of two: one number, or `[target]` where several values are explained.

        For `encoder`, the part of it that comes through the encoder.

        Examples:
            >>> round(float(explanation.value), 4), explanation.value.dims
            (1.0, ())
        """
        return self._squeezed(self._values())

    @property
    def values(self) -> list[float]:
        """The values explained, also where there is only one."""
        return [float(value) for value in self._values().values]

    def _values(self) -> xr.DataArray:
        """`[target]`. The dataset of an encoder has none: its part is what leaves its last layer, or all of its shares."""
        if names.VALUE in self._dataset:
            return self._dataset[names.VALUE]
        own = self._dataset[names.RELEVANCE].isel(depth=-1, drop=True) if self.follows else self._attributions()
        return own.sum(str(own.dims[-1])).rename(names.VALUE)

    # ---- attribution ---------------------------------------------------------------------------------------------------

    @property
    def attribution(self) -> xr.DataArray:
        """`[token]`, or `[target, token]` for several values. That of the pull-back adds up, with `bias`, to `value`.

        Missing where a method has no share for a token.
        """
        return self._squeezed(self._attributions())

    @property
    def shares(self) -> xr.DataArray:
        """`[target, token]`: the attribution of every value, missing where a causal model has not read a token yet."""
        values = self._attributions()
        if not self.attrs.get("causal", 0):
            return values
        own = values["token_group"].values != "source"
        after = values["token_position"].values[None] > values["target_position"].values[:, None]
        return values.where(~(after & own[None]))

    def _attributions(self) -> xr.DataArray:
        pieces = [names.at_input(self._dataset, "self" if self._encoder is None else "target")]
        if self._encoder is not None:
            pieces.append(names.at_input(self._encoder.dataset, "source"))
        joined = xr.concat(pieces, "token") if len(pieces) > 1 else pieces[0]
        return joined.assign_coords(token=np.arange(joined.sizes["token"])).rename(names.ATTRIBUTION)

    @property
    def bias(self) -> xr.DataArray:
        """What belongs to no token: the biases of all layers and of the head, one number or `[target]` as `value` is.

        Where weights are counted, what stays with them is `routed`.
        """
        return self._squeezed(self._biases())

    @property
    def biases(self) -> list[float]:
        """The bias of every value, also where there is only one."""
        return [float(bias) for bias in self._biases().values]

    def _biases(self) -> xr.DataArray:
        if not self.adds_up:
            raise SelectionError(
                f"The shares of {self.method} are not meant to add up to the value, so that there is no bias. "
                f"Those of pull-back do."
            )
        total = self._dataset[names.END_BIAS] if names.END_BIAS in self._dataset else xr.zeros_like(self._values())
        for dataset in self._datasets():
            if names.BIAS in dataset:
                total = total + dataset[names.BIAS].sum(("layer", "query"))
        return total.rename(names.BIAS)

    def _datasets(self) -> list[xr.Dataset]:
        return [self._dataset, *([] if self._encoder is None else [self._encoder.dataset])]

    # ---- the account of the weights --------------------------------------------------------------------------------------

    @property
    def counts_weights(self) -> bool:
        """Whether attention weights have an account of their own, next to tokens and biases.

        Examples:
            >>> counted = ns.load().explain("The opera singer sang.", direction="state", at=3, weights="half")
            >>> counted.counts_weights
            True
            >>> total = float(counted.attribution.sum() + counted.bias + counted.routed)
            >>> abs(total - float(counted.value)) < 1e-4
            True
        """
        return accounts.has_account(self._datasets())

    @property
    def routing(self) -> xr.DataArray:
        """`[layer, query, key]`, signed: the share that stays with the weights, for every query and key. With attribution
        and bias it adds up to the value. If heads were requested, `head_routing` has it by head.
        """
        return self._squeezed(accounts.account_of(self._dataset))

    @property
    def head_routing(self) -> xr.DataArray:
        """`[layer, head, query, key]`: the same for every head, if requested (`heads=True`)."""
        return self._squeezed(accounts.account_of(self._dataset, heads=True))

    @property
    def routed(self) -> xr.DataArray:
        """All that stays with the weights: one number or `[target]`, as `bias` is; zero where weights are constants."""
        return self._squeezed(self._routed())

    @property
    def handed_on(self) -> str:
        """The attentions in which queries or keys got a part of the account: `everywhere`, `somewhere` or `nowhere`.

        Nowhere where it is not known what weights are made of, as in linear mixers, or where they are constants.

        Examples:
            >>> ns.load().explain("The opera singer sang.", direction="state", at=3, weights="players").handed_on
            'everywhere'
        """
        return str(self._dataset.attrs.get("handed_on", "nowhere"))

    @property
    def looked_at(self) -> xr.DataArray:
        """`[token]`: the account summed over layers and queries, by key: where the model looked.

        Examples:
            >>> counted = ns.load().explain("The opera singer sang.", direction="state", at=3, weights="half")
            >>> bool(abs(counted.looked_at.sum() - counted.routed) < 1e-4)
            True
        """
        if not self.has_encoder:
            return self._squeezed(accounts.looked_at(self._dataset, "self"))
        cross = [accounts.looked_at(self._dataset, group) for group in ("target", "source")]
        own = accounts.looked_at(self.encoder.dataset, "self")
        source = cross[1].copy(data=cross[1].values + own.values)
        joined = xr.concat([cross[0], source], "token")
        return self._squeezed(joined.assign_coords(token=np.arange(joined.sizes["token"])))

    @property
    def accounts(self) -> list[float]:
        """What stays with the weights of every value, also where there is only one."""
        return [float(value) for value in self._routed().values]

    def _routed(self) -> xr.DataArray:
        return accounts.routed(self._datasets()) if self.counts_weights else xr.zeros_like(self._values())

    @property
    def relevance(self) -> xr.DataArray:
        """`[layer, token]`: the shares of the states after every layer (0: before the first), conserved at each."""
        values = self._flowing(names.RELEVANCE).rename(depth="layer", query="token")
        return self._squeezed(values)

    @property
    def completeness(self) -> float:
        """The largest relative error of conservation, over all layers and values; NaN of shares that do not add up."""
        datasets = [data for data in self._datasets() if names.ERROR in data]
        return max((float(data[names.ERROR].max()) for data in datasets), default=float("nan"))

    @property
    def predictions(self) -> xr.DataArray | None:
        """`[rank]` (or `[target, rank]`): probabilities of the likeliest labels, named by the coordinate `prediction`.

        `None` if the model's labels do not exclude each other.
        """
        return self._squeezed(self._dataset[names.PROBABILITY]) if names.PROBABILITY in self._dataset else None

    @property
    def probabilities_of(self) -> str:
        """The meaning of the probabilities if several labels may be true at once: each label by itself. Otherwise empty."""
        return str(self._dataset[names.PROBABILITY].attrs.get("of", "")) if names.PROBABILITY in self._dataset else ""

    @property
    def note(self) -> str:
        """A note on the words in question, such as that one with a space is more likely; empty if there is none.

        Examples:
            >>> explanation.note
            ''
        """
        return str(self._dataset.attrs.get("note", ""))

    def top_predictions(self, target: int = 0) -> list[tuple[str, float]]:
        """The most likely labels at the row of a value, with their probabilities; none if there is no choice.

        Examples:
            >>> explanation.top_predictions()  # a bare model predicts nothing
            []
        """
        place = self.index_of(target)
        if names.PROBABILITY not in self._dataset:
            return []
        ranked = self._dataset[names.PROBABILITY].isel(target=place)
        return [
            (str(name), float(value))
            for name, value in zip(ranked[names.PREDICTION].values, ranked.values, strict=True)
        ]

    @property
    def target_probabilities(self) -> list[float]:
        """The model's own probability of what each value explains (of a contrast, of the first label).

        Not a number where labels have none, and in results of earlier versions.

        Examples:
            >>> explanation.target_probabilities  # a bare model predicts nothing
            [nan]
        """
        if names.TARGET_PROBABILITY not in self._dataset:
            return [float("nan")] * len(self.targets)
        return [float(value) for value in self._dataset[names.TARGET_PROBABILITY].values]

    @property
    def sinks(self) -> list[int]:
        """Places in `tokens` of attention sinks, which get much of the attention whatever they say; none where not known.

        Examples:
            >>> [explanation.tokens[place] for place in explanation.sinks]
            ['[CLS]']
        """
        known = self.attribution.coords.get("token_sink")
        return [] if known is None else np.flatnonzero(np.asarray(known.values, bool)).tolist()

    # ---- what flows ----------------------------------------------------------------------------------------------------

    def edges(self, layer: int, *, encoder: bool = False) -> xr.DataArray:
        """`[query, key]`, signed: what flows from each token before a layer to each token after it.

        Those of an encoder are `explanation.encoder.edges(layer)`; the keyword `encoder` is deprecated.

        Examples:
            >>> explanation.edges(3).shape  # [query, key]
            (7, 7)
        """
        if encoder:
            warn_renamed("The keyword 'encoder' of edges", "explanation.encoder.edges")
            return self.encoder.edges(layer)
        values = self._all_edges()
        layers, asked = [int(number) for number in values["layer"].values], whole_number(layer, "A layer")
        if asked not in layers:
            raise SelectionError(f"There is no layer {asked} here. Layers: {listing(layers)}.")
        return self._squeezed(values.sel(layer=asked))

    @property
    def heads(self) -> xr.DataArray:
        """`[layer, head, query, key]`: the edges of every head, where they were requested (`heads=True`)."""
        if names.HEAD_EDGES not in self._dataset:
            raise SelectionError(
                "The edges of single heads were not requested: explain with heads=True. "
                "head_shares has what each head takes from each token."
            )
        return self._squeezed(self._dataset[names.HEAD_EDGES])

    @property
    def head_shares(self) -> xr.DataArray:
        """`[layer, head, key]`: what every head takes from every token before its layer."""
        return self._squeezed(self._flowing(names.HEADS))

    @property
    def feed_forward(self) -> xr.DataArray:
        """`[layer, token]`: what comes through the feed-forward of every token."""
        return self._squeezed(self._flowing(names.FEED_FORWARD).rename(query="token"))

    def flow(self, share: float = 0.9, *, target: int = 0, encoder: bool = False) -> Flow:
        """The smallest graph of edges that carries a share of the flow through every layer.

        That of an encoder is `explanation.encoder.flow()`; the keyword `encoder` is deprecated.

        Examples:
            >>> flow = explanation.flow(share=0.5)
            >>> bool((flow.carried >= 0.5).all())
            True
        """
        if encoder:
            warn_renamed("The keyword 'encoder' of flow", "explanation.encoder.flow")
            return self.encoder.flow(share, target=target)
        place = self.index_of(target)
        edges = self._all_edges().isel(target=place)
        relevance = self._flowing(names.RELEVANCE).isel(target=place)
        tokens, keys = ([str(name) for name in edges[f"{axis}_token"].values] for axis in ("query", "key"))
        return flow_of(edges.values.astype(np.float64), relevance.values, tokens, keys, share)

    def verify(
        self,
        k: int = 10,
        *,
        target: int = 0,
        edges: Sequence[tuple[int, int, int]] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Verification:
        """Cut the `k` strongest edges in the real model, and compare the change of the value with what is predicted.

        An edge is one key's value for one query at one layer; those of a token to itself are left out. Each is cut by
        itself, then all together. Predictions keep attention weights, norms and slopes as they were; the model does not.
        That is so with counted weights too: a cut takes away all that weight and value make together, not the edge's share.
        `edges` names others, as `(layer, query, key)`. Runs the model, so that a result read from a file cannot be verified.
        The page of this explanation shows what was found.

        Examples:
            >>> verified = explanation.verify(k=5)
            >>> len(verified.edges), verified.correlation > 0.5
            (5, True)
            >>> verified.to_pandas().columns.tolist()
            ['layer', 'query', 'query_token', 'key', 'key_token', 'predicted', 'observed']
        """
        if self.cuts is None:
            raise SelectionError(
                "To verify an explanation the model is run again, and this one has none: it was read from a file, or its "
                "units were changed. Use what analyzer.explain returned."
            )
        place, values = self.index_of(target), self._flowing(names.EDGES)
        numbers, layers = values.isel(target=place).values, values["layer"].values.tolist()
        chosen = strongest_edges(numbers, layers, k) if edges is None else named_edges(edges, numbers, layers)
        shares = [float(numbers[layers.index(each.layer), each.query, each.key]) for each in chosen]
        cuts = EdgeCuts(self.cuts.asked)  # the model's values, which it keeps, are not kept here
        cuts.check_same(place, self.values[place])
        found = verification(
            cuts, chosen, Explained(tuple(shares), str(self.attrs["weights"])), place, self.tokens, on_progress
        )
        self.verified = {**self.verified, place: found}
        return found

    # ---- other units ---------------------------------------------------------------------------------------------------

    def words(self) -> Explanation:
        """The same with words for tokens. Everything is summed, so that all sums stay what they are.

        Examples:
            >>> words = explanation.words()
            >>> abs(float(words.attribution.sum()) - float(explanation.attribution.sum())) < 1e-4
            True
        """
        encoder = None if self._encoder is None else Explanation(_by_word(self._encoder.dataset))
        return Explanation(_by_word(self._dataset), encoder)

    def sentences(self) -> Explanation:
        """The same with sentences for tokens, summed as for words. Special tokens and attention sinks stay separate.

        Examples:
            >>> sentences = ns.load().explain("The opera singer sang. It rained.", direction="state", at=3).sentences()
            >>> sentences.top(1)["token"].tolist()
            ['the opera singer sang .']
        """
        encoder = None if self._encoder is None else Explanation(_by_sentence(self._encoder.dataset))
        return Explanation(_by_sentence(self._dataset), encoder)

    def turns(self) -> Explanation:
        """The same with the turns of a chat for tokens, summed as for words; what the template adds is one unit more.

        Attention sinks stay separate. For an explanation of the messages of a chat.

        Examples:
            >>> analyzer = ns.load()
            >>> analyzer.tokenizer.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}"
            >>> chat = [{"role": "user", "content": "It rained."}, {"role": "assistant", "content": "Indeed."}]
            >>> analyzer.explain(chat, direction="state").turns().tokens
            ['user', 'template', '1 user', '2 assistant']
        """
        encoder = None if self._encoder is None else Explanation(_by_turn(self._encoder.dataset))
        return Explanation(_by_turn(self._dataset), encoder)

    # ---- out of here ---------------------------------------------------------------------------------------------------

    def plot(self, **options: object) -> Figure:
        """The text coloured by attribution (an image for an image); options are those of `plots.plot_explanation`.

        Examples:
            >>> explanation.plot().savefig("why.svg")
        """
        return view("plots:plot_explanation")(self, **options)

    def plot_flow(self, share: float = 0.9, *, target: int = 0, encoder: bool = False, **options: Any) -> Figure:
        """The graph of `flow` as a picture; options are those of `plots.plot_flow`.

        Examples:
            >>> explanation.plot_flow(share=0.5).savefig("flow.svg")
        """
        if encoder:
            warn_renamed("The keyword 'encoder' of plot_flow", "explanation.encoder.plot_flow")
            return self.encoder.plot_flow(share, target=target, **options)
        of_encoder = names.VALUE not in self._dataset
        options.setdefault("name", "" if of_encoder else labels.name_of(self.targets[self.index_of(target)]))
        options.setdefault("about", self.attrs)
        return view("plots:plot_flow")(self.flow(share, target=target), **options)

    def top(self, k: int = 10, *, target: int | None = None) -> pd.DataFrame:
        """The `k` tokens with the largest shares, for or against, strongest first.

        Of one value, given by its index, or of all values together: the shares of a continuation are summed.

        Examples:
            >>> explanation.top(2)["token"].tolist()
            ['singer', 'opera']
        """
        return view("results.frames:top_tokens")(self, k, target=target)

    def to_pandas(self) -> pd.DataFrame:
        """The attribution of every value to every token as a tidy table: one row each, as in a saved csv file.

        Examples:
            >>> round(float(explanation.to_pandas()["attribution"].sum() + explanation.bias), 4)
            1.0
        """
        return view("results.frames:attribution_frame")(self)

    def save(self, path: str | Path, **options: object) -> Path:
        """Write to a file in the format that its ending names: nc, html (the explorer), csv, parquet, json, svg, png or pdf.

        A netCDF file (nc, or no ending) holds everything. `normscope.open` reads it back, and it opens without normscope.
        Options are those of a picture, as in `plot`, or `flow`, the share of the flow that is drawn instead of the text.

        Examples:
            >>> path = explanation.save("why.nc")
            >>> ns.open(path).values == explanation.values
            True
        """
        return view("output.explanation_export:export_explanation")(self, path, **options)

    def _repr_html_(self) -> str:
        """The explorer inside a notebook's cell; of large explanations, and without a flow, the coloured text."""
        page = view("explorer.page:frame")(self) if names.EDGES in self._dataset else None
        return page or view("output.explanation_page:fragment")(self)

    def __repr__(self) -> str:
        shown = ", ".join(repr(name) for name in self.targets[:3]) + (", ..." if len(self.targets) > 3 else "")
        error = f", conservation error {self.completeness:.1e}" if self.adds_up else ""
        made = f"method={self.method!r}, model={self.attrs['model']!r}"
        return f"Explanation({shown}: {len(self.tokens)} tokens, {made}{error})"

    # ---- inside --------------------------------------------------------------------------------------------------------

    def _flowing(self, name: str) -> xr.DataArray:
        if name not in self._dataset:
            raise SelectionError(
                f"{self.method} attributes a value to the input tokens, but does not follow it through the layers. "
                f"The method pull-back does."
            )
        return self._dataset[name]

    def _all_edges(self) -> xr.DataArray:
        """`[target, layer, query, key]`, where they were kept."""
        if self.follows and not self.has_edges:
            raise SelectionError(
                "What flows from token to token was not kept, since the input is long or edges=False. Explain with "
                "edges=True (--edges): they take 4 bytes for every layer, query and key."
            )
        return self._flowing(names.EDGES)

    def index_of(self, target: int) -> int:
        """The index of one of the values explained, from 0, negative from the end.

        Examples:
            >>> explanation.index_of(-1)
            0
        """
        count, place = len(self.targets), whole_number(target, "A value to look at (target)")
        if not -count <= place < count:
            raise SelectionError(f"There is no value {place} (target): {count} are explained, 0 to {count - 1}.")
        return place % count

    def _squeezed(self, values: xr.DataArray) -> xr.DataArray:
        """Without the dimension of the targets where there is only one."""
        return values.isel(target=0) if values.sizes["target"] == 1 else values


def _by_word(dataset: xr.Dataset, unit: str = "word") -> xr.Dataset:
    """The dataset with words for tokens, in which all sums stay what they are."""
    without_norms = dataset.drop_vars(names.STATE_NORM, errors="ignore")
    return units.by_word(without_norms, keys="sum", queries="sum", alone="sum", unit=unit)


def _by_turn(dataset: xr.Dataset) -> xr.Dataset:
    return _by_word(with_turns(dataset, names.SINK), "turn")


def _by_sentence(dataset: xr.Dataset) -> xr.Dataset:
    return _by_word(with_sentences(dataset), "sentence")
