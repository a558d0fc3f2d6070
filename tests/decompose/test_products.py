"""Less precise products: labelled with their measured error, proved less strictly, undone afterwards; and devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
import torch
from support.traces import Shape, make_trace

import normscope as ns
from normscope.chain.trace import LayerTrace, Shared
from normscope.decompose import Approximation, decompose, mixing_ratios
from normscope.decompose.dense import PLAIN, Multiplication
from normscope.errors import InputError
from normscope.scopes import scopes_of

TEXT = "The opera singer caught a soap bubble between two fingers, and the audience laughed."


def test_bf16_products_are_near_and_say_how_near(analyzer: ns.Analyzer) -> None:
    exact, near = (analyzer.analyze(TEXT, layers=[1, 2], products=each) for each in (None, "bf16"))
    assert near.approximate == "bf16 products"
    assert 0 < near.attrs["approximate_error"] < 0.01
    assert near.attrs["approximate_spearman"] > 0.999
    assert "bf16 products" in repr(near)
    assert analyzer.tolerance < float(near.completeness.max()) < 5e-2
    scopes = ("AttnResLn", "AttnResLnFf")
    differences = [float(abs(near.map(each) - exact.map(each)).max()) for each in scopes]
    assert differences[0] == 0 < differences[1]


def test_tf32_is_set_for_the_product_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before, during = torch.get_float32_matmul_precision(), []
    plain = torch.mm

    def spied(*operands: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        during.append(torch.get_float32_matmul_precision())
        return plain(*operands, out=out)

    monkeypatch.setattr(torch, "mm", spied)
    Multiplication("tf32")(torch.ones(2, 3), torch.ones(3, 2))
    PLAIN(torch.ones(2, 3), torch.ones(3, 2))
    assert during == ["high", before]
    assert torch.get_float32_matmul_precision() == before


def test_products_and_approximations_are_not_asked_for_together(analyzer: ns.Analyzer) -> None:
    with pytest.raises(InputError, match="not both"):
        analyzer.analyze(TEXT, approximate="sketch", products="bf16")
    with pytest.raises(InputError, match="one of the two"):
        Approximation(0.2, products="bf16")


@pytest.mark.parametrize("topology", ["post_norm", "pre_norm", "gated_pre_norm", "cross_post_norm"])
def test_everything_stays_on_the_device_of_the_model(topology: str) -> None:
    """On the meta device a tensor that was made elsewhere cannot be combined with the others."""
    trace = _on_meta(make_trace(topology, Shape()))
    scopes = scopes_of(trace.components)
    results = [mixing_ratios(trace, scopes), decompose(trace, [each for each in scopes if "Ff" not in each])]
    tensors = [each for result in results for each in _tensors(result)]
    assert len(tensors) > len(scopes)
    assert {each.device.type for each in tensors} == {"meta"}


def _on_meta(value: Any) -> Any:
    """A trace with every tensor on the meta device."""
    match value:
        case torch.Tensor():
            return value.to("meta")
        case tuple() | list():
            return type(value)(_on_meta(each) for each in value)
        case Shared():
            return Shared()
        case _ if is_dataclass(value) and type(value).__module__ == LayerTrace.__module__:
            return type(value)(**{each.name: _on_meta(getattr(value, each.name)) for each in fields(value)})
        case _:
            return value


def _tensors(result: Any) -> Iterator[torch.Tensor]:
    for each in fields(result):
        value = getattr(result, each.name)
        if isinstance(value, dict):
            yield from value.values()
