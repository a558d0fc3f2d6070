"""What the weights of an attention are computed from: queries, keys, and what is added to their products before the
softmax.

Plain data, as a trace is. Queries and keys are affine in the states that they are made of, once the deviations of norms on
the way are fixed; the way back through them is the model's own code, which the capture recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

Way = Callable[
    [Float[Tensor, "target head token d_key"], Float[Tensor, "target head token d_key"]],
    Float[Tensor, "target token d"],
]
"""From covectors at all queries and keys to one at the states that they are made of."""


@dataclass(frozen=True)
class Scores:
    """`weights = softmax(scale * queries @ keys.T + added)`; `added` is the mask and what positions add.

    `constant_queries` and `constant_keys` are the parts that belong to no token: the queries and keys of a state of
    zeros, by the biases on the way. They are `None` where there is no bias.
    """

    queries: Float[Tensor, "head query d_key"]
    keys: Float[Tensor, "head key d_key"]
    constant_queries: Float[Tensor, "head query d_key"] | None
    constant_keys: Float[Tensor, "head key d_key"] | None
    scale: float
    added: Float[Tensor, "some_head query key"] | None
    back: Way

    def select(self, rows: slice | Int[Tensor, " row"]) -> Scores:
        """The same for some of the query rows."""
        constant = None if self.constant_queries is None else self.constant_queries[:, rows]
        added = None if self.added is None else self.added[:, rows]
        return replace(self, queries=self.queries[:, rows], constant_queries=constant, added=added)

    def first_keys(self, count: int) -> Scores:
        """The same for some number of keys, from the first. The way back is that from all keys."""
        constant = None if self.constant_keys is None else self.constant_keys[:, :count]
        added = None if self.added is None else self.added[..., :count]
        return replace(self, keys=self.keys[:, :count], constant_keys=constant, added=added)

    def products(self) -> Float[Tensor, "head query key"]:
        """`scale * queries @ keys.T`: the share of queries and keys in the scores."""
        return (self.queries @ self.keys.mT).mul_(self.scale)

    def softmax(self, own: Float[Tensor, "head query key"]) -> Float[Tensor, "head query key"]:
        """The weights for given products, with what is added to them."""
        return torch.softmax(own if self.added is None else own + self.added, dim=-1)
