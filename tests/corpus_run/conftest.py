"""The small model, loaded once for a module of tests."""

from __future__ import annotations

from typing import Any

import pytest

import normscope as ns
from corpus_run.small import save_model


@pytest.fixture(scope="module")
def small(analyzer: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return ns.load(save_model(tmp_path_factory.mktemp("model"), analyzer.tokenizer, 0))
