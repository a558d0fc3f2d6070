"""Published values stand beside measured ones where model and corpus are the papers', and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from normscope.corpora import bundled
from normscope.experiments import run

PUBLISHED = {"AttnW": 0.971, "Attn": 0.852, "AttnResW": 0.486, "AttnRes": 0.223, "AttnResLn": 0.188}


@pytest.fixture(scope="module")
def namesake(analyzer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in a folder that is called like the papers' BERT-base (its weights do not matter here)."""
    folder = tmp_path_factory.mktemp("models") / "bert-base-uncased"
    analyzer.model.save_pretrained(folder)
    analyzer.tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("corpus_name", "expected"), [("wikipedia", PUBLISHED), ("", {})])
def test_mixing_ratios_stand_beside_those_of_the_paper(
    namesake: Path, corpus_name: str, expected: dict[str, float]
) -> None:
    result = run(
        ["mixing-ratio"],
        model=namesake,
        corpus=str(bundled()),
        unit="packed",
        max_tokens=16,
        limit=2,
        corpus_name=corpus_name,
    )
    rows = result.tables["mixing-ratio"].to_pylist()
    found = {
        row["scope"]: row["published"]
        for row in rows
        if row["published"] is not None and row["published"] == row["published"]
    }
    assert found == pytest.approx(expected)
