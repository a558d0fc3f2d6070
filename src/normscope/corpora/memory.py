"""A corpus that is a list of texts in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from normscope.corpora.encode import Encoder
from normscope.corpora.item import Item
from normscope.corpora.problems import CorpusError, Policy, Problems
from normscope.corpora.record import Record


@dataclass(frozen=True)
class TextList:
    """Texts, each a sequence (or, with the unit `packed`, all cut to `max_tokens`)."""

    texts: tuple[str, ...]
    max_tokens: int = 128
    unit: str = "line"
    bad_rows: Policy = "refuse"
    path: str = "(texts in memory)"

    def items(self, tokenizer: PreTrainedTokenizerBase | None, problems: Problems) -> Iterator[Item]:
        if tokenizer is None:
            raise CorpusError("The model has no tokenizer, so texts cannot be read. Pass one.")
        encoder = Encoder(tokenizer, problems, max_tokens=self.max_tokens)
        records = (Record(f"text {n}", text=text) for n, text in enumerate(self.texts, 1) if text.strip())
        return encoder.packed(records) if self.unit == "packed" else encoder.items(records)

    def fingerprint(self) -> str:
        return hashlib.sha256("\0".join(self.texts).encode()).hexdigest()[:16]

    def settings(self) -> dict[str, Any]:
        return {"path": self.path, "texts": len(self.texts), "max_tokens": self.max_tokens, "unit": self.unit}
