"""What a decomposition gives: the numbers of one layer, by scope."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.decompose.approximation import Approximation, Reached


@dataclass
class LayerResult:
    """The numbers of one layer, by scope.

    Maps have the sequence's own tokens as keys and then the encoder's, NaN where a key does not exist at that scope.
    `source_mixing` is the share of the mixing ratio that comes from the encoder's tokens; `errors` are the relative
    completeness errors of each query; `heads` are maps of each head; `without` are maps after the feed-forward without some
    dimensions, by the name of these; `reached` says how good approximate maps are. `scopes` are those with a map or a ratio,
    as they follow each other in the chain.
    """

    scopes: list[str] = field(default_factory=list)
    maps: dict[str, Float[Tensor, "query key"]] = field(default_factory=dict)
    mixing: dict[str, Float[Tensor, " query"]] = field(default_factory=dict)
    source_mixing: dict[str, Float[Tensor, " query"]] = field(default_factory=dict)
    heads: dict[str, Float[Tensor, "head query key"]] = field(default_factory=dict)
    errors: dict[str, Float[Tensor, " query"]] = field(default_factory=dict)
    without: dict[str, Float[Tensor, "query key"]] = field(default_factory=dict)
    reached: Reached | None = None

    def followed_by(self, other: LayerResult) -> LayerResult:
        """The same layer with further query rows."""

        def joined(first: dict[str, Tensor], second: dict[str, Tensor], dimension: int = 0) -> dict[str, Tensor]:
            return {name: torch.cat([values, second[name]], dimension) for name, values in first.items()}

        reached = (
            self.reached if other.reached is None or self.reached is None else self.reached.worse_of(other.reached)
        )
        return LayerResult(
            self.scopes,
            joined(self.maps, other.maps),
            joined(self.mixing, other.mixing),
            joined(self.source_mixing, other.source_mixing),
            joined(self.heads, other.heads, 1),
            joined(self.errors, other.errors),
            joined(self.without, other.without),
            reached,
        )

    @property
    def reached_or_exact(self) -> Reached:
        return self.reached or Reached(Approximation(), {}, {})

    def copy(self) -> LayerResult:
        """One that can be gone on with while this one stays as it is."""
        tables = {name: dict(value) for name, value in vars(self).items() if isinstance(value, dict)}
        return replace(self, scopes=list(self.scopes), **tables)
