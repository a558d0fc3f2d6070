"""Approximate maps in a run: for experiments that use ranks alone, labelled wherever a number is, and refused by others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from normscope.errors import InputError
from normscope.experiments import EXPERIMENTS
from normscope.experiments.scope_similarity import ScopeSimilarity
from normscope.report import write_report
from normscope.runs import run
from normscope.runs.settings import Settings, differences

TEXTS = ["The opera singer caught a soap bubble between two fingers.", "Nobody ever found the conductor's baton again."]

BY_RANKS: dict[str, dict[str, Any]] = {"scope-similarity": {"correlations": ("spearman",)}}


def test_tables_manifest_figures_and_report_say_that_maps_were_approximate(tmp_path: Path) -> None:
    near = run(["scope-similarity"], corpus=TEXTS, out=tmp_path, approximate="sketch", masking="none", options=BY_RANKS)
    exact = run(["scope-similarity"], corpus=TEXTS, masking="none", options=BY_RANKS)
    stated = near.manifest["approximate"]
    assert stated["name"] == "sketch" and 0.9 < stated["spearman"] < 1 and 0 < stated["error"] < 0.1
    table = pq.read_table(tmp_path / "tables" / "scope-similarity.parquet")
    assert set(table["approximate"].to_pylist()) == {"sketch"}
    assert set(table["approximate_spearman"].to_pylist()) == {stated["spearman"]}
    facts = near.manifest["experiments"]["scope-similarity"]
    assert "Approximate maps" in facts["notes"][0] and "approximate" in facts["columns"]
    assert "approximate maps" in write_report([tmp_path]).read_text()
    figure = next(iter(near.outcomes["scope-similarity"].figures.values()))()
    assert "approximate maps" in figure.get_suptitle()
    plain = exact.tables["scope-similarity"]
    assert "approximate" not in plain.column_names and exact.manifest["approximate"] is None
    pairs = zip(table["similarity"].to_pylist(), plain["similarity"].to_pylist(), strict=True)
    assert max(abs(one - two) for one, two in pairs) < 0.02


def test_another_approximation_is_another_run() -> None:
    near, exact = (Settings((ScopeSimilarity(("spearman",)),), approximate=each).record() for each in ("sketch", None))
    assert differences(near, exact) == ["approximate"]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_that_needs_values_refuses_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^{name}: exact values are needed"):
        run([name], corpus=TEXTS, out=tmp_path / "run", approximate="fast")
    assert not (tmp_path / "run").exists()
