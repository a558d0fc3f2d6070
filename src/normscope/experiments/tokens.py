"""Categories of tokens (2020) and token types, for experiments that compare groups of tokens."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from normscope.experiments.base import CLS, FIRST, SEP, ModelFacts, Observation

PUNCTUATION = "comma, period"
CATEGORIES = (CLS, SEP, PUNCTUATION, "other")


def categories_of(model: ModelFacts) -> tuple[str, ...]:
    """The categories of a model's tokens: in a causal model, the first token is a category of its own."""
    return (*CATEGORIES, FIRST) if model.causal else CATEGORIES


def categories(observation: Observation, model: ModelFacts) -> np.ndarray:
    """For every token the index of its category in `categories_of(model)`."""
    found = np.full(len(observation.tokens), CATEGORIES.index("other"))
    for index, (token, special) in enumerate(zip(observation.tokens, observation.special, strict=True)):
        role = model.roles.get(token) if special else None
        if role in (CLS, SEP):
            found[index] = CATEGORIES.index(role)
        elif token.lstrip("Ġ▁ ") in (",", "."):
            found[index] = CATEGORIES.index(PUNCTUATION)
    if model.causal:
        found[0] = len(CATEGORIES)
    return found


def type_ids(observation: Observation) -> np.ndarray:
    """A number for every token's type: its vocabulary id, or, where there is none, a hash of its string."""
    if observation.token_ids is not None:
        return observation.token_ids.astype(np.int64)
    digests = [blake2b(token.encode(), digest_size=7).digest() for token in observation.tokens]
    return np.array([int.from_bytes(digest, "big") for digest in digests], np.int64)
