"""The parameters of an approximation of norm maps: how many neurons keep their own slopes, and how many directions of
the output are used.

Approximations concern the feed-forward alone. Sums, mixing ratios, the diagonal, the proof and all scopes before the
feed-forward stay exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from normscope.errors import InputError, listing
from normscope.options import Products

THIN = 2.0
"""By how much an operation of a thin product costs more than one of a large product."""

PASSED = 12.0
"""The cost of a number that is written and read again, relative to a multiplication of a large product."""

PICKED = 250.0
"""The cost of a number that is gathered for one query alone."""

NARROW = 28
"""How many additional columns a narrow product costs."""


@dataclass(frozen=True)
class Approximation:
    """Main slope plus remainder, a sketch, or both; or large products in the less precise arithmetic `products`.

    `neurons` is the share of neurons that keep each query's own slope; the others take the median slope over queries, which
    stays in factored form. With 1 there is no main slope. `directions` is how many directions of the output a norm is
    estimated from: two thirds of them those along which sampled parts lie, the others random; `None` takes all.
    `patterns` is how many patterns the slopes of all queries are made of; `None` leaves every query its own.
    """

    neurons: float = 1.0
    directions: int | None = None
    seed: int = 0
    products: Products | None = None
    patterns: int | None = None

    def __post_init__(self) -> None:
        if self.products not in (None, *get_args(Products)):
            raise InputError(f"products is one of {listing(get_args(Products))}, not {self.products!r}.")
        if self.products is not None and (self.neurons, self.directions, self.patterns) != (1, None, None):
            raise InputError(
                f"Products in {self.products} are for maps that are not approximated otherwise: ask for one of the two."
            )
        if not 0 < self.neurons <= 1:
            raise InputError(
                f"An approximation keeps the slopes of a share of neurons, above 0 up to 1, not {self.neurons}."
            )
        if self.directions is not None and self.directions < 2:
            raise InputError(f"A sketch has at least 2 directions, not {self.directions}.")
        if self.patterns is not None and (self.patterns < 2 or self.neurons < 1):
            raise InputError(
                f"Slopes are made of at least 2 patterns, for all neurons (1.0 of them), not of {self.patterns} for "
                f"{self.neurons} of them."
            )

    @property
    def name(self) -> str:
        """As results record it."""
        if self.products is not None:
            return f"{self.products} products"
        if self.patterns is not None:
            return "patterns"
        if self.directions is None:
            return "exact" if self.neurons == 1 else "slopes"
        return "sketch" if self.neurons == 1 else "both"

    def selected(self, neurons: int) -> int:
        """How many of the neurons keep their own slopes."""
        return max(1, min(neurons, round(self.neurons * neurons)))

    @property
    def kind(self) -> tuple[float, int | None]:
        """What is the same for all approximations that differ by their directions alone."""
        return self.neurons, self.patterns

    def width(self, d: int) -> int:
        """By how many numbers a part vector is represented."""
        return d if self.directions is None else min(d, self.directions)

    def operations(
        self, d: int, neurons: int, heads: int, values: int, branches: int, keys: float | int
    ) -> tuple[float, float]:
        """Multiplications for one query in two ways, counted as those of large products.

        The first expands every key to all neurons; the second multiplies the matrices around the query's slopes first. With
        patterns there is one way, as they are folded once for all queries.
        """
        width = self.width(d) + (0 if self.directions is None else NARROW)
        if self.patterns is not None:
            only = values * (branches * self.patterns * width + keys * (width + PASSED))
            return only, only
        kept = self.selected(neurons)
        picked, product = (0.0, width) if kept == neurons else (PICKED, THIN * width)
        expanding = keys * (branches * neurons * (THIN * heads + PASSED) + kept * (product + picked))
        folding = kept * (values * (product + branches * picked) + branches * width) + keys * values * (width + PASSED)
        return expanding, folding


@dataclass(frozen=True)
class Reached:
    """How close approximate maps of a layer came to exact ones, on the cells of sampled queries, by scope.

    `error` is the median relative error of a cell; `spearman` is the rank correlation of all cells.
    """

    approximation: Approximation
    error: dict[str, float]
    spearman: dict[str, float]

    @property
    def worst(self) -> float:
        """The lowest rank correlation of any scope."""
        return min(self.spearman.values(), default=1.0)

    def worse_of(self, other: Reached) -> Reached:
        """For maps whose halves reached this and the other quality."""
        return Reached(
            min((self, other), key=lambda each: each.worst).approximation,
            {scope: max(error, other.error.get(scope, 0.0)) for scope, error in self.error.items()},
            {scope: min(rho, other.spearman.get(scope, 1.0)) for scope, rho in self.spearman.items()},
        )
