"""Skipped components against a model whose weights are changed so that it lacks them, and the experiment's tables."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from support.rule_model import sizes, tokenizer
from support.tiny_models import shaken
from transformers import LlamaForCausalLM

import normscope as ns
from experiments.made import check_bands, pearson
from normscope.chain.measure import KeptTraces
from normscope.chain.trace import LayerTrace
from normscope.experiments.faithfulness.skipping import Component, components_of, continued, without
from normscope.inputs import TokenSequence, read_inputs
from normscope.methods.resolve import measure_layers
from normscope.runs import run

LAYER = 2


def causal() -> LlamaForCausalLM:
    return shaken(LlamaForCausalLM(sizes(layers=3, heads=3, hidden=12, neurons=20)), 0.4)


def traced(analyzer: ns.Analyzer) -> tuple[TokenSequence, dict[int, LayerTrace]]:
    (sequence,), _ = read_inputs("one two key three", analyzer.tokenizer, None)
    (measured,) = measure_layers(analyzer, [sequence], [KeptTraces()])
    return sequence, measured.main[KeptTraces()]


@pytest.mark.parametrize("kind", ["nothing", "Attn", "head", "Ff"])
def test_skipping_is_what_a_model_without_the_component_does(kind: str) -> None:
    analyzer = ns.load(causal(), tokenizer())
    sequence, traces = traced(analyzer)
    components = {each.name: each for each in components_of(traces[LAYER]) if each.head in (None, 2)}
    output = without(traces[LAYER], components.get(kind))
    found = continued(analyzer, sequence, LAYER, output[None], logits=True)
    pruned: Any = deepcopy(analyzer.model)
    with torch.no_grad():
        block = pruned.model.layers[LAYER - 1]
        match kind:
            case "Attn":
                block.self_attn.o_proj.weight.zero_()
            case "head":
                block.self_attn.o_proj.weight[:, 4:8] = 0
            case "Ff":
                block.mlp.down_proj.weight.zero_()
            case _:
                pass
        logits = pruned(torch.tensor([sequence.features["input_ids"]])).logits
    assert found.logits is not None
    torch.testing.assert_close(found.logits, logits, rtol=1e-4, atol=1e-4)


def test_a_skipped_residual_or_norm_is_left_out_of_the_block() -> None:
    analyzer = ns.load(causal(), tokenizer())
    _, traces = traced(analyzer)
    trace = traces[1]
    names = [each.name for each in components_of(trace) if each.head is None]
    assert names == ["Attn", "Res1", "Ln", "Ff", "Res2"]
    by_name = {each.name: each for each in components_of(trace) if each.head is None}
    whole = without(trace, None)
    entered = trace.states[by_name["Res1"].place]
    assert entered is not None
    torch.testing.assert_close(whole - without(trace, by_name["Res2"]), entered, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(without(trace, by_name["Ln"]), whole, atol=1e-3)
    assert isinstance(by_name["Ff"], Component)


def test_tables_say_what_a_component_changes_and_what_is_lost_without_it() -> None:
    model = causal()
    with torch.no_grad():
        model.model.layers[1].self_attn.o_proj.weight.mul_(1e-6)  # an attention that does next to nothing can go
        model.model.layers[1].mlp.down_proj.weight.mul_(1e-6)
    texts = ["one two key three four", "six one good bad two", "key key one"]
    result = run(["redundancy"], model=ns.load(model, tokenizer()), corpus=texts)
    rows = result.tables["redundancy"].to_pylist()

    def mean(measure: str, component: str, layer: int, head: int | None = None) -> float:
        wanted = {"measure": measure, "component": component, "layer": layer, "head": head}
        (row,) = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
        return row["mean"]

    for component in ("Attn", "Ff"):
        assert mean("loss_change", component, 2) == pytest.approx(0, abs=1e-5)
        assert mean("turn", component, 2) == pytest.approx(0, abs=1e-5)
        assert mean("turn", component, 1) > 1e-4 and abs(mean("loss_change", component, 1)) > 1e-4
    assert mean("turn", "head", 1, 3) > 1e-5 and mean("change", "head", 1, 3) >= 0
    assert {row["effect"] for row in result.tables["redundancy-agreement"].to_pylist()} == {"loss_change", "turn"}
    panel, *_ = result.outcomes["redundancy"].figures["redundancy"]().axes
    change = [row for row in rows if row["measure"] == "change" and row["component"] != "head"]
    check_bands(panel, change, "component")
    assert "feed-forward" in panel.get_legend_handles_labels()[1]


@pytest.mark.parametrize(("correlation", "axis"), [("pearson", "none"), ("spearman", "column")])
def test_the_change_of_a_component_is_that_of_the_scopes_around_it(
    analyzer: ns.Analyzer, correlation: str, axis: str
) -> None:
    options: dict[str, dict[str, Any]] = {
        "redundancy": {"heads": False, "correlation": correlation, "normalisation": axis},
        "scope-similarity": {"correlations": (correlation,), "normalisations": (axis,)},
    }
    result = run(
        ["redundancy", "scope-similarity"], model=analyzer, corpus=["a dog saw a cat"], masking="none", options=options
    )
    rows = result.tables["redundancy"].to_pylist()
    assert not any(row["measure"] == "loss_change" for row in rows)  # a bare model has no loss
    found = {(row["component"], row["layer"]): row["mean"] for row in rows if row["measure"] == "change"}
    similar = {
        (row["first"], row["second"], row["layer"]): row["change"]
        for row in result.tables["scope-similarity-layers"].to_pylist()
    }
    pairs = {
        "Attn": ("AttnW", "Attn"),
        "Ff": ("AttnResLn", "AttnResLnFf"),
        "Ln2": ("AttnResLnFfRes", "AttnResLnFfResLn"),
    }
    for component, pair in pairs.items():
        for layer in analyzer.layers:
            assert found[component, layer] == pytest.approx(similar[*pair, layer], abs=1e-6)
    assert np.isfinite(list(found.values())).all()
    assert {(row["correlation"], row["normalisation"]) for row in rows} == {(correlation, axis)}


def test_the_change_of_a_head_is_one_less_pearsons_r_of_the_maps_with_and_without_it() -> None:
    analyzer = ns.load(causal(), tokenizer())
    sequence, traces = traced(analyzer)
    text = "one two key three"
    result = run(["redundancy"], model=analyzer, corpus=[text])
    (found,) = [
        row["mean"]
        for row in result.tables["redundancy"].to_pylist()
        if (row["measure"], row["component"], row["layer"], row["head"]) == ("change", "head", LAYER, 2)
    ]
    attention: Any = traces[LAYER].steps[next(e.place for e in components_of(traces[LAYER]) if e.head == 2)]
    vectors = np.einsum(
        "hqk,hke,hed->hqkd",
        *(
            np.asarray(x.double())
            for x in (attention.weights, attention.values, attention.output.expand(len(attention.values), -1, -1))
        ),
    )
    below = np.tril(np.ones((len(sequence.features["input_ids"]),) * 2, bool))
    whole = np.linalg.norm(vectors.sum(0), axis=-1)[below]
    without_it = np.linalg.norm(np.delete(vectors, 1, 0).sum(0), axis=-1)[below]
    assert found == pytest.approx(1 - pearson(whole, without_it), abs=1e-5)
