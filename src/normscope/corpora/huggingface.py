"""Hugging Face `datasets`: a dataset of the hub by name, or one saved to a folder. Needs the package (an extra)."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from normscope.corpora.columns import records_of
from normscope.corpora.problems import CorpusError, Problems
from normscope.corpora.record import Record
from normscope.errors import NormscopeError


def read_dataset(
    name: str, problems: Problems, field: str | None, pair_field: str | None, split: str, subset: str | None
) -> Iterator[Record]:
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError as error:
        raise CorpusError(
            f"{name!r} is read with Hugging Face datasets, which is not installed: pip install 'normscope[datasets]'."
        ) from error
    try:
        if Path(name).is_dir():
            saved = datasets.load_from_disk(name)
            rows = saved[split] if hasattr(saved, "keys") else saved
        else:
            rows = datasets.load_dataset(name, subset, split=split)
    except Exception as error:  # whatever the package raises, the dataset could not be had
        raise CorpusError(f"The dataset {name!r} (split {split!r}) could not be loaded: {error}") from error
    return records_of(_numbered(rows, f"{name} [{split}]"), problems, field, pair_field)


def _numbered(rows: Any, where: str) -> Iterator[tuple[str, Any]]:
    number = 0
    try:
        for number, row in enumerate(rows, 1):
            yield f"{where}:{number}", dict(row)
    except NormscopeError:
        raise
    except Exception as error:  # whatever the package raises
        raise CorpusError(f"The dataset {where} breaks off after row {number}: {error}") from error
