"""The search for the cheapest approximation that is good enough: what is tried next, after what was tried so far."""

from __future__ import annotations

from collections.abc import Sequence

from normscope.decompose import Approximation, Reached

_DECAY = 1.5
"""By which power of its directions a sketch comes nearer to the exact ranks: an expectation, which is then measured."""


class Search:
    """Candidates, cheapest first, of which the first that misses no more than `allowed` of a perfect correlation is sought.

    `before` is what a layer below reached: candidates of the same kind that it makes expect success are tried, no others.
    """

    def __init__(self, candidates: Sequence[Approximation], allowed: float, before: Reached | None) -> None:
        self.allowed = allowed
        self._missed: dict[Approximation, float] = {}
        self._expected_by: dict[Approximation, float] = {}
        if before is not None and before.approximation in candidates:
            candidates = [each for each in candidates if each.kind == before.approximation.kind]
            self._expected_by = {before.approximation: 1 - before.worst}
        self.candidates = candidates

    @property
    def is_informed(self) -> bool:
        """Whether a layer below shows what to expect."""
        return bool(self._expected_by)

    def next(self) -> Approximation | None:
        """The cheapest that neither missed nor is expected to miss."""
        for candidate in self.candidates:
            if candidate not in self._missed and self._expectation(candidate) <= self.allowed:
                return candidate
        return None

    def misses(self, reached: Reached) -> bool:
        """Whether a candidate that was tried did not reach enough, which is kept in mind."""
        miss = 1 - reached.worst
        if not miss <= self.allowed:
            self._missed[reached.approximation] = miss
        return not miss <= self.allowed

    def _expectation(self, candidate: Approximation) -> float:
        """What a candidate will miss, judged by those of the same kind; nothing is known without one."""
        known = {each: miss for each, miss in self._missed.items() if each.kind == candidate.kind}
        known = known or self._expected_by
        if candidate.directions is None:
            return 0.0
        misses = [
            miss * (each.directions / candidate.directions) ** _DECAY
            for each, miss in known.items()
            if each.directions is not None
        ]
        return max(misses, default=0.0)
