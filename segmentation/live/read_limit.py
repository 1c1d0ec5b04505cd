"""Ends reads of live sources that last too long.

PyAV has a limit of its own, for which it takes the GIL whenever FFmpeg asks whether to go on: some eighty times for a
picture of 1080p that comes over RTSP. So that limit is off here, and a thread turns it on where a read has lasted too
long. PyAV has no method for it: the limit is found in the container's memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import Structure, c_double
from functools import cache
from io import BytesIO

import av
from av.container import InputContainer

_OFF = -1.0  # of a limit: none
_POLL = 0.1  # seconds between looks at the reads, as often as FFmpeg asks whether to go on while nothing comes


class _Limit(Structure):
    """PyAV's `timeout_info`."""

    begin: float  # of the read that is under way, on the monotonic clock
    seconds: float  # that it may last, or `_OFF`

    _fields_ = (("begin", c_double), ("seconds", c_double))


@contextmanager
def read_limit(container: InputContainer, seconds: float) -> Iterator[None]:
    """Ends each read of a container that was opened within `limits` after so many seconds: `ExitError` is raised."""
    place = _place()
    if place is None:  # the container has PyAV's limit
        yield
        return
    limit = _Limit.from_address(id(container) + place)
    _watch.begin(limit, seconds)
    try:
        yield
    finally:
        _watch.end(limit)


def limits(seconds: float) -> tuple[float, float | None]:
    """Returns PyAV's limits, of opening and of a read, of a container that gets a `read_limit`."""
    return seconds, seconds if _place() is None else None


class _ReadWatch:
    """Looks at all reads on one thread, which ends with the last of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limits: dict[int, tuple[_Limit, float]] = {}
        self._thread: threading.Thread | None = None

    def begin(self, limit: _Limit, seconds: float) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="segmentation-read-limits", daemon=True)
                thread.start()  # may fail, and then nothing is kept of a container that goes
                self._thread = thread
            self._limits[id(limit)] = limit, seconds

    def end(self, limit: _Limit) -> None:
        with self._lock:
            del self._limits[id(limit)]

    def _work(self) -> None:
        while True:
            time.sleep(_POLL)
            with self._lock:
                if not self._limits:
                    self._thread = None
                    return
                now = time.monotonic()
                for limit, seconds in self._limits.values():
                    limit.seconds = seconds if now > limit.begin + seconds else _OFF


_watch = _ReadWatch()


@cache
def _place() -> int | None:
    """Returns where a container has its limit, in bytes; `None` where this PyAV has none that is known."""
    begin = time.monotonic()
    with av.open(BytesIO(bytes(64)), "r", format="u8", timeout=(60.0, None)) as container:
        end = time.monotonic()
        places = range(0, type(container).__basicsize__ - 15, 8)
        found = [place for place in places if _is_limit(_Limit.from_address(id(container) + place), begin, end)]
    return found[0] if len(found) == 1 else None


def _is_limit(limit: _Limit, begin: float, end: float) -> bool:
    return begin <= limit.begin <= end and limit.seconds == _OFF
