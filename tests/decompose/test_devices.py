"""Nothing is made on a device of its own: whatever is computed lies where the model's tensors lie.

The default device is one without numbers here, so that a tensor that is made without saying where cannot be combined with
the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.traces import TOPOLOGIES, Shape, make_trace

import normscope as ns
from normscope.chain.trace import LayerTrace
from normscope.decompose import Approximation, decompose, mixing_ratios
from normscope.methods.projections import Projections
from normscope.pullback import pull_back_layer
from normscope.scopes import scopes_of

TEXT = "The opera singer caught a soap bubble."

ELSEWHERE = torch.device("meta")


def _maps(trace: LayerTrace, **options: Any) -> dict[str, torch.Tensor]:
    return decompose(trace, scopes_of(trace.components), **options).maps


def _projections(trace: LayerTrace) -> Any:
    measure = Projections(tuple(scope for scope in scopes_of(trace.components) if scope.quantity == "norm"), True)
    state = measure.add(measure.start(), 1, trace)
    return measure.variables(measure.finish(state))["projection"][1]


def _pulled_back(trace: LayerTrace) -> dict[str, torch.Tensor]:
    covector = torch.ones(2, *trace.hidden.shape, dtype=trace.hidden.dtype, device=trace.hidden.device)
    pulled = pull_back_layer(trace, covector, head_edges=True)
    return {"covector": pulled.covector, "edges": pulled.flow.edges, "bias": pulled.flow.bias}


WORK: dict[str, Callable[[LayerTrace], Any]] = {
    "maps": _maps,
    "heads": lambda trace: _maps(trace, heads=True),
    "bias": lambda trace: _maps(trace, value_bias="bias"),
    "mixing ratios": lambda trace: mixing_ratios(trace, scopes_of(trace.components)).mixing,
    "sketch": lambda trace: _maps(trace, approximation=Approximation(directions=4)),
    "slopes": lambda trace: _maps(trace, approximation=Approximation(neurons=0.2)),
    "patterns": lambda trace: _maps(trace, approximation=Approximation(directions=4, patterns=3)),
    "bf16": lambda trace: _maps(trace, approximation=Approximation(products="bf16")),
    "projections": _projections,
    "pull-back": _pulled_back,
}


@pytest.mark.parametrize("kind", WORK)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_whatever_is_computed_lies_where_the_trace_does(topology: str, kind: str) -> None:
    shape = Shape()
    try:
        expected = WORK[kind](make_trace(topology, shape))
    except ns.UnsupportedArchitectureError:
        pytest.skip("Mixtures of experts have no approximate maps.")
    trace = make_trace(topology, shape)
    with ELSEWHERE:
        computed = WORK[kind](trace)
    torch.testing.assert_close(computed, expected, equal_nan=True)


@pytest.mark.parametrize(
    "ask",
    [
        lambda analyzer: analyzer.analyze(TEXT, layers=[1, 2], heads=True, projections=True).dataset["map"],
        lambda analyzer: analyzer.analyze(TEXT, layers=2, queries=[0, -1], value_bias="bias").dataset["map"],
        lambda analyzer: analyzer.analyze(TEXT, layers=1, approximate="fast").dataset["map"],
        lambda analyzer: analyzer.mixing_ratios(TEXT),
        lambda analyzer: analyzer.explain(TEXT, direction="state", at=1).attribution,
        lambda analyzer: analyzer.explain(TEXT, direction="state", at=1, max_memory=1).attribution,
    ],
    ids=["maps", "queries", "fast", "mixing ratios", "explanation", "explanation in little memory"],
)
def test_a_whole_analysis_lies_where_the_model_does(analyzer: ns.Analyzer, ask: Callable[[ns.Analyzer], Any]) -> None:
    expected = ask(analyzer)
    with ELSEWHERE:
        computed = ask(analyzer)
    torch.testing.assert_close(computed.values, expected.values, equal_nan=True)
