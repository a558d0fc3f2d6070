"""Corpora: readers for common text formats, and their sequences as tokenized items.

Readers yield records with their position in the file; the encoder tokenizes them. Rows that cannot be used are recorded with
file and line, and skipped or refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import lazy_loader

from normscope.corpora.corpus import Corpus, CorpusOptions
from normscope.corpora.record import CorpusError, Gold, Problems, Record

if TYPE_CHECKING:
    from normscope.corpora.item import Item, masked
    from normscope.corpora.tokenize import Encoder

__all__ = [
    "Corpus",
    "CorpusError",
    "CorpusOptions",
    "Encoder",
    "Gold",
    "Item",
    "Problems",
    "Record",
    "bundled",
    "masked",
]

# What tokenizes is imported when it is first used: a command line knows its options without it.
__getattr__, _, _ = lazy_loader.attach(__name__, submod_attrs={"tokenize": ["Encoder"], "item": ["Item", "masked"]})


def bundled() -> Path:
    """A short public-domain English text that comes with normscope (the opening of Alice's Adventures in Wonderland)."""
    return Path(__file__).parent / "alice.txt"
