"""deletion: what happens to a prediction when the tokens that a method ranks first are removed, or kept alone.

For classifiers of texts and tokens, masked and causal language models. Tokens are masked, dropped or replaced by the mean
embedding: the choice matters, so the tables have every one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial as bind
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import torch
from matplotlib.figure import Figure

from normscope.corpora.item import Item
from normscope.errors import InputError
from normscope.experiments import declared, figures, statistics, tables
from normscope.experiments.base import ModelFacts, Outcome, RunFacts, check_choice
from normscope.experiments.faithfulness import curves
from normscope.experiments.faithfulness.base import (
    ALL,
    CONFIDENCE,
    PREDICTIONS,
    RESAMPLES,
    Case,
    MethodTrial,
    case_of,
    notes_of,
    shares_by,
    unavailable,
)
from normscope.experiments.figures import method_bars
from normscope.experiments.partial import Moments, Partial, Rows
from normscope.experiments.tables import Row
from normscope.explain.model_values import Values
from normscope.explain.probabilities import has_probabilities
from normscope.explain.removal import NO_ROW, without
from normscope.inputs import TokenSequence
from normscope.options import Removal, objective_of

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

REMOVALS: tuple[Removal, ...] = ("mask", "drop", "mean")
_GRID = np.linspace(0, 1, 11)
"""Shares of removed tokens at which mean curves are drawn."""

_FEWEST = 2
"""Minimum number of tokens that can be removed: with fewer there is no order to try."""

Removed = frozenset[int]
"""Indices of removed tokens."""

_TOKENS_AT_ONCE = 2048


@dataclass(frozen=True)
class Deletion(declared.Deletion, MethodTrial):
    tasks: ClassVar[tuple[str, ...]] = PREDICTIONS
    columns: ClassVar[dict[str, str]] = {
        "removal": "mask: replaced by the mask token; drop: left out; mean: replaced by the text's mean embedding",
        "method": "name of the method (normscope methods)",
        "measure": "comprehensiveness (higher is better): fall of the predicted label's probability without the top 1, 5, "
        "10, 20, 50 %, and their mean; sufficiency (lower is better): its fall with these alone; aopc: mean fall over all "
        "steps of the curve; naopc: the same between the worst (0) and the best (1) order of beam search; srg: area under "
        "the curve with the least important first minus that with the most important first (0: a random order)",
        "mean": "mean over texts",
        "low": "lower end of the 95 % bootstrap interval over texts",
        "high": "its upper end",
        "sequences": "number of texts",
        "reference": "the method that is subtracted",
        "difference": "mean difference, method minus reference, on the same texts",
        "sequence": "index of the text in the corpus, from 0",
        "value": "the measure of one text",
        "order": "most or least important first",
        "share": "share of the tokens taken away",
        "probability": "mean probability of the label predicted for the whole text; where several may be true, by itself",
    }
    captions: ClassVar[dict[str, str]] = {
        "deletion-comprehensiveness": "How far the prediction falls when the tokens that a method ranks first are "
        "taken away.",
        "deletion-curves": "The probability of the prediction while tokens are taken away, most or least important "
        "first.",
        "deletion-srg": "The gap between both orders of deletion, by method; more is better.",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.removals:
            raise InputError(f"{self.name}: name at least one removal of {', '.join(REMOVALS)}.")
        objective_of(self.objective)
        self.check_reference(self.reference, Deletion.reference, self.names)
        for removal in self.removals:
            check_choice(self.name, "removals", removal, REMOVALS)
        if self.steps < 2 or self.beam < 0:
            raise InputError(f"{self.name}: steps is at least 2 and beam at least 0, not {self.steps} and {self.beam}.")

    def calls(self, model: ModelFacts, length: int) -> int:
        steps = min(self.steps, length)
        curve = 2 * (steps + len(curves.BINS)) * len(self.names)
        search = self.beam * length * length if length <= self.steps else 0
        return super().calls(model, length) + len(self.removals) * (curve + search)

    def examine(self, analyzer: Analyzer, item: Item, seed: int) -> Partial:
        case = case_of(analyzer, item, seed, objective_of(self.objective))
        if len(case.candidates) < _FEWEST:
            return Partial()
        found = shares_by(analyzer, case.sequence, case.question, self.names, strict=ALL not in self.methods)
        probabilities = Probabilities(analyzer, case)
        rows: list[Row] = []
        grid = np.full((len(self.removals), len(self.names), 2, len(_GRID)), np.nan)
        for r, removal in enumerate(self.removals):
            if removal not in probabilities.removals():
                continue
            value = bind(probabilities.without, removal=removal)
            ends = self._ends(value, case.candidates)
            for m, method in enumerate(self.names):
                if method not in found.values:
                    continue
                order = curves.order_of(found.values[method][0], case.candidates)
                most, least = (curves.curve(value, direction, self.steps) for direction in (order, order[::-1]))
                grid[r, m] = [_on_grid(most), _on_grid(least)]
                label = {"sequence": item.number, "removal": removal, "method": method}
                measures = _measures(value, order, most, least, ends)
                rows += [{**label, "measure": name, "value": number} for name, number in measures.items()]
        partial = Partial(
            moments={"curves": Moments.once(grid)},
            rows={"rows": Rows((pa.Table.from_pylist(rows, schema=_ROWS),))},
        )
        return partial.merge(unavailable(found.refused))

    def _ends(self, value: curves.Value, candidates: tuple[int, ...]) -> tuple[float, float]:
        """The smallest and the largest area over the curve, where every token is a step and a search is requested."""
        if not self.beam or len(candidates) > self.steps:
            return float("nan"), float("nan")
        return curves.extreme_areas(value, candidates, self.beam)

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        if "rows" not in partial.rows:
            raise InputError(f"{self.name}: no text has two tokens that can be taken away.")
        table = partial.rows["rows"].select("SELECT * FROM rows ORDER BY sequence, removal, method, measure")
        order = {name: index for index, name in enumerate(self.names)}
        rows = sorted(table.to_pylist(), key=lambda row: (row["removal"], order[row["method"]], row["sequence"]))
        by = ("removal", "measure")
        interval = bind(statistics.mean_with_interval, resamples=RESAMPLES, confidence=CONFIDENCE, seed=facts.seed)
        groups = statistics.grouped(rows, by)
        records = statistics.means(groups, by, interval)
        differences = statistics.differences(groups, by, self.reference, interval)
        mean = partial.moments["curves"].mean()
        axes = {"removal": self.removals, "method": self.names, "order": ("most", "least"), "share": _GRID.tolist()}
        results = {
            "deletion": tables.from_records(records, _MEANS),
            "deletion-differences": tables.from_records(differences, _DIFFERENCES),
            "deletion-curves": tables.present(tables.tidy(axes, {"probability": mean}), "probability"),
            "deletion-rows": table,
        }
        drawn = {
            "deletion-srg": bind(_bars, records, "srg"),
            "deletion-comprehensiveness": bind(_bars, records, "comprehensiveness"),
            "deletion-curves": bind(self._curves, mean),
        }
        return Outcome(results, drawn, [_NO_DECOMPX, *notes_of(partial)])

    def _curves(self, mean: np.ndarray) -> Figure:
        tried = [index for index in range(len(self.removals)) if np.isfinite(mean[index]).any()]
        figure, grid = figures.panels(len(tried), width=4.4, height=3.6)
        for axes, index in zip(grid, tried, strict=True):
            for m, method in enumerate(self.names):
                colour, mark = figures.PALETTE[m % 8], "-" if m < len(figures.PALETTE) else "--"
                axes.plot(_GRID, mean[index, m, 0], mark, color=colour, linewidth=1.3, label=method)
            axes.set(xlabel="share of tokens taken away, most important first", ylabel="probability")
            axes.set_title(f"removal: {self.removals[index]}", fontsize=10)
            axes.spines[["top", "right"]].set_visible(False)
        grid[-1].legend(fontsize=6, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return figure


_NO_DECOMPX = (
    "No published values: those of DecompX (BERT-base on SST-2) are not among the values that normscope holds."
)
_LABELS = {"removal": pa.string(), "measure": pa.string(), "method": pa.string()}
_ROWS = pa.schema({"sequence": pa.int64(), **_LABELS, "value": pa.float64()})
_ENDS = {"low": pa.float64(), "high": pa.float64(), "sequences": pa.int64()}
_MEANS = pa.schema({**_LABELS, "mean": pa.float64(), **_ENDS})
_DIFFERENCES = pa.schema({**_LABELS, "reference": pa.string(), "difference": pa.float64(), **_ENDS})


def _measures(
    value: curves.Value, order: list[int], most: curves.Curve, least: curves.Curve, ends: tuple[float, float]
) -> dict[str, float]:
    falls = {
        "comprehensiveness": curves.comprehensiveness(value, order),
        "sufficiency": curves.sufficiency(value, order),
    }
    bins = {
        f"{name} {share:.0%}": float(fall)
        for name, shares in falls.items()
        for share, fall in zip(curves.BINS, shares, strict=True)
    }
    return {
        **bins,
        **{name: float(np.nanmean(shares)) for name, shares in falls.items()},
        "aopc": most.area_over,
        "naopc": curves.normalised(most.area_over, *ends),
        "srg": least.area_under - most.area_under,
    }


def _on_grid(curve: curves.Curve) -> np.ndarray:
    known = np.isfinite(curve.values)
    counts = curve.counts[known]
    return np.interp(_GRID, counts / counts[-1], curve.values[known])


def _bars(records: list[Row], measure: str) -> Figure:
    return method_bars([record for record in records if record["measure"] == measure], "removal", label=measure)


class Probabilities:
    """The probability of the label that the model predicts for the whole input, as a function of the removed tokens.

    Inputs run in batches, each once: probabilities are cached by what the model reads.
    """

    def __init__(self, analyzer: Analyzer, case: Case) -> None:
        self.analyzer, self.case = analyzer, case
        self.values = Values(analyzer, case.sequence, case.question)
        if not has_probabilities(analyzer.model, self.values.logits.shape[-1]):
            raise InputError(
                f"{analyzer.name} gives a number and no probabilities (a regression): nothing is predicted."
            )
        self._cache: dict[tuple[object, ...], float] = {}
        self.calls = 1

    def removals(self) -> tuple[Removal, ...]:
        """The kinds of removal that this model allows."""
        has_mask = getattr(self.analyzer.tokenizer, "mask_token_id", None) is not None
        return ("mask", "drop", "mean") if has_mask else ("drop", "mean")

    def without(self, removed: Sequence[Removed], removal: Removal) -> np.ndarray:
        """The probability without each of these sets of tokens; NaN where no token is left."""
        keys = [self._key(tokens, removal) for tokens in removed]
        missing = {key: tokens for key, tokens in zip(keys, removed, strict=True) if key not in self._cache}
        if missing:
            self.calls += len(missing)
            compute = self._of_states if removal == "mean" else self._of_sequences
            self._cache.update(zip(missing, compute(list(missing.values()), removal), strict=True))
        return np.array([self._cache[key] for key in keys])

    def _key(self, removed: Removed, removal: Removal) -> tuple[object, ...]:
        """What the model reads: token ids and the row of the prediction, or the indices of mean states."""
        if removal == "mean":
            return ("mean", *sorted(removed))
        sequence, rows = self._changed(removed, removal)
        return (*sequence.features["input_ids"], tuple(rows))

    def _changed(self, removed: Removed, removal: Removal) -> tuple[TokenSequence, list[int]]:
        case = self.case
        return without(self.analyzer, case.sequence, case.question, self.values.rows, removed, removal)

    def _of_sequences(self, removed: Sequence[Removed], removal: Removal) -> list[float]:
        changed = [self._changed(tokens, removal) for tokens in removed]
        readable = [index for index, (sequence, rows) in enumerate(changed) if len(sequence) and rows[0] != NO_ROW]
        answers = [float("nan")] * len(removed)
        if readable:
            sequences, rows = zip(*(changed[index] for index in readable), strict=True)
            values = self.values.of_sequences(sequences, rows, probabilities=True)[:, 0].tolist()
            for index, value in zip(readable, values, strict=True):
                answers[index] = float(value)
        return answers

    def _of_states(self, removed: Sequence[Removed], removal: Removal) -> list[float]:
        (states,) = self.values.entering
        mean, answers = states.mean(1)[0], list[float]()
        at_once = max(1, _TOKENS_AT_ONCE // states.shape[1])
        with torch.no_grad():
            for start in range(0, len(removed), at_once):
                some = removed[start : start + at_once]
                changed = states.repeat(len(some), 1, 1)
                for row, tokens in enumerate(some):
                    changed[row, sorted(tokens)] = mean
                answers += self.values.of_states(changed, probabilities=True)[:, 0].tolist()
        return answers
