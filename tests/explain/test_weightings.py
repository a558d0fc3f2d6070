"""Several rules for attention weights, and several objectives, from one pass forwards: each as it is by itself."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from support.chat_model import chat_analyzer
from support.tiny_architectures import BART, tiny
from support.tiny_models import shaken
from transformers import Gemma2Config, Gemma2ForCausalLM

import normscope as ns
from normscope.experiments.faithfulness.base import pull_back_rules, shares_by
from normscope.explain.pulling import PullRequest
from normscope.explain.question import LogitQuestion, Wanted
from normscope.explain.weightings import can_share, shares_by_weights
from normscope.inputs import read_ids
from normscope.options import Objective, Weights

IDS = [5, 9, 7, 30, 12, 8, 21, 6]
INPUT: Any = {"input_ids": torch.tensor([IDS])}
RULES: tuple[Weights, ...] = get_args(Weights)
OBJECTIVES: tuple[Objective, ...] = ("logit", "centred", "contrast")


@pytest.fixture(scope="module")
def exact() -> ns.Analyzer:
    return chat_analyzer(dtype=torch.float64)


def asked(analyzer: ns.Analyzer, *objectives: Objective, rows: tuple[int, ...] = (7,)) -> LogitQuestion:
    wanted = [(row, Wanted(11, objective=objective)) for objective in objectives for row in rows]
    return LogitQuestion(analyzer, wanted)


def capped() -> ns.Analyzer:
    """The weights of this model are not the softmax of queries and keys alone."""
    sizes: dict[str, Any] = {"vocab_size": 50, "num_hidden_layers": 2, "hidden_size": 24, "intermediate_size": 32}
    heads: dict[str, Any] = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 12}
    capped: dict[str, Any] = {"attn_logit_softcapping": 1.0, "attn_implementation": "eager"}
    config = Gemma2Config(**sizes, **heads, **capped)
    torch.manual_seed(0)
    return ns.load(shaken(Gemma2ForCausalLM(config)).double())


def test_every_rule_gives_the_shares_that_it_gives_by_itself(exact: ns.Analyzer) -> None:
    shared = shares_by_weights(exact, read_ids(IDS, None), asked(exact, *OBJECTIVES), PullRequest(), RULES)
    assert list(shared.shares) == list(RULES) and not shared.refused
    for rule, shares in shared.shares.items():
        for place, objective in enumerate(OBJECTIVES):
            alone = exact.explain(INPUT, target=11, objective=objective, weights=rule)
            torch.testing.assert_close(shares[place], torch.from_numpy(alone.shares.values[0]), rtol=1e-9, atol=1e-12)
    assert not torch.allclose(shared.shares["constant"], shared.shares["half"])


def test_all_rules_and_objectives_take_one_pass_of_the_model(exact: ns.Analyzer) -> None:
    calls: list[int] = []

    def count(*_: object) -> None:
        calls.append(1)

    handle = exact.model.register_forward_hook(count)
    try:
        names = [f"pull-back:weights={rule}" for rule in RULES]
        assert pull_back_rules([*names, "random"]) == dict(zip(names, RULES, strict=True))
        found = shares_by(exact, read_ids(IDS, None), asked(exact, *OBJECTIVES), names, strict=True)
    finally:
        handle.remove()
    assert len(calls) == 1 and list(found.values) == names
    assert found.sinks is not None and found.sinks.shape == (len(IDS),)


def test_sums_of_values_are_explained_as_the_sums_of_their_shares(exact: ns.Analyzer) -> None:
    question, sequence = asked(exact, *OBJECTIVES, rows=(3, 5, 7)), read_ids(IDS, None)
    sums = torch.eye(len(OBJECTIVES)).repeat_interleave(3, dim=1)
    single = shares_by_weights(exact, sequence, question, PullRequest(), ["players"]).shares["players"]
    summed = shares_by_weights(exact, sequence, question, PullRequest(), ["players"], sums).shares["players"]
    torch.testing.assert_close(summed, sums.to(single) @ single, rtol=1e-9, atol=1e-12)


def test_a_rule_that_does_not_apply_is_refused_and_the_others_stay() -> None:
    analyzer, sequence = capped(), read_ids(IDS, None)
    question = asked(analyzer, "logit")
    shared = shares_by_weights(analyzer, sequence, question, PullRequest(), RULES)
    assert list(shared.refused) == ["joint"] and list(shared.shares) == ["constant", "half", "players"]
    names = ["pull-back:weights=joint", "pull-back:weights=half"]
    found = shares_by(analyzer, sequence, question, names, strict=False)
    assert list(found.values) == names[1:] and "softmax" in found.refused[names[0]]
    with pytest.raises(ns.UnsupportedArchitectureError, match="softmax"):
        shares_by(analyzer, sequence, question, names, strict=True)


def test_encoder_decoders_and_long_inputs_are_explained_by_themselves(exact: ns.Analyzer) -> None:
    assert can_share(exact, read_ids(IDS, None), PullRequest())
    assert not can_share(exact, read_ids(IDS, None), PullRequest(max_memory=2**20))
    assert not can_share(ns.load(tiny("bart", **BART)), read_ids(IDS, None), PullRequest())
