"""redundancy: how much every component changes the map, and how much the model loses when the component is skipped.

For pruning: a component with little effect on the loss (or the last states) can be removed, and the table shows whether the
change of the map, 1 - r, would have predicted it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial as bind
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import torch
import xarray as xr
from jaxtyping import Float
from matplotlib.figure import Figure
from scipy import stats
from torch import Tensor

from normscope.chain.measure import KeptTraces
from normscope.chain.trace import Attention, LayerTrace
from normscope.corpora.item import Item, masked
from normscope.errors import InputError
from normscope.experiments import declared, figures, statistics, tables
from normscope.experiments.base import ModelFacts, Outcome, RunFacts
from normscope.experiments.faithfulness.base import CONFIDENCE, PREDICTIONS, RESAMPLES, Trial, task_of
from normscope.experiments.faithfulness.skipping import Component, components_of, continued, without
from normscope.experiments.partial import Partial, Rows
from normscope.experiments.similarity import COLUMNS, MapComparison, map_comparisons, similarities
from normscope.experiments.tables import Row
from normscope.inputs import TokenSequence
from normscope.methods.norms import Decomposition
from normscope.methods.resolve import measure_layers
from normscope.results.from_pass import analysis_of
from normscope.scopes import component_words

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

_MEASURES = ("change", "loss_change", "turn")
_FEWEST = 3


@dataclass(frozen=True)
class Redundancy(declared.Redundancy, Trial):
    tasks: ClassVar[tuple[str, ...]] = ("none", *PREDICTIONS)
    columns: ClassVar[dict[str, str]] = {
        "layer": "layer, from 1",
        "component": "Attn, head, Res, Ln, Ff (numbered where a block has two of a kind)",
        "head": "head, from 1; empty for other components",
        "measure": "change: 1 - correlation of the map before and after the component (of a head: of the map at Attn "
        "with and without it); loss_change: what the loss gains, in nats per token, when the component is skipped (language "
        "models only); turn: 1 - cosine of the last states with and without it, mean over tokens",
        **COLUMNS,
        "mean": "mean over texts",
        "low": "lower end of the 95 % bootstrap interval over texts",
        "high": "its upper end",
        "sequences": "number of texts",
        "effect": "loss_change or turn",
        "spearman": "rank correlation of the change of the map with the effect, over layers (and heads)",
        "count": "number of components that are compared",
    }
    captions: ClassVar[dict[str, str]] = {
        "redundancy": "How much each component changes the map, and what the model loses without it; bands: 95 % intervals.",
    }

    def __post_init__(self) -> None:
        _ = self.comparison

    @property
    def comparison(self) -> MapComparison:
        """The way in which maps are compared."""
        return map_comparisons(self.name, (self.correlation,), (self.normalisation,))[0]

    def calls(self, model: ModelFacts, length: int) -> int:
        components = len(model.scopes[-1].components)
        heads = max(1, model.width // 64) if self.heads else 0
        return len(model.layers) * (components + heads) + 2

    def examine(self, analyzer: Analyzer, item: Item, seed: int) -> Partial:
        if item.length < _FEWEST:
            return Partial()
        sequence, truth = _task(analyzer, item, seed)
        traces, decomposition = KeptTraces(), Decomposition(maps=tuple(analyzer.scopes))
        (measured,) = measure_layers(analyzer, [sequence], [traces, decomposition])
        analysis = analysis_of(analyzer, measured)
        maps = analysis.dataset["map"].transpose("layer", "scope", "query", "key")
        similar = similarities(maps, (self.comparison,))[0]
        rows: list[Row] = []
        for index, (layer, trace) in enumerate(measured.main[traces].items()):
            skipped = [component for component in components_of(trace) if self.heads or component.head is None]
            outputs = torch.stack([without(trace, None), *(without(trace, component) for component in skipped)])
            after = continued(analyzer, sequence, layer, outputs, logits=truth is not None)
            losses = None if truth is None or after.logits is None else truth.losses(after.logits)
            turns = 1 - torch.nn.functional.cosine_similarity(after.states[1:], after.states[:1], dim=-1).mean(-1)
            for row, component in enumerate(skipped):
                rows.append(
                    {"sequence": item.number, "layer": layer, "component": component.name, "head": component.head}
                    | {"change": 1 - self._similarity(component, trace, similar[index]), "turn": float(turns[row])}
                    | {"loss_change": None if losses is None else float(losses[row + 1] - losses[0])}
                )
        return Partial(rows={"rows": Rows((pa.Table.from_pylist(rows, schema=_ROWS),))})

    def _similarity(self, component: Component, trace: LayerTrace, similar: np.ndarray) -> float:
        """That of the maps before and after a component; `similar` has those of any two scopes of the layer."""
        if component.head is not None:
            step = trace.steps[component.place]
            assert isinstance(step, Attention)
            return float(similarities(_with_and_without(step, component.head), (self.comparison,))[0, 0, 0, 1])
        before = sum(1 for step in trace.steps[: component.place] if step.name)
        return float(similar[before, before + 1])

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        if "rows" not in partial.rows:
            raise InputError(f"{self.name}: no text has {_FEWEST} tokens.")
        table = partial.rows["rows"].select("SELECT * FROM rows ORDER BY sequence, layer, component, head")
        rows = table.to_pylist()
        by = ("layer", "component", "head")
        interval = bind(statistics.mean_with_interval, resamples=RESAMPLES, confidence=CONFIDENCE, seed=facts.seed)
        records: list[Row] = []
        for measure in _MEASURES:
            groups = statistics.grouped([{**row, "method": measure} for row in rows], by, measure)
            records += [_renamed(record) for record in statistics.means(groups, by, interval)]
        records.sort(key=lambda r: (_MEASURES.index(r["measure"]), r["component"], r["layer"], r["head"] or 0))
        results = {
            "redundancy": tables.from_records([{**record, **self.comparison._asdict()} for record in records], _MEANS),
            "redundancy-agreement": tables.from_records(_agreement(records), _AGREEMENT),
        }
        return Outcome(results, {"redundancy": bind(_figure, records, facts.model, self.comparison)})

    @classmethod
    def sentence(cls, rows: list[Row]) -> str:
        means = tables.rows_with(rows, "mean")
        known = [row for row in means if row["measure"] == "change" and row["head"] is None]
        low, high = (choose(known, key=lambda row: row["mean"]) for choose in (min, max))
        return (
            f"{high['component']} of layer {high['layer']} changes the map most ({high['mean']:.2g}), {low['component']} of "
            f"layer {low['layer']} least ({low['mean']:.2g})."
        )


_ROWS = pa.schema(
    {"sequence": pa.int64(), "layer": pa.int64(), "component": pa.string(), "head": pa.int64()}
    | {name: pa.float64() for name in ("change", "turn", "loss_change")}
)
_MEANS = pa.schema(
    {"layer": pa.int64(), "component": pa.string(), "head": pa.int64(), "measure": pa.string()}
    | {name: pa.string() for name in MapComparison._fields}
    | {name: pa.float64() for name in ("mean", "low", "high")}
    | {"sequences": pa.int64()}
)
_AGREEMENT = pa.schema({"component": pa.string(), "effect": pa.string(), "spearman": pa.float64(), "count": pa.int64()})


@dataclass(frozen=True)
class _Truth:
    """The correct output tokens of a language model at some rows."""

    rows: list[int]
    labels: list[int]

    def losses(self, logits: Float[Tensor, "many token label"]) -> Float[Tensor, " many"]:
        """The mean negative log-probability, in nats per token."""
        chosen = logits[:, self.rows].log_softmax(-1)
        return -chosen[:, range(len(self.rows)), self.labels].mean(-1)


def _task(analyzer: Analyzer, item: Item, seed: int) -> tuple[TokenSequence, _Truth | None]:
    """The input of the model and its correct output: the next tokens, or those at masked positions."""
    ids = item.sequence.features["input_ids"]
    match task_of(analyzer):
        case "causal-lm":
            return item.sequence, _Truth(list(range(len(ids) - 1)), ids[1:])
        case "masked-lm":
            mask = getattr(analyzer.tokenizer, "mask_token_id", None)
            if mask is None:
                raise InputError(f"{analyzer.name} fills in masks, but its tokenizer has no mask token.")
            changed = masked(item, mask, str(getattr(analyzer.tokenizer, "mask_token", "")), seed).sequence
            rows = [row for row, number in enumerate(changed.features["input_ids"]) if number != ids[row]]
            return changed, _Truth(rows, [ids[row] for row in rows])
        case _:
            return item.sequence, None


def _with_and_without(step: Attention, head: int) -> xr.DataArray:
    """The map at Attn, `[layer, which, query, key]`, with all heads and without one; keys that are not seen do not exist."""
    factors = step.values @ step.output
    parts = torch.einsum("hqk,hkd->qkd", step.weights, factors)
    own = step.weights[head - 1][..., None] * factors[head - 1]
    whole, rest = (vectors.norm(dim=-1).double().cpu().numpy() for vectors in (parts, parts - own))
    seen = whole > 0
    maps = np.stack([np.where(seen, whole, np.nan), np.where(seen, rest, np.nan)])
    return xr.DataArray(maps[None], dims=("layer", "which", "query", "key"))


def _renamed(record: Row) -> Row:
    return {**{name: value for name, value in record.items() if name != "method"}, "measure": record["method"]}


def _agreement(records: list[Row]) -> list[Row]:
    """Whether the change of the map predicts the effect of skipping, for each kind of component and for all except heads."""
    means = {(r["measure"], r["layer"], r["component"], r["head"]): r["mean"] for r in records}
    kinds = list(dict.fromkeys(r["component"] for r in records))
    correlations: list[Row] = []
    for kind in (*kinds, "all but heads"):
        wanted = [kind] if kind in kinds else [name for name in kinds if name != "head"]
        for effect in ("loss_change", "turn"):
            pairs = [
                (value, means[effect, *key])
                for (measure, *key), value in means.items()
                if measure == "change" and key[1] in wanted and (effect, *key) in means
            ]
            if len(pairs) >= _FEWEST:
                rho: object = stats.spearmanr(*np.array(pairs).T)
                correlations.append(
                    {"component": kind, "effect": effect, "spearman": float(rho.statistic), "count": len(pairs)}
                )
    return correlations


def _figure(records: list[Row], model: ModelFacts, comparison: MapComparison) -> Figure:
    """The change of the map and the effect of skipping, by layer, for all components except heads."""
    measured = [name for name in _MEASURES if any(r["measure"] == name for r in records)]
    labels = {
        "change": f"change of the map, 1 - {comparison.symbol}",
        "loss_change": "loss gained",
        "turn": "1 - cosine",
    }
    figure, grid = figures.panels(len(measured), width=4.2, height=3.2)
    for axes, measure in zip(grid, measured, strict=True):
        series: dict[str, np.ndarray] = {}
        bands: dict[str, figures.Band] = {}
        for name in dict.fromkeys(r["component"] for r in records if r["component"] != "head"):
            known = {r["layer"]: r for r in records if r["measure"] == measure and r["component"] == name}
            mean, low, high = (
                np.array([known[layer][column] if layer in known else np.nan for layer in model.layers])
                for column in ("mean", "low", "high")
            )
            series[component_words(name)], bands[component_words(name)] = mean, (low, high)
        figures.lines(axes, model.layers, series, label=labels[measure], bands=bands, legend=False)
        if measure != "change":
            figures.signed_log_scale(axes, threshold=0.01)
    figures.legend_below(figure, grid[0], columns=6)
    return figure
