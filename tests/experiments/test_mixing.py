"""Mixing ratios by kind of token and by depth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from experiments.made import SCOPES, TOKENS, analysis, causal, printed, rows
from normscope.experiments import merged
from normscope.experiments.base import RunFacts
from normscope.experiments.mixing import MixingRatio


def test_mixing_ratios_are_averaged_by_kind_of_token_per_sequence_first() -> None:
    scopes = SCOPES[:4]
    first = {scope: [[0.1, 0.2, 0.4, 0.9]] for scope in scopes}
    second = {scope: [[0.3, 0.6, 0.9]] for scope in scopes}
    outcome = MixingRatio().over(
        [
            analysis({}, ["[CLS]", "a", "b", "[MASK]"], mixing=first),
            analysis({}, ["[CLS]", "a", "[SEP]"], mixing=second),
        ]
    )
    overall = {row["scope"]: row for row in outcome.tables["mixing-ratio"].to_pylist()}
    assert overall["Attn"]["mean"] == pytest.approx((0.1 + 0.2 + 0.4 + 0.9 + 0.3 + 0.6 + 0.9) / 7)
    assert (overall["Attn"]["maximum"], overall["Attn"]["minimum"], overall["Attn"]["count"]) == (0.9, 0.1, 7)
    assert overall["AttnResW"]["mean"] == pytest.approx(overall["AttnW"]["mean"] / 2)
    assert overall["Attn"]["standard_error"] == pytest.approx(stats.sem([0.4, 0.6]))
    by_kind = {row["kind"]: row for row in rows(outcome, "mixing-ratio-layers", scope="Attn")}
    assert by_kind["normal"]["mean"] == pytest.approx(((0.2 + 0.4) / 2 + 0.6) / 2)
    assert by_kind["[MASK]"] | {"mean": 0.9, "count": 1} == by_kind["[MASK]"]
    assert by_kind["[SEP]"]["count"] == 1
    assert by_kind["overall"]["mean"] == pytest.approx((0.4 + 0.6) / 2)
    assert by_kind["overall"]["standard_error"] == pytest.approx(stats.sem([0.4, 0.6]))
    assert by_kind["normal"]["standard_error"] == pytest.approx(stats.sem([0.3, 0.6]))
    assert by_kind["[SEP]"]["standard_error"] is None


def test_the_first_token_of_a_causal_model_is_in_one_mean_and_out_of_the_other() -> None:
    (first, model), (second, _) = causal(["[CLS]", "a", "b"]), causal(["a", "b", "[SEP]", "c"], 1)
    partial = merged(MixingRatio().observe(each, model) for each in (first, second))
    outcome = MixingRatio().finish(partial, RunFacts(model))
    ratios = [each.analysis.mixing_ratio("Attn").values for each in (first, second)]
    (whole,) = rows(outcome, "mixing-ratio", scope="Attn", tokens="overall")
    (later,) = rows(outcome, "mixing-ratio", scope="Attn", tokens="without first")
    assert (whole["mean"], whole["count"]) == (pytest.approx(np.concatenate(ratios, 1).mean()), 14)
    assert later["mean"] == pytest.approx(np.concatenate([each[:, 1:] for each in ratios], 1).mean())
    assert later["standard_error"] == pytest.approx(stats.sem([each[:, 1:].mean() for each in ratios]))
    assert (later["count"], whole["minimum"]) == (10, 0) and later["minimum"] > 0
    by_kind = {row["kind"]: row for row in rows(outcome, "mixing-ratio-layers", scope="Attn", layer=2)}
    assert (by_kind["first"]["mean"], by_kind["first"]["count"], by_kind["[CLS]"]["count"]) == (0, 2, 0)
    assert by_kind["without first"]["mean"] == pytest.approx(np.mean([each[1, 1:].mean() for each in ratios]))
    assert by_kind["normal"]["mean"] == pytest.approx(np.mean([ratios[0][1, 1:].mean(), ratios[1][1, [1, 3]].mean()]))
    labels = [label.get_text() for label in outcome.figures["mixing-ratio"]().axes[0].get_xticklabels()]
    assert labels == ["normal", "[SEP]", "first", "overall", "without first"]


def test_depth_is_correlated_with_the_mean_ratio_of_the_layers() -> None:
    ratios = {scope: np.random.default_rng(3).random((5, 6)) for scope in SCOPES[:4]}
    outcome = MixingRatio().over([analysis({}, TOKENS, mixing=ratios)])
    (found,) = rows(outcome, "mixing-ratio-depth", scope="AttnResLn", kind="overall")
    expected = stats.spearmanr(range(5), ratios["AttnResLn"].mean(1)).statistic
    assert found["spearman"] == pytest.approx(expected)
    (masked,) = rows(outcome, "mixing-ratio-depth", scope="AttnResLn", kind="[MASK]")
    assert masked["spearman"] is None


def test_the_table_is_printed_as_the_paper_has_it() -> None:
    ratios = [{scope: np.random.default_rng(seed).random((2, 6)) for scope in SCOPES} for seed in range(2)]
    outcome = MixingRatio().over([analysis({}, TOKENS, mixing=each) for each in ratios])
    lines = [line.split() for line in printed(outcome)]
    scopes = ["AttnW", "Attn", "AttnResW", "AttnRes", "AttnResLn"]
    assert ["model", *scopes] in lines
    found = {row["scope"]: row for row in outcome.tables["mixing-ratio"].to_pylist()}
    for heading, column in (("made mean", "mean"), ("standard error", "standard_error"), ("minimum", "minimum")):
        assert [*heading.split(), *(f"{100 * found[scope][column]:.1f}" for scope in scopes)] in lines
    published = next(line for line in lines if "bert-base," in line)
    assert published[-6:] == ["mean", "97.1", "85.2", "48.6", "22.3", "18.8"]


def test_the_printed_table_of_a_causal_model_has_both_means() -> None:
    first, model = causal(["a", "b", "c"])
    lines = printed(MixingRatio().finish(MixingRatio().observe(first, model), RunFacts(model)))
    assert sum(" mean " in line for line in lines) == 2 and any("without first" in line for line in lines)
