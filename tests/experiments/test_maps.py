"""Experiments on maps, against direct computations on small cases."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from experiments.made import SCOPES, analysis, random_analysis, rows
from normscope.errors import InputError
from normscope.experiments import EXPERIMENTS, Observation, experiment, merged
from normscope.experiments.amplification import FeedForwardAmplification
from normscope.experiments.base import ModelFacts, RunFacts
from normscope.experiments.feed_forward import FeedForwardNormsExperiment, OutlierDimensions
from normscope.experiments.frequency import Frequency, MixingFrequency, rank_of_types
from normscope.experiments.heads import CATEGORIES, Categories, Dispersion
from normscope.experiments.mixing import MixingRatio
from normscope.experiments.partial import Partial, Rows
from normscope.experiments.scope_similarity import ScopeSimilarity
from normscope.experiments.weight_norm import WeightVersusNorm
from normscope.measures.removal import MapWithoutDimensions
from normscope.measures.vectors import FeedForwardDimensions, FeedForwardNorms, HiddenNorms, ValueNorms
from normscope.scopes import Scope

TOKENS = ["[CLS]", "a", "b", ",", "a", "[SEP]"]


def _normalised(values: np.ndarray, axis: str) -> np.ndarray:
    return {
        "none": values,
        "row": values / values.sum(-1, keepdims=True),
        "column": values / values.sum(-2, keepdims=True),
    }[axis]


@pytest.mark.parametrize("axis", ["none", "row", "column"])
def test_similarity_is_the_mean_over_sequences_then_layers_of_spearmans_rho(axis: str) -> None:
    analyses = [random_analysis(seed, TOKENS) for seed in range(3)]
    outcome = ScopeSimilarity().over(analyses)
    rho = [
        [
            stats.spearmanr(
                *(_normalised(a.map(s).values[k], axis).reshape(-1) for s in ("AttnResLn", "AttnResLnFf"))
            ).statistic
            for a in analyses
        ]
        for k in range(2)
    ]
    labels = {"normalisation": axis, "first": "AttnResLn", "second": "AttnResLnFf"}
    (summary,) = rows(outcome, "scope-similarity", **labels)
    (layer,) = rows(outcome, "scope-similarity-layers", **labels, layer=2)
    assert summary["similarity"] == pytest.approx(np.mean(rho), abs=1e-12)
    assert layer["similarity"] == pytest.approx(np.mean(rho[1]), abs=1e-12)
    assert layer["change"] == pytest.approx(1 - np.mean(rho[1]), abs=1e-12)
    assert summary["relation"] == "adjacent" and summary["sequences"] == 3


def test_a_map_that_only_scales_its_columns_is_unchanged_by_column() -> None:
    chance = np.random.default_rng(0)
    base = chance.random((1, 4, 4))
    maps = {scope: base * (chance.random(4) if scope.endswith("Ff") else 1) for scope in SCOPES}
    outcome = ScopeSimilarity(normalisations=("column",)).over([analysis(maps, ["a", "b", "c", "d"])])
    assert all(row["similarity"] == pytest.approx(1) for row in outcome.tables["scope-similarity"].to_pylist())


def test_causal_maps_are_compared_where_keys_exist() -> None:
    item = random_analysis(1, ["a", "b", "c", "d"])
    dataset = item.dataset.copy(deep=True)
    lower = np.tril(np.ones((4, 4), bool))
    dataset["map"] = dataset["map"].where(np.broadcast_to(lower, dataset["map"].shape))
    outcome = ScopeSimilarity(normalisations=("none",)).over([type(item)(dataset)])
    expected = stats.spearmanr(*(item.map(s).values[0][lower] for s in ("AttnW", "Attn"))).statistic
    (found,) = rows(outcome, "scope-similarity-layers", first="AttnW", second="Attn", layer=1)
    assert found["similarity"] == pytest.approx(expected, abs=1e-12)


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
    by_kind = {row["kind"]: row for row in rows(outcome, "mixing-ratio-layers", scope="Attn")}
    assert by_kind["normal"]["mean"] == pytest.approx(((0.2 + 0.4) / 2 + 0.6) / 2)
    assert by_kind["[MASK]"] | {"mean": 0.9, "count": 1} == by_kind["[MASK]"]
    assert by_kind["[SEP]"]["count"] == 1
    assert by_kind["overall"]["mean"] == pytest.approx((0.4 + 0.6) / 2)


def _causal(tokens: list[str], seed: int = 0) -> tuple[Observation, ModelFacts]:
    """A sequence of a causal model, in which the first token's ratios are 0, and what is known of the model."""
    ratios = {scope: np.random.default_rng(seed).random((2, len(tokens))) for scope in SCOPES[:4]}
    for values in ratios.values():
        values[:, 0] = 0
    item = analysis({}, tokens, mixing=ratios)
    return Observation(item, seed), replace(ModelFacts.of_analysis(item), causal=True)


def test_the_first_token_of_a_causal_model_is_in_one_mean_and_out_of_the_other() -> None:
    (first, model), (second, _) = _causal(["[CLS]", "a", "b"]), _causal(["a", "b", "[SEP]", "c"], 1)
    partial = merged(MixingRatio().observe(each, model) for each in (first, second))
    outcome = MixingRatio().finish(partial, RunFacts(model))
    ratios = [each.analysis.mixing_ratio("Attn").values for each in (first, second)]
    (whole,) = rows(outcome, "mixing-ratio", scope="Attn", tokens="overall")
    (later,) = rows(outcome, "mixing-ratio", scope="Attn", tokens="without first")
    assert (whole["mean"], whole["count"]) == (pytest.approx(np.concatenate(ratios, 1).mean()), 14)
    assert later["mean"] == pytest.approx(np.concatenate([each[:, 1:] for each in ratios], 1).mean())
    assert (later["count"], whole["minimum"]) == (10, 0) and later["minimum"] > 0
    by_kind = {row["kind"]: row for row in rows(outcome, "mixing-ratio-layers", scope="Attn", layer=2)}
    assert (by_kind["first"]["mean"], by_kind["first"]["count"], by_kind["[CLS]"]["count"]) == (0, 2, 0)
    assert by_kind["without first"]["mean"] == pytest.approx(np.mean([each[1, 1:].mean() for each in ratios]))
    assert by_kind["normal"]["mean"] == pytest.approx(np.mean([ratios[0][1, 1:].mean(), ratios[1][1, [1, 3]].mean()]))
    labels = [label.get_text() for label in outcome.figures["mixing-ratio"]().axes[0].get_xticklabels()]
    assert labels == ["normal", "[SEP]", "first", "overall", "without first"]


def test_frequencies_of_a_causal_model_are_also_correlated_without_the_first_token() -> None:
    observation, model = _causal(["a", "b", "c", "d"])
    observation = replace(observation, token_ids=np.array([4, 9, 7, 8]))
    outcome = MixingFrequency().finish(
        MixingFrequency().observe(observation, model), RunFacts(model, ranks={4: 1, 9: 5, 7: 3, 8: 9})
    )
    (found,) = rows(outcome, "mixing-frequency", quantity="Attn", tokens="without the first token")
    expected = stats.spearmanr([5, 3, 9], observation.analysis.mixing_ratio("Attn").values.mean(0)[1:]).statistic
    assert (found["spearman"], found["occurrences"]) == (pytest.approx(expected), 3)


def test_the_first_token_of_a_causal_model_is_a_category_by_itself() -> None:
    chance, tokens = np.random.default_rng(6), ["[CLS]", "a", ",", "b"]
    lower = np.tril(np.ones((4, 4), bool))
    heads = {s: np.where(lower, chance.random((2, 3, 4, 4)), np.nan) for s in ("AttnW", "Attn")}
    observation = Observation(random_analysis(0, tokens, heads=heads), results={ValueNorms(): chance.random((2, 3, 4))})
    outcome = Categories().over([observation])
    (found,) = rows(outcome, "categories", layer=2, category="first")
    assert found["weights"] == pytest.approx(heads["AttnW"][1, :, :, 0].mean())
    (other,) = rows(outcome, "categories", layer=2, category="[CLS]")
    assert (other["weights"], other["sequences"]) == (None, 0)
    joint = WeightVersusNorm().over([observation])
    assert [row["pairs"] for row in rows(joint, "weight-vs-norm", category="first")] == [2 * 3 * 4]


def test_amplification_is_the_mean_change_of_column_shares_over_occurrences_of_a_pair() -> None:
    chance = np.random.default_rng(5)
    sequences = [["a", "b", "a"], ["b", "a", "c"]]
    analyses = [random_analysis(int(chance.integers(99)), tokens) for tokens in sequences]
    direct: dict[tuple[str, str], list[float]] = {}
    for tokens, item in zip(sequences, analyses, strict=True):
        before, after = (_normalised(item.map(s).values[1], "column") for s in ("AttnResLn", "AttnResLnFf"))
        for query, key in itertools.permutations(range(3), 2):
            direct.setdefault((tokens[key], tokens[query]), []).append(after[query, key] - before[query, key])
    expected = {pair: np.mean(values) for pair, values in direct.items() if len(values) > 1}
    outcome = FeedForwardAmplification(top=50).over(analyses)
    found = rows(outcome, "ff-amplification", kind="ff", layer=2)
    assert {(row["key_type"], row["query_type"]) for row in found} == set(expected)
    assert ("a", "a") in expected  # the same type at two positions stays in
    for row in found:
        assert row["amplification"] == pytest.approx(expected[row["key_type"], row["query_type"]], abs=1e-10)
    assert [row["amplification"] for row in found] == sorted((row["amplification"] for row in found), reverse=True)
    assert outcome.tables["ff-amplification-totals"].to_pylist() == [{"pairs": 12, "types_of_pairs": 7, "seen_once": 4}]


def test_the_group_amplification_goes_from_the_first_residual_to_the_whole_layer() -> None:
    item = random_analysis(3, ["a", "b", "a", "b"])
    outcome = FeedForwardAmplification(axis="none", top=9).over([item])
    change = item.map("AttnResLnFfResLn").values[0] - item.map("AttnRes").values[0]
    (found,) = rows(outcome, "ff-amplification", kind="group", layer=1, key_type="a", query_type="b")
    assert found["amplification"] == pytest.approx(np.mean([change[1, 0], change[1, 2], change[3, 0], change[3, 2]]))


def test_lists_say_which_pairs_they_share() -> None:
    """The norm after the feed-forward is listed, too, and a pair that two lists of a layer have is marked in both."""
    item = random_analysis(4, ["a", "b", "a", "b", "c", "c"])
    outcome = FeedForwardAmplification(top=3).over([item])
    lists = {
        (kind, layer): {
            (r["key_type"], r["query_type"]): r for r in rows(outcome, "ff-amplification", kind=kind, layer=layer)
        }
        for kind in ("ff", "group", "ln")
        for layer in (1, 2)
    }
    shared = 0
    for (kind, layer), pairs in lists.items():
        for pair, row in pairs.items():
            others = [other for other in ("ff", "group", "ln") if other != kind and pair in lists[other, layer]]
            assert row["also_in"] == ", ".join(others)
            shared += len(others)
    assert shared > 0
    change = _normalised(item.map("AttnResLnFfResLn").values[1], "column") - _normalised(
        item.map("AttnResLnFfRes").values[1], "column"
    )
    best = max(change[[1, 3]][:, [0, 2]].mean(), change[[0, 2]][:, [1, 3]].mean(), change[[4, 5], [5, 4]].mean())
    assert max(r["amplification"] for r in lists["ln", 2].values()) >= best - 1e-9


def test_depth_is_correlated_with_the_mean_ratio_of_the_layers() -> None:
    ratios = {scope: np.random.default_rng(3).random((5, 6)) for scope in SCOPES[:4]}
    outcome = MixingRatio().over([analysis({}, TOKENS, mixing=ratios)])
    (found,) = rows(outcome, "mixing-ratio-depth", scope="AttnResLn", kind="overall")
    expected = stats.spearmanr(range(5), ratios["AttnResLn"].mean(1)).statistic
    assert found["spearman"] == pytest.approx(expected)
    (masked,) = rows(outcome, "mixing-ratio-depth", scope="AttnResLn", kind="[MASK]")
    assert masked["spearman"] is None


def test_a_category_that_a_sequence_lacks_does_not_poison_the_mean() -> None:
    chance = np.random.default_rng(6)
    observations = []
    for number, tokens in enumerate((TOKENS, ["[CLS]", "a", "[SEP]"])):
        heads = {scope: chance.random((2, 3, len(tokens), len(tokens))) for scope in ("AttnW", "Attn")}
        item = random_analysis(number, tokens, heads=heads)
        observations.append(Observation(item, number, results={ValueNorms(): chance.random((2, 3, len(tokens)))}))
    outcome = Categories().over(observations)
    first = observations[0]
    expected = first.analysis.map("AttnW", heads=True).values[0, :, :, 3].mean(-1).mean()
    (found,) = rows(outcome, "categories", layer=1, category="comma, period")
    assert found["weights"] == pytest.approx(expected) and found["sequences"] == 1
    assert found["f"] == pytest.approx(first.results[ValueNorms()][0, :, 3].mean())
    columns = sum(row["weights"] for row in rows(outcome, "categories-heads", layer=2, head=3) if row["sequences"] == 2)
    both = [o.analysis.map("AttnW", heads=True).values[1, 2] for o in observations]
    direct = np.mean([both[0][:, [0, 1, 2, 4, 5]].sum(-1).mean(), both[1].sum(-1).mean()])
    assert columns == pytest.approx(direct)
    assert len(CATEGORIES) == 4
    images = [axes.images[0].get_array() for axes in outcome.figures["categories-heads"]().axes if axes.images]
    table = rows(outcome, "categories-heads", category="[SEP]")
    assert len(images) == 12
    assert np.asarray(images[1])[1, 2] == pytest.approx(
        next(r["weights"] for r in table if (r["layer"], r["head"]) == (2, 3))
    )


def test_dispersion_is_that_of_all_vectors() -> None:
    chance = np.random.default_rng(7)
    hidden, values = chance.random((2, 6)) + 1, chance.random((2, 3, 6)) + 1
    item = random_analysis(0, TOKENS)
    outcome = Dispersion().over([Observation(item, 0, results={HiddenNorms(): hidden, ValueNorms(): values})])
    (x,) = rows(outcome, "dispersion", quantity="x", layer=1)
    (f,) = rows(outcome, "dispersion", quantity="f(x)", layer=2, head=None)
    assert x["mean"] == pytest.approx(hidden[0].mean()) and x["cv"] == pytest.approx(hidden[0].std() / hidden[0].mean())
    assert (f["count"], f["maximum"]) == (18, values[1].max())
    assert f["deviation"] == pytest.approx(values[1].std())
    (head,) = rows(outcome, "dispersion", quantity="f(x)", layer=2, head=3)
    for name, share in {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}.items():
        assert f[name] == pytest.approx(np.quantile(values[1], share), rel=1e-3)
        assert head[name] == pytest.approx(np.quantile(values[1, 2], share), rel=1e-3)
        assert x[name] == pytest.approx(np.quantile(hidden[0], share), rel=1e-3)


def test_weight_and_norm_correlate_as_their_values_do() -> None:
    chance = np.random.default_rng(8)
    values = chance.random((2, 3, 6)) + 0.1
    weights = np.broadcast_to(0.2 / values[:, :, None, :], (2, 3, 6, 6)) ** 2
    item = random_analysis(0, TOKENS, heads={"AttnW": weights})
    outcome = WeightVersusNorm().over([Observation(item, 0, results={ValueNorms(): values})])
    (found,) = rows(outcome, "weight-vs-norm", category="all")
    assert found["pairs"] == 2 * 3 * 6 * 6
    assert found["spearman"] == pytest.approx(-1, abs=0.001)


def test_the_correlation_of_weights_and_norms_is_within_its_stated_error_of_the_exact_one() -> None:
    chance = np.random.default_rng(11)
    observations, pairs = [], {name: ([], []) for name in ("all", *CATEGORIES)}
    for number in range(3):
        values = np.exp(chance.normal(size=(2, 3, 6)))
        weights = chance.dirichlet(np.full(6, 0.3), size=(2, 3, 6))
        item = random_analysis(number, TOKENS, heads={"AttnW": weights})
        observations.append(Observation(item, number, results={ValueNorms(): values}))
        names = ["[CLS]", "other", "other", "comma, period", "other", "[SEP]"]
        for key, name in enumerate(names):
            for each in ("all", name):
                pairs[each][0].append(weights[..., key].reshape(-1))
                pairs[each][1].append(np.repeat(values[..., key].reshape(-1), 6))
    outcome = WeightVersusNorm().over(observations)
    for name, (weights, norms) in pairs.items():
        exact = stats.spearmanr(np.concatenate(weights), np.concatenate(norms)).statistic
        (found,) = rows(outcome, "weight-vs-norm", category=name)
        assert abs(found["spearman"] - exact) <= found["error"]
        assert abs(found["spearman"] - exact) < 5e-3
    assert outcome.figures["weight-vs-norm"]().axes[0].get_title().startswith("all")


def test_the_correlation_of_weights_and_norms_is_the_same_to_the_last_bit_however_the_rows_lie() -> None:
    chance = np.random.default_rng(12)
    cells = np.unique(chance.integers(0, len(CATEGORIES) * 5120 * 4800, 40_000))
    joint = pa.table({"cell": cells, "count": chance.integers(1, 1_000_000, len(cells))})
    facts = RunFacts(ModelFacts("made-up", (1,), tuple(map(Scope, SCOPES))))
    outcomes = [
        WeightVersusNorm().finish(Partial(rows={"joint": Rows((table,), keys=("cell",))}), facts)
        for table in (joint, joint.take(chance.permutation(len(cells))))
    ]
    first, second = (outcome.tables["weight-vs-norm"].to_pylist() for outcome in outcomes)
    assert first == second


def test_frequency_ranks_come_from_the_list_or_the_corpus() -> None:
    types = np.array([5, 5, 7, 9])
    assert rank_of_types(types, {5: 1, 7: 4}).tolist() == [1, 1, 4, 5]  # unseen: last rank + 1
    assert rank_of_types(types, None).tolist() == [1, 1, 2.5, 2.5]


def test_frequency_correlates_occurrences_with_ranks() -> None:
    chance = np.random.default_rng(9)
    ids = np.array([101, 5, 6, 7, 5, 102])
    weights, values = chance.random((2, 3, 6, 6)), chance.random((2, 3, 6))
    item = random_analysis(0, TOKENS, heads={"AttnW": weights})
    observation = Observation(item, 0, token_ids=ids, results={ValueNorms(): values})
    ranks = {5: 1, 6: 2, 7: 3, 101: 4, 102: 5}
    outcome = Frequency().over([observation], ranks=ranks)
    rank = [ranks[number] for number in ids]
    expected = stats.spearmanr(rank, weights.mean((0, 1, 2))).statistic
    (found,) = rows(outcome, "frequency", quantity="weight", tokens="all")
    assert found["spearman"] == pytest.approx(expected)
    axes = outcome.figures["frequency"]().axes[0]
    shown = {line.get_label(): line.get_xydata()[0].tolist() for line in axes.lines}
    assert shown["[CLS]"] == pytest.approx([4, weights.mean((0, 1, 2))[0]]) and "comma, period" in shown
    (inner,) = rows(outcome, "frequency", quantity="f", tokens="without special tokens")
    assert inner["spearman"] == pytest.approx(stats.spearmanr(rank[1:5], values.mean((0, 1))[1:5]).statistic)


def test_mixing_frequency_averages_layers_per_occurrence() -> None:
    ratios = {scope: np.random.default_rng(1).random((2, 6)) for scope in SCOPES[:4]}
    dataset = analysis({}, TOKENS, mixing=ratios)
    observation = Observation(dataset, 0, token_ids=np.array([1, 2, 3, 4, 2, 5]))
    (found,) = rows(
        MixingFrequency().over([observation], ranks={1: 3, 2: 1, 3: 9, 4: 2}),
        "mixing-frequency",
        quantity="Attn",
        tokens="all",
    )
    assert found["spearman"] == pytest.approx(stats.spearmanr([3, 1, 9, 2, 1, 10], ratios["Attn"].mean(0)).statistic)


def test_norms_of_the_feed_forward_are_averaged_over_tokens() -> None:
    norms = np.random.default_rng(2).random((2, 2, 6))
    outcome = FeedForwardNormsExperiment().over(
        [Observation(random_analysis(0, TOKENS), 0, results={FeedForwardNorms(): norms})]
    )
    (found,) = rows(outcome, "ff-norms", layer=2, vector="bypass")
    assert found["mean"] == pytest.approx(norms[1, 1].mean())


def test_removing_outliers_compares_the_changed_map_with_the_one_before_the_feed_forward() -> None:
    item = random_analysis(0, TOKENS)
    removed = item.map("AttnResLn").values * 2  # same order: similarity 1
    dimensions = np.random.default_rng(3).random((2, 3, 200))
    results = {MapWithoutDimensions(0.01): removed, FeedForwardDimensions(): dimensions}
    outcome = OutlierDimensions().over([Observation(item, 0, results=results)])
    (found,) = rows(outcome, "outlier-dimensions", normalisation="none", layer=1)
    expected = stats.spearmanr(*(item.map(s).values[0].reshape(-1) for s in ("AttnResLn", "AttnResLnFf"))).statistic
    assert (found["before"], found["after"]) == (pytest.approx(expected), pytest.approx(1))
    chosen = rows(outcome, "outlier-dimensions-values", layer=1, removed=True)
    assert {row["dimension"] for row in chosen} == set(np.argsort(dimensions[0, 2])[:2])


def test_values_of_dimensions_are_means_over_all_tokens_and_not_over_sequences() -> None:
    chance = np.random.default_rng(4)
    observations, tokens_of = [], (TOKENS, TOKENS[:3])
    absolute = [chance.random((2, 2, len(tokens), 20)) for tokens in tokens_of]
    gamma = chance.random((2, 1, 20))
    for number, (tokens, values) in enumerate(zip(tokens_of, absolute, strict=True)):
        item = random_analysis(number, tokens)
        results = {
            MapWithoutDimensions(0.1): item.map("AttnResLnFf").values,
            FeedForwardDimensions(): np.concatenate([values.mean(2), gamma], 1),
        }
        observations.append(Observation(item, number, results=results))
    outcome = OutlierDimensions(fraction=0.1).over(observations)
    pooled = np.concatenate(absolute, 2).mean(2)
    found = rows(outcome, "outlier-dimensions-values", layer=2)
    assert [row["output"] for row in found] == pytest.approx(pooled[1, 1].tolist())
    assert [row["gamma"] for row in found] == pytest.approx(gamma[1, 0].tolist())


def test_an_experiment_that_needs_more_than_an_analysis_says_so() -> None:
    with pytest.raises(InputError, match="HiddenNorms"):
        Dispersion().over([random_analysis(0, TOKENS)])


def test_no_analyses_are_an_error() -> None:
    with pytest.raises(InputError, match="no analyses"):
        ScopeSimilarity().over([])


@pytest.mark.parametrize("name", ["scope-similarity", "ff-amplification", "word-split"])
def test_the_order_of_merging_does_not_matter(name: str) -> None:
    tokens = ["[CLS]", "a", "##b", "c", "a", "##d", "[SEP]"]
    items = [
        random_analysis(seed, tokens[: 7 - seed % 2], words=[0, 1, 1, 2, 3, 3, 4][: 7 - seed % 2]) for seed in range(5)
    ]
    chosen = experiment(name, {"resamples": 99} if name == "word-split" else {})
    model = ModelFacts.of_analysis(items[0])
    partials = [chosen.observe(Observation(item, number), model) for number, item in enumerate(items)]
    ways = [
        merged(partials),
        merged(reversed(partials)),
        merged([merged(partials[3:]).compacted(), merged(partials[:3]).compacted()]),
    ]
    first, *others = [chosen.finish(partial, RunFacts(model)) for partial in ways]
    for other in others:
        assert first.tables.keys() == other.tables.keys()
        assert all(table.equals(other.tables[key]) for key, table in first.tables.items())


@pytest.mark.parametrize("kind", EXPERIMENTS.values())
def test_every_experiment_says_what_it_is(kind: type) -> None:
    assert kind.name and kind.paper and kind.shows and kind.summary and kind.columns  # type: ignore[attr-defined]


def test_every_column_is_documented_and_typed() -> None:
    items = [random_analysis(seed, TOKENS) for seed in range(2)]
    for name in ("scope-similarity", "ff-amplification"):
        outcome = experiment(name).over(items)
        for table in outcome.tables.values():
            assert set(table.column_names) <= set(EXPERIMENTS[name].columns)
            assert not any(pa.types.is_null(column.type) for column in table.schema)


@pytest.mark.usefixtures("unchecked_types")
def test_unknown_names_and_options_are_refused_with_what_exists() -> None:
    with pytest.raises(InputError, match="scope-similarity"):
        experiment("scope-dissimilarity")
    with pytest.raises(InputError, match="Its options: axis"):
        experiment("ff-amplification", {"axes": "row"})
    with pytest.raises(InputError, match="none, row, column"):
        experiment("ff-amplification", {"axis": "diagonal"})
