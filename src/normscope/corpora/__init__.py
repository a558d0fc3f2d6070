"""Corpora: what a sequence is, in each of the formats that people keep texts in, and from there to tokenized items.

Readers give records with their place in the file; the encoder tokenizes them. Rows that cannot be used are noted with file
and line, left out or refused, and counted.
"""

from __future__ import annotations

from pathlib import Path

from normscope.corpora.corpus import Corpus, CorpusOptions
from normscope.corpora.encode import Encoder
from normscope.corpora.item import Item, masked
from normscope.corpora.problems import CorpusError, Problems
from normscope.corpora.record import Gold, Record

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


def bundled() -> Path:
    """A short public-domain English text that comes with normscope (the opening of Alice's Adventures in Wonderland)."""
    return Path(__file__).parent / "alice.txt"
