"""Explanations name attention sinks: the tokens that get much of the attention whatever they say."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from support.tiny_models import tiny

import normscope as ns
from normscope.explain.sinks import sinks
from normscope.explorer.page import write_page
from normscope.explorer.payload import explanation_payload
from normscope.output.explanation_page import fragment
from normscope.output.explanation_terminal import explanation_view

IDS = [7, 11, 13, 17, 19, 23]


def _explained(model: Any) -> ns.Explanation:
    return ns.load(model).explain({"input_ids": IDS}, direction="state", at=5)


def _parking() -> Any:
    """A tiny Llama in which all attention goes to the token `IDS[0]`: others ask for the first dimension, which it has."""
    model: Any = tiny("llama")
    size = model.config.hidden_size // model.config.num_attention_heads
    slowest = [row for row in range(size) if row % (size // 2) == size // 2 - 1]  # hardly turned by the position
    with torch.no_grad():
        model.get_input_embeddings().weight[IDS, :2] = torch.tensor([[100.0, 0.0], *[[0.0, 100.0]] * (len(IDS) - 1)])
        for name, weight in model.named_parameters():
            if name.endswith("layernorm.weight"):
                weight.fill_(1.0)
            for projection, dimension in (("q_proj", 1), ("k_proj", 0)):
                if name.endswith(f"{projection}.weight"):
                    weight.zero_()
                    weight.view(-1, size, weight.shape[1])[:, slowest, dimension] = 2.0
    return model


@pytest.mark.parametrize("family", ["llama", "bert"])
def test_the_attention_received_is_that_of_the_models_own_weights(family: str) -> None:
    model: Any = tiny(family)
    explanation = _explained(model)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        output = model(torch.tensor([IDS]), output_attentions=True, output_hidden_states=True)
    for layer, weights in enumerate(output.attentions):
        mean = weights[0].mean(0).double().numpy()
        for key in range(len(IDS)):
            seeing = [query for query in range(len(IDS)) if query != key and (family == "bert" or query > key)]
            expected = np.mean([mean[query, key] for query in seeing]) if seeing else 0.0
            found = explanation.dataset["attention_received"].values[layer, key]
            assert found == pytest.approx(expected, abs=1e-6)
        norms = output.hidden_states[layer][0].norm(dim=-1).numpy()
        np.testing.assert_allclose(explanation.dataset["state_norm"].values[layer], norms, rtol=1e-5)


def test_a_sink_gets_a_fifth_of_the_attention_and_twice_an_equal_share() -> None:
    attention = np.array([[0.5, 0.1, 0.19, 0.1, 0.0]] * 3)
    assert sinks(attention, causal=False).tolist() == [True, False, False, False, False]  # an equal share is 0.2
    longer = np.tile([0.21, 0.19, *[0.02] * 18], (2, 1))
    assert np.flatnonzero(sinks(longer, causal=False)).tolist() == [0]
    # of five tokens that see those before them, an equal share of the first is (1/2 + 1/3 + 1/4 + 1/5) / 4 = 0.32
    assert sinks(np.array([[0.65, 0.1, 0.1, 0.1, 0.0]]), causal=True)[0]
    assert not sinks(np.array([[0.63, 0.1, 0.1, 0.1, 0.0]]), causal=True)[0]


def test_a_reader_sees_the_sink_apart(tmp_path: Path) -> None:
    explanation = _explained(_parking())
    assert explanation.sinks == [0]
    stored = ns.open(explanation.save(tmp_path / "why.nc"))
    assert isinstance(stored, ns.Explanation) and stored.sinks == [0]
    console = Console(width=160, file=StringIO(), record=True)
    console.print(explanation_view(explanation))
    shown = console.export_text()
    name = explanation.tokens[0]
    assert f"{name} (attention sink)" in shown and f'"{name}" is an attention sink' in shown
    shares = explanation.shares.values[0]
    apart = {
        line.split("  ")[0].strip(): line.split()[-1] for line in map(str.strip, shown.splitlines()) if "  " in line
    }
    assert float(apart["attention sinks"]) == pytest.approx(shares[0], abs=1e-4)
    assert float(apart["other tokens"]) == pytest.approx(shares[1:].sum(), abs=1e-4)
    payload = explanation_payload(explanation, "display")
    assert payload["stack"]["tokens"]["sink"] == [1, 0, 0, 0, 0, 0]
    page = write_page(explanation, path=tmp_path / "why.html").read_text()
    assert page.startswith("<!doctype html>")
    assert f"{name}</span>" in fragment(explanation) and "normscope-sink" in fragment(explanation)
    texts = [text.get_text() for axes in explanation.plot().axes for text in axes.texts]
    assert any("attention sink" in text for text in texts)


def test_without_a_sink_nothing_is_said_of_any() -> None:
    explanation = _explained(tiny("llama"))
    assert explanation.sinks == []
    console = Console(width=160, file=StringIO(), record=True)
    console.print(explanation_view(explanation))
    assert "sink" not in console.export_text()


def test_other_methods_know_of_no_sinks() -> None:
    model = tiny("llama")
    explanation = ns.load(model).explain({"input_ids": IDS}, direction="state", at=5, method="gradient-x-input")
    assert explanation.sinks == []


def test_the_page_of_many_tokens_looks_for_sinks_no_more_often_than_that_of_few(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    analyzer, own, looked = ns.load(tiny("llama")), ns.Explanation.sinks.fget, []  # type: ignore[attr-defined]

    def counted(explanation: ns.Explanation) -> list[int]:
        looked.append(explanation)
        return own(explanation)

    monkeypatch.setattr(ns.Explanation, "sinks", property(counted))
    counts = []
    for tokens in (IDS[:2], IDS * 4):
        looked.clear()
        write_page(analyzer.explain({"input_ids": tokens}, direction="state", at=1), path=tmp_path / "page.html")
        counts.append(len(looked))
    assert counts[0] == counts[1]
