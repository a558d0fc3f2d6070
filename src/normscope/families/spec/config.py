"""What families read off a configuration: the number of blocks, and the longest input."""

from __future__ import annotations

from typing import Any

Config = Any
"""A Hugging Face configuration: its attributes depend on the architecture, so it stays untyped."""


def positions_from_zero(config: Config) -> int | None:
    """The longest input of a model with a table of positions."""
    return getattr(config, "max_position_embeddings", None)


def positions_after_padding(config: Config) -> int | None:
    """As RoBERTa counts: positions start after the padding index."""
    return config.max_position_embeddings - config.pad_token_id - 1


def unlimited(_: Config) -> None:
    """Positions are relative or computed, so that no table limits the input."""


def hidden_layers(config: Config) -> int:
    """The number of blocks a forward pass goes through."""
    return config.num_hidden_layers
