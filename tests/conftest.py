"""Set up before any test module is imported: checked shapes and types, no network, no display."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["MPLBACKEND"] = "Agg"

import jaxtyping
import pytest
import torch
from support import checking

# From here on every function of normscope checks its annotations when called; in the tests only, as it costs time.
checking.install("normscope")

# Tiny matrices: on a busy machine, threads that wait for each other cost several times what they save.
torch.set_num_threads(int(os.environ.get("TEST_THREADS", "1")))


def pytest_collection_finish() -> None:
    """What was imported stays until the end: the collector of garbage need not look at it again and again."""
    gc.freeze()


@pytest.fixture(scope="session")
def analyzer() -> Any:
    """The embedded real model, ready to be analysed."""
    import normscope as ns  # noqa: PLC0415  (only after the hook above)

    return ns.load()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real browser: one for all tests of pages."""
    from support.chromium import launched  # noqa: PLC0415  (most tests need no browser)

    yield from launched()


@pytest.fixture(scope="session")
def processes() -> Iterator[Any]:
    """Processes of their own for programs that load a model, which start without importing torch and transformers again."""
    from support.processes import prepared_processes  # noqa: PLC0415  (most tests need no process)

    with prepared_processes() as started:
        yield started


@pytest.fixture
def unchecked_types() -> Iterator[None]:
    """Annotations are not checked, as in a user's process: a wrong type then meets normscope's own error."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def empty_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are made but saved empty: to draw them takes half of a small run, and they are tested by themselves."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (most tests need no picture)

    savefig = Figure.savefig

    def save_empty(_: Figure, *args: Any, **options: Any) -> None:
        savefig(Figure((1, 1)), *args, **options)

    monkeypatch.setattr(Figure, "savefig", save_empty)
