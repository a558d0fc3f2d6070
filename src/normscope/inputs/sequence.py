"""One input as the model reads it: token ids, how the tokens are called, and which word each belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

NO_WORD = -1
"""The word of a token that belongs to none, such as a special token."""


@dataclass(frozen=True)
class TokenSequence:
    """One input: its per-token features, how its tokens are called, and which word each belongs to (if known).

    An encoder-decoder's source has a `target`, whose rows also have the tokens that they give out; `output_ids` are those
    that were said, which may leave out the last row. An image has pixels, the image as it is shown, and the row and column
    of each patch.
    """

    features: dict[str, list[int]]
    tokens: list[str]
    special: list[bool]
    word_ids: list[int] | None
    words: list[str]
    text: str
    target: TokenSequence | None = None
    output_tokens: list[str] | None = None
    output_ids: list[int] | None = None
    pixels: Tensor | None = None
    image: np.ndarray | None = None
    grid: list[tuple[int, int]] | None = None

    def __len__(self) -> int:
        return len(self.tokens)
