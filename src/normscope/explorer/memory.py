"""Memory that an analysis has left free goes back to the system.

What refers to itself in circles, as datasets do, is freed only when Python looks for such circles. And glibc keeps what
large arrays leave behind: over many analyses of different lengths its heap grows by several times what is in use, though
nothing leaks. Other C libraries give memory back by themselves, or offer no way to ask for it.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from functools import cache


def give_back() -> None:
    """Free what nothing refers to any more, and give it back to the system, where the C library can."""
    gc.collect()
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # not glibc, or not even a Unix
        return None
