"""One input as the model reads it: token ids, the names of the tokens, and the word that each belongs to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

NO_WORD = -1
"""The word of a token that belongs to none, such as a special token."""

NO_SEGMENT = -1
"""The text of a pair of a token that belongs to neither."""

NOWHERE = (-1, -1)
"""The characters of a token that stands for none of the text, such as a special token."""


_FILLERS: dict[str, Any] = {
    "special": True,
    "word_ids": NO_WORD,
    "words": "",
    "grid": (NO_WORD, NO_WORD),
    "times": math.nan,
    "segments": NO_SEGMENT,
    "offsets": NOWHERE,
    "turns": "",
}
"""The fields that have a value for every token, and that of a token which stands for none of the text."""


@dataclass(frozen=True)
class TokenSequence:
    """One input: its per-token features, the names of its tokens, and the word that each belongs to (if known).

    An encoder-decoder's source has a `target`, whose rows also have the tokens that they output; `output_ids` are their
    ids, which may lack that of the last row. An image or a sound has a `signal`: what the model reads as a whole, by
    the name of its argument. An image also has the picture to show and the row and column of each patch, a sound the
    time in seconds at which each frame begins (NaN for a token that is no frame). For a pair of texts, `segments` has
    the text (0 or 1) of each token, or `NO_SEGMENT`, if the tokenizer reports it. `offsets` are the first character of
    each token and the one after its last, in the text (of a pair, in its own text) as it was given, or `NOWHERE`. For a
    chat, `turns` has the name of the turn of each token; what the template adds is in none (an empty name).
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
    signal: dict[str, Tensor] | None = None
    image: np.ndarray | None = None
    grid: list[tuple[int, int]] | None = None
    times: list[float] | None = None
    segments: list[int] | None = None
    offsets: list[tuple[int, int]] | None = None
    turns: list[str] | None = None

    def __post_init__(self) -> None:
        uneven = [name for name, values in self._by_token().items() if len(values) != len(self.tokens)]
        if uneven:
            raise ValueError(f"A sequence of {len(self.tokens)} tokens has another number of {', '.join(uneven)}.")

    def __len__(self) -> int:
        return len(self.tokens)

    def _by_token(self) -> dict[str, list[Any]]:
        """What is known of every token, by the names of the fields."""
        return {name: values for name in _FILLERS if (values := getattr(self, name)) is not None}

    def part(self, places: Sequence[int]) -> TokenSequence:
        """Some of the tokens, with all that is known of them."""
        features = {name: [values[place] for place in places] for name, values in self.features.items()}
        kept = {name: [values[place] for place in places] for name, values in self._by_token().items()}
        return replace(self, features=features, tokens=[self.tokens[place] for place in places], **kept)

    def filled(self, token: str, number: int, count: int) -> TokenSequence:
        """A token of this id repeated after the others, which stands for none of the text."""
        features = {
            name: values + [number if name == "input_ids" else 0] * count for name, values in self.features.items()
        }
        longer = {name: values + [_FILLERS[name]] * count for name, values in self._by_token().items()}
        longer["words"] = self.words + [token] * count
        return replace(self, features=features, tokens=self.tokens + [token] * count, **longer)


# ---- Batches: sequences of similar length, padded on the right.

_BATCH_TOKENS = 2048
"""The number of tokens, padding included, that go through the model at once."""


@dataclass(frozen=True)
class Batch:
    """Sequences padded on the right to one length, with their indices in the user's list, as the model's input."""

    indices: list[int]
    lengths: list[int]
    features: dict[str, Tensor]
    target_lengths: list[int]

    def repeated(self, count: int) -> Batch:
        """Copies of the only sequence of a batch, as one batch."""
        features = {name: tensor.expand(count, *tensor.shape[1:]) for name, tensor in self.features.items()}
        return Batch(self.indices * count, self.lengths * count, features, self.target_lengths * count)


def batches(
    sequences: Sequence[TokenSequence], pad_id: int, device: torch.device, *, alone: bool = False
) -> Iterator[Batch]:
    """Batches of sequences of similar length, the longest first; each sequence `alone` where padding would change it."""
    order = sorted(range(len(sequences)), key=lambda index: -len(sequences[index]))
    while order:
        size = 1 if alone else max(1, _BATCH_TOKENS // len(sequences[order[0]]))
        indices, order = order[:size], order[size:]
        yield _pad([sequences[index] for index in indices], indices, pad_id, device)


def _pad(sequences: list[TokenSequence], indices: list[int], pad_id: int, device: torch.device) -> Batch:
    lengths = [len(sequence) for sequence in sequences]
    targets = [sequence.target for sequence in sequences if sequence.target is not None]
    features = _padded(sequences, pad_id, device)
    if targets:
        features |= {f"decoder_{name}": tensor for name, tensor in _padded(targets, pad_id, device).items()}
    return Batch(indices, lengths, features, [len(target) for target in targets])


def _padded(sequences: list[TokenSequence], pad_id: int, device: torch.device) -> dict[str, Tensor]:
    signals = [sequence.signal for sequence in sequences if sequence.signal is not None]
    if signals:
        return {name: torch.stack([signal[name] for signal in signals]).to(device) for name in signals[0]}
    lengths = [len(sequence) for sequence in sequences]
    features: dict[str, Tensor] = {}
    for name in sequences[0].features:
        filler = pad_id if name == "input_ids" else 0
        rows = [s.features[name] + [filler] * (max(lengths) - len(s)) for s in sequences]
        features[name] = torch.tensor(rows, device=device)
    columns = torch.arange(max(lengths), device=device)
    features["attention_mask"] = (columns < torch.tensor(lengths, device=device)[:, None]).long()
    return features
