"""The ways on from a feed-forward: exactly or approximately, for all queries or for a sample of them.

What they have in common is computed once: the chain up to there, and what every key puts into the neurons.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from jaxtyping import Float, Int
from torch import Tensor

from normscope.decompose.approximation import Approximation
from normscope.decompose.carrier import Carrier
from normscope.decompose.expand import Projected
from normscope.decompose.factored import Factored
from normscope.decompose.result import LayerResult
from normscope.decompose.walk import Junction, Walk


class Branches:
    """A walk up to the feed-forward, and every way on that is asked for."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.junction = walk.until_feed_forward(Factored.of_tokens(walk.trace))

    def result(self, approximation: Approximation | None = None) -> LayerResult:
        """Everything that the walk asks for, for all queries."""
        walk = self.walk.branch()
        if self.junction is not None:
            walk.go_on(self.junction, self._tiles(walk, self.junction, approximation))
        return walk.result

    def sample(
        self, rows: Int[Tensor, " row"], scopes: Sequence[str], approximation: Approximation | None = None
    ) -> dict[str, Float[Tensor, "row key"]]:
        """The maps of some queries at scopes from the feed-forward on."""
        if self.junction is None:
            return {scope: self.walk.result.maps[scope][rows] for scope in scopes}
        junction = self.junction.select(rows)
        walk = Walk(junction.trace, maps=scopes, ratios=scopes)
        walk.go_on(junction, self._tiles(walk, junction, approximation))
        return walk.result.maps

    def _tiles(
        self, walk: Walk, junction: Junction, approximation: Approximation | None
    ) -> Iterator[tuple[slice, Carrier]]:
        carrier, networks = junction.carrier, junction.networks
        assert isinstance(carrier, Factored)
        if approximation is None or approximation.products is not None:
            products = None if approximation is None else approximation.products
            return carrier.feed_forward(networks, products, self._projected)
        return carrier.approximate_feed_forward(networks, approximation, walk.later(junction), self._projected)

    @cached_property
    def _projected(self) -> Projected | None:
        """What every key puts into the neurons, where one network serves all queries."""
        assert self.junction is not None
        networks = self.junction.networks
        return Projected(self.junction.carrier.groups, networks[0]) if len(networks) == 1 else None
