"""alignment (2020, Section 5): word alignments from cross-attention, by weights and by norms, against gold ones.

The decoder reads the reference. A row belongs to the token it gives out (AWO) or to the token it reads (AWI). Subwords
become words by summing over the source and averaging over the target; each target word is linked to its best source word,
or to nothing where the end-of-sentence token is best. AER is counted over the whole corpus.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial as bind
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure
from scipy import stats

from normscope.corpora.record import Gold, Link
from normscope.errors import InputError
from normscope.experiments import figures, tables
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation, Outcome, RunFacts, check_choice
from normscope.experiments.exact import Moments
from normscope.experiments.partial import Partial
from normscope.measures import Decomposition
from normscope.scopes import CROSS_WEIGHTS, resolve

METHODS = ("weights", "norms")
_SCOPES = {"weights": "CrossW", "norms": "Cross"}
_NONE = -1


@dataclass(frozen=True)
class AlignedPair:
    """The word of every source token and of every token that the decoder gives out (-1: none), and the gold alignment."""

    source_words: np.ndarray
    target_words: np.ndarray
    gold: Gold

    def rows(self, setting: str) -> np.ndarray:
        """The target word that every row of the decoder belongs to."""
        return self.target_words if setting == "AWO" else np.concatenate([[_NONE], self.target_words[:-1]])


def word_map(tokens: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`[..., row, column]` of tokens to words: the map, the target words along it, and the source words (-1 last: none).

    Columns are summed and rows averaged; rows that belong to no word are left out, while columns that belong to none (the
    end of the sentence) stay, as one column.
    """
    targets, sources = np.unique(rows[rows >= 0]), np.unique(columns[columns >= 0])
    summed = np.stack([tokens[..., columns == word].sum(-1) for word in (*sources, _NONE)], -1)
    averaged = np.stack([summed[..., rows == word, :].mean(-2) for word in targets], -2)
    return averaged, targets, np.array([*sources, _NONE])


def links(tokens: np.ndarray, pair: AlignedPair, setting: str) -> list[set[Link]]:
    """The links of each map of `[map, row, column]`: one for every target word, none where the sentence's end is best."""
    words, targets, sources = word_map(tokens, pair.rows(setting), pair.source_words)
    best = sources[words.argmax(-1)]
    return [{(int(s), int(t)) for s, t in zip(row, targets, strict=True) if s != _NONE} for row in best]


def error_counts(found: set[Link], gold: Gold) -> tuple[int, int, int, int]:
    """`|A & S|, |A & P|, |A|, |S|`."""
    return len(found & gold.sure), len(found & gold.possible), len(found), len(gold.sure)


def alignment_error_rate(counts: np.ndarray) -> np.ndarray:
    """`[..., 4]` counts to AER: 1 - (|A & S| + |A & P|) / (|A| + |S|)."""
    total = counts[..., 2] + counts[..., 3]
    hits = (counts[..., 0] + counts[..., 1]).astype(np.float64)
    return 1 - np.divide(hits, total, out=np.full(total.shape, np.nan), where=total > 0)


@dataclass(frozen=True)
class Alignment(Experiment):
    """Option `setting`: AWO, AWI or both."""

    setting: str = "both"

    name: ClassVar[str] = "alignment"
    paper: ClassVar[str] = "Kobayashi et al. 2020"
    shows: ClassVar[str] = "alignment error rates of weights and norms"
    summary: ClassVar[str] = (
        "word alignment from cross-attention: error rate by layer and head (needs pairs with gold links)"
    )
    columns: ClassVar[dict[str, str]] = {
        "setting": "AWO: a row belongs to the token it gives out; AWI: to the token it reads",
        "method": "weights: mean attention weights (or one head's); norms: ||sum_h a f(x)|| (or one head's ||a f(x)||)",
        "layer": "layer of the decoder, from 1",
        "head": "head, from 1; empty for the whole layer",
        "aer": "alignment error rate over the corpus",
        "links": "number of links",
        "mean_norm": "mean of ||a f(x)|| over all rows and columns of the head (for a layer: sum over its heads)",
        "which": "layer mean, best layer, best head, or the layer and head of highest mean norm",
        "spearman": "rank correlation of the heads' AER by norms with their mean norm",
        "pearson": "linear correlation of the same",
    }

    def __post_init__(self) -> None:
        check_choice(self.name, "setting", self.setting, ("AWO", "AWI", "both"))

    @property
    def settings(self) -> tuple[str, ...]:
        return ("AWO", "AWI") if self.setting == "both" else (self.setting,)

    def needs(self, model: ModelFacts) -> Needs:
        if "CrossW" not in model.scopes:
            raise InputError(f"alignment needs an encoder-decoder model; {model.name} has no cross-attention.")
        return Needs((Decomposition(maps=(CROSS_WEIGHTS, resolve("Cross", model.scopes)), heads=True),), gold=True)

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        pair = observation.pair
        if pair is None:
            raise InputError(
                "alignment needs sentence pairs with gold links: --corpus pairs.src-tgt --gold pairs.gold."
            )
        maps = {method: _maps(observation, model, method) for method in METHODS}
        layers, per_layer, rows, columns = maps["weights"].shape
        counts = np.zeros((len(self.settings), len(METHODS), layers, per_layer, 4), np.int64)
        for s, setting in enumerate(self.settings):
            for m, method in enumerate(METHODS):
                found = links(maps[method].reshape(-1, rows, columns), pair, setting)
                counts[s, m] = np.reshape([error_counts(each, pair.gold) for each in found], counts[s, m].shape)
        heads = maps["norms"][:, 1:].reshape(layers, per_layer - 1, -1)
        return Partial(moments={"norm": Moments.of(np.moveaxis(heads, -1, 0))}, counts={"links": counts})

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        counts, norm = partial.counts["links"], partial.moments["norm"].mean()
        aer = alignment_error_rate(counts)
        records: list[dict[str, Any]] = []
        for s, m, k, h in np.ndindex(aer.shape):
            records.append(
                {
                    "setting": self.settings[s],
                    "method": METHODS[m],
                    "layer": facts.model.layers[k],
                    "head": None if h == 0 else h,
                    "aer": float(aer[s, m, k, h]),
                    "links": int(counts[s, m, k, h, 2]),
                    "mean_norm": float(norm[k].sum() if h == 0 else norm[k, h - 1]),
                }
            )
        summary = [
            record for s, setting in enumerate(self.settings) for record in _summary(setting, aer[s], norm, facts.model)
        ]
        correlations = [_correlation(setting, aer[s, 1, :, 1:], norm) for s, setting in enumerate(self.settings)]
        return Outcome(
            {
                "alignment": tables.from_records(summary, _SUMMARY),
                "alignment-heads": tables.from_records(records, _HEADS),
                "alignment-norm": tables.from_records(correlations),
            },
            {
                f"alignment-{setting.lower()}": bind(_figure, aer[s], setting, facts.model)
                for s, setting in enumerate(self.settings)
            },
        )


_HEADS = pa.schema(
    {
        "setting": pa.string(),
        "method": pa.string(),
        "layer": pa.int64(),
        "head": pa.int64(),
        "aer": pa.float64(),
        "links": pa.int64(),
        "mean_norm": pa.float64(),
    }
)
_SUMMARY = pa.schema(
    {
        "setting": pa.string(),
        "method": pa.string(),
        "which": pa.string(),
        "layer": pa.int64(),
        "head": pa.int64(),
        "aer": pa.float64(),
    }
)


def _maps(observation: Observation, model: ModelFacts, method: str) -> np.ndarray:
    """`[layer, 1 + head, row, source]`: the map of the layer, then those of its heads."""
    analysis = observation.analysis
    source = analysis.dataset["key_group"].values == "source"
    layer = analysis.map(resolve(_SCOPES[method], model.scopes)).values[..., source]
    heads = analysis.dataset["head_map"].sel(head_scope=_SCOPES[method]).values[..., source]
    return np.concatenate([layer[:, None], heads], 1).astype(np.float64)


def _summary(setting: str, aer: np.ndarray, norm: np.ndarray, model: ModelFacts) -> list[dict[str, object]]:
    records: list[dict[str, object]] = []
    for m, method in enumerate(METHODS):
        layers, heads = aer[m, :, 0], aer[m, :, 1:]
        best = int(layers.argmin())
        best_head = np.unravel_index(int(heads.argmin()), heads.shape)
        highest = int(norm.sum(1).argmax())
        highest_head = np.unravel_index(int(norm.argmax()), norm.shape)
        for which, layer, head, value in (
            ("layer mean", None, None, layers.mean()),
            ("best layer", best, None, layers[best]),
            ("best head", best_head[0], best_head[1], heads[best_head]),
            ("layer of highest mean norm", highest, None, layers[highest]),
            ("head of highest mean norm", highest_head[0], highest_head[1], heads[highest_head]),
        ):
            records.append(
                {
                    "setting": setting,
                    "method": method,
                    "which": which,
                    "layer": None if layer is None else model.layers[int(layer)],
                    "head": None if head is None else int(head) + 1,
                    "aer": float(value),
                }
            )
    return records


def _correlation(setting: str, aer: np.ndarray, norm: np.ndarray) -> dict[str, object]:
    first, second = aer.reshape(-1), norm.reshape(-1)
    if np.ptp(first) == 0 or np.ptp(second) == 0 or len(first) < 3:
        return {"setting": setting, "spearman": float("nan"), "pearson": float("nan")}
    ranked: Any = stats.spearmanr(first, second)
    linear: Any = stats.pearsonr(first, second)
    return {"setting": setting, "spearman": float(ranked.statistic), "pearson": float(linear.statistic)}


def _figure(aer: np.ndarray, setting: str, model: ModelFacts) -> Figure:
    figure, grid = figures.panels(2, columns=2, width=0.55 * aer.shape[2] + 1.6, height=0.42 * len(model.layers) + 1.3)
    for m, (axes, method) in enumerate(zip(grid, METHODS, strict=True)):
        columns = ["layer", *range(1, aer.shape[2])]
        title = f"{setting}: AER by {method} (%)"
        figures.heat(axes, 100 * aer[m], model.layers, columns, title=title, form="{:.1f}", colours="Purples_r")
        axes.set(xlabel="head", ylabel="layer")
    return figure
