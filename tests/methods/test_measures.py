"""The seam between traces and numbers: measures are values, joined so that each runs once, and folded over the layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_models import tiny, token_ids
from torch import Tensor

import normscope as ns
from normscope.chain.measure import ArrayMeasure, CaptureDepth, KeptTraces, LayerMeasure, Measure
from normscope.chain.trace import LayerTrace
from normscope.decompose import decompose
from normscope.inputs import TokenSequence, read_inputs
from normscope.methods.norms import Decomposition, joined
from normscope.methods.resolve import measure_layers
from normscope.methods.vectors import HiddenNorms, MapWithoutDimensions
from normscope.runs import run
from normscope.scopes import Scope

CHAIN = ["Attn", "Res", "Ln", "Ff", "Res", "Ln"]
WEIGHTS, ATTN, RES, FF = (Scope(name) for name in ("AttnW", "Attn", "AttnRes", "AttnResLnFf"))
LAYERS = 3


@pytest.fixture(scope="module")
def bert() -> ns.Analyzer:
    return ns.load(tiny("bert", num_hidden_layers=LAYERS))


def sequences(*lengths: int) -> list[TokenSequence]:
    return [_sequence(ids) for ids in token_ids(*lengths)]


def _sequence(ids: list[int]) -> TokenSequence:
    tokens = [str(number) for number in ids]
    return TokenSequence({"input_ids": ids}, tokens, [False] * len(ids), None, tokens, "")


@dataclass(frozen=True)
class Noted(LayerMeasure[int]):
    """The number of queries of every layer, and, for all that are equal to it, a note of every call."""

    name: str
    notes: list[tuple[int, LayerTrace]] = field(default_factory=list, compare=False)

    def add(self, state: dict[int, int], layer: int, trace: LayerTrace) -> dict[int, int]:
        self.notes.append((layer, trace))
        return super().add(state, layer, trace)

    def of_layer(self, trace: LayerTrace) -> int:
        return len(trace.queries)


@dataclass(frozen=True)
class Erring(LayerMeasure[None]):
    """Follows parts that are off by `error` after one layer, for its last query."""

    layer: int
    error: float

    def of_layer(self, trace: LayerTrace) -> None:
        return None

    def errors(self, state: Mapping[int, None], layer: int) -> Mapping[str, Tensor]:
        return {"AttnRes": torch.tensor([0.0, 0.0, self.error if layer == self.layer else 0.0])}


@dataclass(frozen=True)
class Order(Measure[tuple[int, ...], str]):
    """A fold that is no table of layers: their numbers, one after the other."""

    def start(self) -> tuple[int, ...]:
        return ()

    def add(self, state: tuple[int, ...], layer: int, trace: LayerTrace) -> tuple[int, ...]:
        return (*state, layer)

    def finish(self, state: tuple[int, ...]) -> str:
        return " then ".join(map(str, state))


# ---- values that are joined ----------------------------------------------------------------------------------------------


def test_equal_measures_are_one_value() -> None:
    assert Decomposition(maps=(ATTN,)) == Decomposition(maps=(ATTN,))
    assert len({HiddenNorms(), HiddenNorms(), KeptTraces(), KeptTraces()}) == 2


def test_joining_keeps_every_other_measure_once_and_in_order() -> None:
    kept, norms = KeptTraces(), HiddenNorms()
    assert joined([kept, norms, KeptTraces(), HiddenNorms()]) == [kept, norms]


def test_joining_unites_the_scopes_of_decompositions_in_the_order_in_which_they_are_named() -> None:
    first = Decomposition(maps=(FF, ATTN), ratios=(RES,))
    second = Decomposition(maps=(ATTN, WEIGHTS), ratios=(FF, RES), heads=True)
    assert joined([first, second]) == [Decomposition(maps=(FF, ATTN, WEIGHTS), ratios=(RES, FF), heads=True)]


def test_decompositions_that_count_the_value_bias_differently_stay_apart() -> None:
    token, bias = Decomposition(ratios=(RES,)), Decomposition(ratios=(RES,), value_bias="bias")
    assert joined([token, HiddenNorms(), bias, token]) == [token, bias, HiddenNorms()]


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (CaptureDepth(1), CaptureDepth(4), CaptureDepth(4)),
        (CaptureDepth(2), CaptureDepth(None), CaptureDepth(None)),
        (CaptureDepth(0), CaptureDepth(0), CaptureDepth(0)),
    ],
)
def test_two_reaches_join_to_the_farther_of_each(one: CaptureDepth, other: CaptureDepth, both: CaptureDepth) -> None:
    assert one | other == other | one == both


def test_a_decomposition_reaches_as_far_as_its_last_scope() -> None:
    assert Decomposition(maps=(ATTN,), ratios=(FF,)).reach(CHAIN) == CaptureDepth(4)
    assert Decomposition(ratios=(RES,), value_bias="bias").reach(CHAIN) == CaptureDepth(2)
    assert HiddenNorms().reach(CHAIN) == CaptureDepth()


# ---- the fold ------------------------------------------------------------------------------------------------------------


def test_a_measure_is_called_once_for_every_layer_of_every_sequence(bert: ns.Analyzer) -> None:
    noted = Noted("all")
    first, second = measure_layers(bert, sequences(5, 3), [noted])
    assert sorted((layer, trace.length) for layer, trace in noted.notes) == [
        (layer, length) for layer in range(1, 1 + LAYERS) for length in (3, 5)
    ]
    assert first.main[noted] == dict.fromkeys(range(1, 1 + LAYERS), 5)
    assert second.main[noted] == dict.fromkeys(range(1, 1 + LAYERS), 3)


def test_equal_measures_run_once(bert: ns.Analyzer) -> None:
    one, same, other = Noted("one"), Noted("one"), Noted("other")
    (measured,) = measure_layers(bert, sequences(4), [one, same, other, one])
    assert [len(measure.notes) for measure in (one, same, other)] == [LAYERS, 0, LAYERS]
    assert measured.main[same] is measured.main[one]


def test_measures_see_the_same_trace(bert: ns.Analyzer) -> None:
    one, other = Noted("one"), Noted("other")
    measure_layers(bert, sequences(4), [one, other])
    assert all(left is right for (_, left), (_, right) in zip(one.notes, other.notes, strict=True))


def test_a_fold_goes_through_the_layers_in_their_order(bert: ns.Analyzer) -> None:
    (measured,) = measure_layers(bert, sequences(4), [Order()])
    assert measured.main[Order()] == "1 then 2 then 3"


def test_arrays_of_layers_are_stacked(bert: ns.Analyzer) -> None:
    (measured,) = measure_layers(bert, sequences(4), [HiddenNorms()])
    states = [trace.hidden.double().norm(dim=-1) for trace in _traces(bert, 4)]
    assert isinstance(HiddenNorms(), ArrayMeasure)
    np.testing.assert_allclose(measured.main[HiddenNorms()], np.stack(states), rtol=1e-5)


def _traces(analyzer: ns.Analyzer, *lengths: int) -> Sequence[LayerTrace]:
    (measured,) = measure_layers(analyzer, sequences(*lengths), [KeptTraces()])
    return list(measured.main[KeptTraces()].values())


@pytest.mark.parametrize(("measures", "components"), [([Decomposition(ratios=(ATTN,))], 1), ([HiddenNorms()], 6)])
def test_the_capture_goes_as_far_as_the_farthest_measure(
    bert: ns.Analyzer, measures: list[Measure[Any, Any]], components: int
) -> None:
    @dataclass(frozen=True)
    class Near(Noted):
        def reach(self, components: Sequence[str]) -> CaptureDepth:
            return CaptureDepth(0)

    near = Near("near")
    measure_layers(bert, sequences(4), [near, *measures])
    seen = len(near.notes[0][1].components)
    # One component more than is measured is captured where it shows the state after the last.
    assert components <= seen <= components + 1


# ---- the proof -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [2e-4, float("nan"), float("inf")])
def test_an_error_above_the_tolerance_is_refused_with_the_layer_and_the_scope(bert: ns.Analyzer, error: float) -> None:
    assert bert.tolerance == 1e-4
    with pytest.raises(ns.CompletenessError, match=r"layer 2 .* after AttnRes"):
        measure_layers(bert, sequences(3), [Erring(2, error)])


def test_an_error_within_the_tolerance_is_the_worst_of_the_results(bert: ns.Analyzer) -> None:
    (measured,) = measure_layers(bert, sequences(3), [Erring(2, 5e-5), HiddenNorms()])
    assert measured.main.worst_error == pytest.approx(5e-5)
    (unproved,) = measure_layers(bert, sequences(3), [HiddenNorms()])
    assert np.isnan(unproved.main.worst_error)


# ---- progress and cancelling ---------------------------------------------------------------------------------------------


def test_every_layer_of_every_sequence_is_told_before_it_begins(bert: ns.Analyzer) -> None:
    told: list[tuple[int, int]] = []
    noted = Noted("told")
    measure_layers(
        bert, sequences(5, 3), [noted], tell=lambda done, total: told.append((done, total - len(noted.notes)))
    )
    assert told == [(done, 2 * LAYERS - done) for done in range(2 * LAYERS)]


def test_who_is_told_can_cancel_the_pass(bert: ns.Analyzer) -> None:
    class Enough(Exception):
        pass

    def tell(done: int, _: int) -> None:
        if done == 2:
            raise Enough

    noted = Noted("cancelled")
    with pytest.raises(Enough):
        measure_layers(bert, sequences(4), [noted], tell=tell)
    assert [layer for layer, _ in noted.notes] == [1, 2]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in bert.model.modules())


# ---- completeness is that of the worst component -------------------------------------------------------------------------


def test_the_completeness_of_an_analysis_is_that_of_its_worst_component(analyzer: ns.Analyzer) -> None:
    analysis = analyzer.analyze("The opera singer caught a soap bubble.")
    errors = analysis.dataset["component_error"]
    assert errors.sizes["checked_scope"] == len(CHAIN)
    np.testing.assert_array_equal(analysis.completeness, errors.max("checked_scope"))
    assert bool((errors.isel(checked_scope=-1) < analysis.completeness).any()), "the last component is not the worst"


def test_the_manifest_of_a_run_has_the_error_of_the_worst_component(analyzer: ns.Analyzer) -> None:
    text = "The opera singer caught a soap bubble."
    manifest = run(["scope-similarity"], model=analyzer, corpus=[text], masking="none").manifest
    by_layer = [decompose(trace, analyzer.scopes).errors for trace in analyzer.traces(text)]
    worst = max(float(error.amax()) for errors in by_layer for error in errors.values())
    last = max(float(list(errors.values())[-1].amax()) for errors in by_layer)
    assert manifest["worst_completeness_error"] == pytest.approx(worst, rel=1e-5)
    assert last < worst


def test_a_map_without_dimensions_comes_from_the_same_parts_as_the_others(analyzer: ns.Analyzer) -> None:
    """One decomposition gives both, and the map is that of a decomposition of its own."""
    scope = next(scope for scope in analyzer.scopes if scope.last == "Ff")
    removal = MapWithoutDimensions(0.05)
    (measure,) = joined([Decomposition(maps=(scope,)), removal])
    texts, _ = read_inputs("A soap bubble.", analyzer.tokenizer, None)
    (together,) = measure_layers(analyzer, texts, [measure])
    (alone,) = measure_layers(analyzer, texts, [removal])
    np.testing.assert_allclose(together.main[removal], alone.main[removal], rtol=1e-5)
    assert together.main[removal].shape == (len(analyzer.layers), *together.main[measure][1].maps[scope].shape)


def test_a_map_without_dimensions_stays_alone_where_biases_count_otherwise() -> None:
    removal = MapWithoutDimensions(0.05)
    counted = Decomposition(maps=(Scope("AttnResLnFf"),), value_bias="bias")
    assert joined([counted, removal]) == [counted, removal]
    before = Decomposition(maps=(Scope("AttnResLn"),))
    assert joined([before, removal]) == [before, removal]
