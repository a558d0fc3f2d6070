"""Memory that an analysis has left free goes back to the system.

glibc keeps what large arrays leave behind: over many analyses of different lengths its heap grows by several times what is
in use, though nothing leaks. Other C libraries give memory back by themselves, or offer no way to ask for it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache


def give_back() -> None:
    """Give free memory back to the system, where the C library can."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # not glibc, or not even a Unix
        return None
