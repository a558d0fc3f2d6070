"""Similarities of any tokens, without a model: what the page is given, with sums that are right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from normscope.inputs import TokenSequence
from normscope.results.similarity import Similarity
from normscope.results.similarity_schema import Account, Text, similarity_dataset

FACTS: dict[str, Any] = {"model": "tiny", "fingerprint": "0", "measure": "cosine", "pooling": "mean"}


def text_of(tokens: Sequence[str], prompt: int = 0) -> Text:
    """A text of tokens, the first `prompt` of which are an instruction; `##` continues a word, brackets are special."""
    word_ids: list[int] = []
    words: list[str] = []
    for token in tokens:
        if not _is_special(token) and not token.startswith("##"):
            words.append("")
        if not _is_special(token):
            words[-1] += token.removeprefix("##")
        word_ids.append(-1 if _is_special(token) else len(words) - 1)
    sequence = TokenSequence(
        {"input_ids": list(range(len(tokens)))},
        list(tokens),
        [_is_special(token) for token in tokens],
        word_ids,
        [token if word < 0 else words[word] for token, word in zip(tokens, word_ids, strict=True)],
        " ".join(tokens),
    )
    return Text(" ".join(tokens), "", sequence, [place < prompt for place in range(len(tokens))])


def _is_special(token: str) -> bool:
    return token in ("[CLS]", "[SEP]")


def sample_similarity(first: Sequence[str], second: Sequence[str], *, seed: int = 0, table: bool = True) -> Similarity:
    """Random cells of both signs that, with margins and constant, add up to the value."""
    random = np.random.default_rng(seed)
    cells = random.normal(0.01, 0.02, (len(first), len(second)))
    margins = random.normal(0, 0.01, len(first)), random.normal(0, 0.01, len(second))
    value = float(cells.sum() + margins[0].sum() + margins[1].sum() + 0.2)
    account = Account(cells, *margins, 0.2)
    if not table:
        shares = cells.sum(1) + margins[0], cells.sum(0) + margins[1]
        account = Account(
            first_share=shares[0],
            second_share=shares[1],
            first_bias=value - float(shares[0].sum()),
            second_bias=value - float(shares[1].sum()),
        )
    return Similarity(similarity_dataset(value, 1e-8, account, (text_of(first), text_of(second)), FACTS))
