"""Tables of version 0.1 for the same texts, model and experiments: a run gives them again.

Both computed in float64, so that they agree on every processor. Where a default has changed on purpose, the run has the
option that it was; columns may have been added.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import normscope as ns
from normscope.experiments import EXPERIMENTS
from normscope.runs import RunResult, run

BEFORE = Path(__file__).parents[1] / "data" / "version-0.1"
TEXTS = [
    "The opera singer caught a soap bubble.",
    "Unbelievably, the restaurateur in New York reopened.",
    "It rained, and the rain fell on the plain in Spain.",
    "The singer caught the rain.",
]
_RANKS: dict[str, Any] = {"correlations": ("spearman",), "normalisations": ("none", "row", "column")}
OPTIONS = {
    "scope-similarity": _RANKS,
    "outlier-dimensions": _RANKS,
    "expansion-rate": {"form": "linear"},
    "word-split": {"unit": "occurrence"},
    "ff-amplification": {"kinds": ("ff", "group")},
}
MENDED = {
    "dispersion": {"q05", "q25", "median", "q75", "q95"},  # were to 2.4 %
    "weight-vs-norm": {"spearman"},  # had wide bins
    "outlier-dimensions-values": {"input", "output"},  # were means over sequences, not over tokens
    "word-split": {"effect", "low", "high", "p", "significant", "other_mean"},  # other pairs were one draw
    "word-split-distances": {"other_pairs"},
}
"""Columns that were not exact, or wrong; their tests against the definition are those of the experiments."""

NAMES = [
    name
    for name, kind in EXPERIMENTS.items()
    if name not in ("alignment", "entities") and "faithfulness" not in kind.__module__
]


@pytest.fixture(scope="module")
def now() -> RunResult:
    return run(NAMES, model=ns.load(dtype=torch.float64), corpus=TEXTS, options=OPTIONS)


def test_every_table_of_version_0_1_is_compared(now: RunResult) -> None:
    assert {path.stem for path in (BEFORE / "tables").iterdir()} <= set(now.tables)


@pytest.mark.parametrize("path", sorted((BEFORE / "tables").iterdir()), ids=lambda path: path.stem)
def test_a_table_is_that_of_version_0_1(now: RunResult, path: Path) -> None:
    before, after = pq.read_table(path), now.tables[path.stem]
    assert after.num_rows == before.num_rows
    for field in before.schema:
        old, new = before[field.name], after[field.name]
        assert new.type == old.type
        if field.name in MENDED.get(path.stem, ()):
            continue
        if pa.types.is_floating(field.type):
            np.testing.assert_allclose(new.to_numpy(), old.to_numpy(), rtol=1e-9, atol=1e-9, err_msg=field.name)
        else:
            assert new.to_pylist() == old.to_pylist(), field.name


def test_the_manifest_says_the_same_of_texts_and_tokens(now: RunResult) -> None:
    before = json.loads((BEFORE / "manifest.json").read_text(encoding="utf-8"))
    for key in ("sequences", "tokens", "rows_left_out_or_changed", "problems", "masked"):
        assert now.manifest[key] == before[key], key
    for key in ("corpus_fingerprint", "tokens_fingerprint", "model", "masking", "seed"):
        assert now.manifest["settings"][key] == before["settings"][key], key
    for name, options in before["settings"]["experiments"].items():
        assert options.items() <= now.manifest["settings"]["experiments"][name].items(), name
