"""One sequence of a corpus, tokenized and ready for a model, and its masked form."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from normscope.corpora.record import AskedSentences, EvidenceTokens, Gold, Label, TextPair
from normscope.inputs import TokenSequence

MASKED_SHARE = 0.12
"""The share of tokens that is masked, as in BERT's training (where another 3 % are replaced or kept)."""


@dataclass(frozen=True)
class Item:
    """A tokenized sequence with its index in the corpus.

    `entities` has for every token the number of its entity, -1 outside. With `target`, the sequence is to be translated:
    `source_words` and `target_words` have the index of every token's word (-1: none), and `gold` aligns the words. With
    `compared`, two texts are compared, and the sequence is the first. With `asked`, a question is asked about sentences, and
    the sequence is all of their text. `label` is what is to be explained of it.
    """

    number: int
    where: str
    sequence: TokenSequence
    entities: np.ndarray | None = None
    target: TokenSequence | None = None
    source_words: np.ndarray | None = None
    target_words: np.ndarray | None = None
    gold: Gold | None = None
    evidence: EvidenceTokens | None = None
    compared: TextPair | None = None
    asked: AskedSentences | None = None
    label: Label | None = None

    @property
    def length(self) -> int:
        return len(self.sequence)

    @property
    def token_ids(self) -> np.ndarray:
        return np.asarray(self.sequence.features["input_ids"], np.int64)


def masked(item: Item, mask_id: int, mask_token: str, seed: int) -> Item:
    """The item with `max(1, int(0.12 * n))` of its `n` tokens that are not special replaced by the mask token.

    Which ones depends on the seed and the item's index in the corpus alone.
    """
    sequence = item.sequence
    candidates = np.flatnonzero(~np.asarray(sequence.special, bool))
    count = min(len(candidates), max(1, int(MASKED_SHARE * len(candidates))))
    places = set(np.random.default_rng([seed, item.number]).choice(candidates, count, replace=False).tolist())
    ids = [mask_id if index in places else number for index, number in enumerate(sequence.features["input_ids"])]
    tokens = [mask_token if index in places else token for index, token in enumerate(sequence.tokens)]
    features = {**sequence.features, "input_ids": ids}
    return replace(item, sequence=replace(sequence, features=features, tokens=tokens))
