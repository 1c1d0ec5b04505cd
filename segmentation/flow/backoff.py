"""Makes a lost connection again, on a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

import av.error

from segmentation.errors import one_line

log = logging.getLogger(__name__)

T = TypeVar("T")


class Reconnection(Generic[T]):
    """Tries until a connection is made. Each pause before an attempt is twice the one before, up to the longest."""

    def __init__(self, connect: Callable[[], T], pauses: tuple[float, float]) -> None:
        """`pauses` in seconds, the first and the longest.

        `connect` raises `OSError`, `ValueError` or an error of FFmpeg's where there is nothing to connect to.
        """
        self._connect, self._pauses = connect, pauses
        self._made: list[T] = []  # one, once it is made
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="segmentation-reconnection", daemon=True)
        self._thread.start()

    def result(self) -> T | None:
        """Returns the connection if it is made by now. It belongs to the caller from then on."""
        with suppress(IndexError):
            return self._made.pop()
        return None

    def close(self, dispose: Callable[[T], None]) -> None:
        """Ends the attempts, without waiting for one that is under way. `dispose` is called with what it makes."""
        self._dispose = dispose
        self._closed.set()
        self._thread.join(0.2)
        self._dispose_of_result()

    def _dispose_of_result(self) -> None:
        if (made := self.result()) is not None:
            self._dispose(made)

    def _work(self) -> None:
        pause, longest = self._pauses
        while not self._closed.wait(pause):
            try:
                self._made.append(self._connect())
                if self._closed.is_set():
                    self._dispose_of_result()
                return
            except (av.error.FFmpegError, OSError, ValueError) as exc:
                log.info("can't be connected to again (%s)", one_line(exc))
                pause = min(2 * pause, longest)
