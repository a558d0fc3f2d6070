"""One thread, and the small model, loaded once for a module of tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import normscope as ns
from runs.small import save_model


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """As other processes have here: tables are the same to the last bit only if their threads are as many."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def small(analyzer: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return ns.load(save_model(tmp_path_factory.mktemp("model"), analyzer.tokenizer, 0))
