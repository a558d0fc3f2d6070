"""Tokenized items as plain JSON values and back, so that they can wait on disk without a pickle."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from normscope.corpora.item import EvidenceTokens, Item
from normscope.corpora.record import Gold
from normscope.inputs import TokenSequence


def to_json(item: Item) -> dict[str, Any]:
    """The item as dictionaries, lists, numbers and texts."""
    return {
        "number": item.number,
        "where": item.where,
        "sequence": _sequence(item.sequence),
        "entities": _numbers(item.entities),
        "target": None if item.target is None else _sequence(item.target),
        "source_words": _numbers(item.source_words),
        "target_words": _numbers(item.target_words),
        "gold": None if item.gold is None else [sorted(item.gold.sure), sorted(item.gold.possible)],
        "evidence": None if item.evidence is None else asdict(item.evidence),
    }


def from_json(value: dict[str, Any]) -> Item:
    """The item that `to_json` was given."""
    return Item(
        number=value["number"],
        where=value["where"],
        sequence=TokenSequence(**value["sequence"]),
        entities=_array(value["entities"]),
        target=None if value["target"] is None else TokenSequence(**value["target"]),
        source_words=_array(value["source_words"]),
        target_words=_array(value["target_words"]),
        gold=None if value["gold"] is None else _gold(*value["gold"]),
        evidence=None if value["evidence"] is None else _evidence(**value["evidence"]),
    )


def _sequence(sequence: TokenSequence) -> dict[str, Any]:
    return {
        "features": sequence.features,
        "tokens": sequence.tokens,
        "special": sequence.special,
        "word_ids": sequence.word_ids,
        "words": sequence.words,
        "text": sequence.text,
    }


def _evidence(collection: str, good: int, bad: int, places: list[int]) -> EvidenceTokens:
    return EvidenceTokens(collection, good, bad, tuple(places))


def _gold(sure: list[list[int]], possible: list[list[int]]) -> Gold:
    return Gold(frozenset((s, t) for s, t in sure), frozenset((s, t) for s, t in possible))


def _numbers(array: np.ndarray | None) -> list[int] | None:
    return None if array is None else array.tolist()


def _array(numbers: list[int] | None) -> np.ndarray | None:
    return None if numbers is None else np.array(numbers, np.int64)
