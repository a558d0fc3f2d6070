"""What is wrong with a corpus: rows that cannot be used are noted with their place, left out or refused, and counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from normscope.errors import InputError

Policy = Literal["skip", "refuse"]

_SHOWN = 20
"""How many problems are kept in full; all are counted."""


class CorpusError(InputError):
    """A corpus, or a row of it, cannot be used."""


@dataclass
class Problems:
    """The problems so far. With the policy `refuse` the first one is an error."""

    policy: Policy = "skip"
    counts: dict[str, int] = field(default_factory=dict[str, int])
    examples: list[str] = field(default_factory=list[str])

    def bad_row(self, where: str, kind: str, what: str) -> None:
        """A row that cannot be used."""
        if self.policy == "refuse":
            raise CorpusError(f"{where}: {what} To leave such rows out, say bad_rows='skip' (--bad-rows skip).")
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if len(self.examples) < _SHOWN:
            self.examples.append(f"{where}: {what}")

    def left_out(self, kind: str) -> None:
        """A row that is rightly left out, such as an empty line: counted, never an error."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
