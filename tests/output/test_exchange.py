"""Explanations in the forms of other tools: the same numbers, and what those tools themselves accept."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.chat_model import chat_analyzer
from support.tiny_heads import tiny_head

import normscope as ns
from normscope.errors import InputError, SelectionError

PEERS = Path(sys.prefix) / "peers"
"""Where `make bench` installs other tools, if it has."""

GRAPH = {
    "metadata": {"slug": str, "scan": str, "prompt_tokens": list, "prompt": str},
    "qParams": {},
    "nodes": {
        **{"node_id": str, "feature": int, "layer": str, "ctx_idx": int, "feature_type": str},
        **{"jsNodeId": str, "clerp": str},
    },
    "links": {"source": str, "target": str, "weight": float},
}
"""What Neuronpedia's JSON schema of attribution graphs (graph-schema.json, 1.0.0) requires, and of which type."""


@pytest.fixture(scope="module")
def explanation() -> ns.Explanation:
    found = chat_analyzer(dtype=torch.float64).explain("Marta lives in", target=" Lisbon")
    assert isinstance(found, ns.Explanation)
    return found


def assert_has(found: Any, required: dict[str, type]) -> None:
    for name, kind in required.items():
        assert isinstance(found[name], kind), name


def test_a_graph_has_all_that_the_schema_of_neuronpedia_requires(explanation: ns.Explanation) -> None:
    graph = json.loads(json.dumps(explanation.to_neuronpedia(1.0)))
    assert set(graph) == set(GRAPH)
    assert_has(graph["metadata"], GRAPH["metadata"])
    for kind in ("nodes", "links"):
        for each in graph[kind]:
            assert_has(each, GRAPH[kind])
    names = [node["node_id"] for node in graph["nodes"]]
    assert len(set(names)) == len(names) and len({node["jsNodeId"] for node in graph["nodes"]}) == len(names)
    assert {link[end] for link in graph["links"] for end in ("source", "target")} <= set(names)
    assert "".join(graph["metadata"]["prompt_tokens"]).strip().startswith("Marta lives in")
    assert all(node["ctx_idx"] < len(graph["metadata"]["prompt_tokens"]) for node in graph["nodes"])


def test_what_flows_into_a_node_of_the_whole_graph_is_what_it_carries_on(explanation: ns.Explanation) -> None:
    """What leaves a node adds up to its share of the value, and what reaches the logit to what the last layer carries."""
    graph = explanation.to_neuronpedia(1.0, target=0)
    leaving: dict[str, float] = {}
    for link in graph["links"]:
        leaving[link["source"]] = leaving.get(link["source"], 0.0) + link["weight"]
    for node in graph["nodes"][:-1]:
        assert leaving[node["node_id"]] == pytest.approx(node["activation"], abs=1e-9)
    end = graph["nodes"][-1]
    reached = sum(link["weight"] for link in graph["links"] if link["target"] == end["node_id"])
    last = explanation.dataset["relevance"].isel(target=0, depth=-1)
    assert reached == pytest.approx(float(last.sum()), abs=1e-9)
    assert end["activation"] == explanation.values[0] and end["is_target_logit"]
    assert end["token_prob"] == pytest.approx(explanation.target_probabilities[0])


def test_a_graph_is_saved_under_its_own_ending(explanation: ns.Explanation, tmp_path: Path) -> None:
    path = explanation.save(tmp_path / "graph.neuronpedia.json", flow=0.5)
    graph = json.loads(path.read_text(encoding="utf-8"))
    assert graph == json.loads(json.dumps(explanation.to_neuronpedia(0.5)))
    assert len(graph["links"]) < len(explanation.to_neuronpedia(1.0)["links"])
    assert "nodes" not in json.loads(explanation.save(tmp_path / "table.json").read_text(encoding="utf-8"))
    both = ns.load(tiny_head("t5", "T5ForConditionalGeneration")).explain({"input_ids": [[5, 6, 7]]}, target=[6, 7])
    assert isinstance(both, ns.Explanation)
    with pytest.raises(SelectionError, match="one text"):
        both.to_neuronpedia()


def test_captum_gets_tensors_and_deltas(explanation: ns.Explanation) -> None:
    attributions, delta = explanation.to_captum()
    shares = np.nan_to_num(explanation.shares.values)
    assert np.array_equal(attributions.numpy(), shares) and attributions.shape == shares.shape
    assert float(delta.abs().max()) < 1e-9
    total = attributions.sum(1) + torch.tensor(explanation.biases, dtype=torch.float64)
    assert (total - torch.tensor(explanation.values, dtype=torch.float64)).abs().max() < 1e-9


# ---- the tools themselves, where they are installed -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def inseq() -> Any:
    sys.path.append(str(PEERS))
    return pytest.importorskip("inseq")


def test_inseq_takes_saves_and_shows_a_continuation(inseq: Any, tmp_path: Path) -> None:
    found = chat_analyzer(dtype=torch.float64).explain("Marta lives in", target=" Lisbon. Noor")
    assert isinstance(found, ns.Explanation) and len(found.targets) > 2
    output = found.to_inseq()
    assert type(output) is inseq.FeatureAttributionOutput
    (sequence,) = output.sequence_attributions
    read = [token.token for token in sequence.target]
    assert read[: sequence.attr_pos_start] == found.tokens[: sequence.attr_pos_start]
    assert read[sequence.attr_pos_start :] == found.targets
    scores = sequence.target_attributions.numpy()
    assert scores.shape == (len(read), len(found.targets))
    for column in range(len(found.targets)):
        own = found.shares.values[column]
        known = np.isfinite(own)
        assert np.abs(scores[: len(own), column][known] - own[known]).max() < 1e-6
        assert np.isnan(scores[sequence.attr_pos_start + column :, column]).all()
    output.save(str(tmp_path / "inseq.json"))
    again = inseq.FeatureAttributionOutput.load(str(tmp_path / "inseq.json"))
    assert np.allclose(again[0].target_attributions.numpy(), scores, equal_nan=True)
    page = output.show(display=False, return_html=True, do_aggregation=False)
    assert isinstance(page, str) and "Lis" in page


def test_inseq_takes_both_sides_of_an_encoder_decoder(inseq: Any) -> None:
    found = ns.load(tiny_head("t5", "T5ForConditionalGeneration")).explain({"input_ids": [[5, 6, 7]]}, target=[6, 8])
    assert isinstance(found, ns.Explanation)
    (sequence,) = found.to_inseq().sequence_attributions
    source = found.shares.values[:, (found.shares["token_group"] == "source").values]
    assert np.abs(sequence.source_attributions.numpy() - source.T).max() < 1e-6 * abs(source).max()
    assert len(sequence.source) == 3 and sequence.target_attributions.shape == (len(sequence.target), 2)


def test_what_is_no_generated_text_is_no_result_of_inseq(inseq: Any, analyzer: Any) -> None:
    with pytest.raises(InputError, match="how a text was generated"):
        analyzer.explain("It rained.", direction="state").to_inseq()
