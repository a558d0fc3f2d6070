"""All targets, by name."""

from __future__ import annotations

from collections.abc import Callable

from .attempts import Draw, Outcome, World
from .calls import calls
from .commands import commands
from .corpora import corpora
from .damaged import files, models, runs

TARGETS: dict[str, Callable[[World, Draw], Outcome]] = {
    each.__name__: each for each in (commands, calls, files, models, corpora, runs)
}
