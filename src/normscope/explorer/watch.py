"""Progress of an analysis that runs in another thread, and a way to stop it, both at the granularity of a layer.

Works by hooks on the model's own blocks, which are all gone when the block ends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from torch import nn

from normscope.analyzer import Analyzer
from normscope.capture import blocks_of


class Cancelled(Exception):
    """The analysis was given up because nobody wants it any more."""


@contextmanager
def watched(analyzer: Analyzer, tell: Callable[[int, int], None], cancelled: Callable[[], bool]) -> Generator[None]:
    """Tell how many of the model's blocks have begun, of how many; raise `Cancelled` from inside it when asked to."""
    stacks = [stack for stack in (analyzer.family.encoder, analyzer.family.stack) if stack is not None]
    blocks = list({id(block): block for stack in stacks for block in blocks_of(analyzer.model, stack)}.values())
    begun: set[int] = set()

    def begins(block: nn.Module, *_: object) -> None:
        if cancelled():
            raise Cancelled
        begun.add(id(block))
        tell(len(begun), len(blocks))

    handles = [block.register_forward_pre_hook(begins) for block in blocks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
