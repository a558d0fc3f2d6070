"""What every experiment does: its names, its columns, merging, refusal."""

from __future__ import annotations

import pyarrow as pa
import pytest

from experiments.made import TOKENS, random_analysis
from normscope.errors import InputError
from normscope.experiments import EXPERIMENTS, Observation, experiment, merged
from normscope.experiments.base import ModelFacts, RunFacts
from normscope.experiments.dispersion import Dispersion
from normscope.experiments.scope_similarity import ScopeSimilarity


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
