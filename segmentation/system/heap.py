"""Memory that the C library keeps of what was freed."""

from __future__ import annotations

import ctypes
from contextlib import suppress

_ARENA_MAX = -8  # M_ARENA_MAX of malloc.h


def trim_heap() -> None:
    """Gives freed memory back to the system, where the C library is glibc.

    Threads allocate from several arenas of their own. What decoders and encoders have freed stays in them, and does not
    serve a thread of another arena: with each connection and each run that comes and goes the process grows.
    """
    with suppress(AttributeError, OSError, TypeError):  # another C library, or Windows
        ctypes.CDLL(None).malloc_trim(0)


def limit_malloc_arenas(count: int) -> None:
    """Lets threads that start later share `count` arenas, where the C library is glibc: it makes up to eight a core.

    Pages that are free in part are not given back, and each arena keeps some of its own.
    """
    with suppress(AttributeError, OSError, TypeError):  # likewise
        ctypes.CDLL(None).mallopt(_ARENA_MAX, count)
