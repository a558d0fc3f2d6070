"""One attempt: where it takes place, how it ends, and what must never happen.

An attempt ends in a result that is right or in a refusal that says why. A result that is wrong, an exception that is not
normscope's own, a file that a refused command left behind, and a call that takes a minute are `Fooled`.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from hypothesis import strategies as st

import normscope as ns

from . import samples

LONGEST = 180
"""Seconds that one attempt may take."""

Outcome = Literal["done", "refused"]
Draw = Callable[[st.SearchStrategy[Any]], Any]


class Fooled(AssertionError):
    """What must never happen."""


@dataclass
class World:
    """Where attempts take place, and what is loaded once for all of them."""

    samples: Path
    folder: Path
    analyzers: dict[str, ns.Analyzer] = field(default_factory=dict)

    def fresh(self) -> Path:
        """The folder as it was at the start."""
        os.chdir(self.samples)  # the folder that is removed may be the present one
        return samples.copy(self.samples, self.folder)

    def analyzer(self, name: str) -> ns.Analyzer:
        """A model of the samples."""
        if name not in self.analyzers:
            self.analyzers[name] = ns.load(self.samples / name)
        return self.analyzers[name]


@contextmanager
def limited(what: str) -> Generator[None]:
    """A block that may not take longer than that."""

    def too_long(_: int, __: FrameType | None) -> None:
        raise Fooled(f"{what} takes longer than {LONGEST} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def standard_input(text: str) -> Generator[None]:
    """A block that reads this text where it reads standard input."""
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()))
    try:
        yield
    finally:
        sys.stdin = before


def attempt(what: str, call: Callable[[], Any]) -> tuple[Outcome, Any]:
    """Call, and tell a result from a refusal; everything else is `Fooled`."""
    try:
        with limited(what):
            return "done", call()
    except ns.CompletenessError as error:
        raise Fooled(f"{what}: an honest model fails its proof: {error}") from error
    except ns.NormscopeError as error:
        if len(str(error)) < 10:
            raise Fooled(f"{what}: {error!r} says nothing") from error
        return "refused", error
    except Fooled:
        raise
    except Exception as error:
        raise Fooled(f"{what}: {type(error).__name__}: {error}") from error


def damage(draw: Draw, path: Path) -> str:
    """Damage a file, and say how."""
    content = bytearray(path.read_bytes())
    kind = draw(st.sampled_from(["flip", "flip", "cut", "remove", "empty", "zeros"]))
    place = draw(st.integers(0, max(0, len(content) - 1)))
    if kind == "remove":
        path.unlink()
        return "removed"
    if kind == "flip" and content:
        content[place] ^= 1 << draw(st.integers(0, 7))
    elif kind == "cut":
        content = content[:place]
    elif kind == "empty":
        content = bytearray()
    else:
        content[place : place + 64] = bytes(len(content[place : place + 64]))
    path.write_bytes(content)
    return f"{kind} at byte {place}"
