"""Memory that the C library keeps of what was freed."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def trim_heap() -> None:
    """Gives freed memory back to the system, where the C library is glibc.

    Threads allocate from several arenas of their own. What decoders and encoders have freed stays in them, and does not
    serve a thread of another arena: with each connection and each run that comes and goes the process grows.
    """
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
