"""Attempts at something that fails for a while: the pauses between them, and lost connections, made again."""

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


class Backoff:
    """Waits before each attempt. Each pause is twice the one before, up to the longest."""

    def __init__(self, pauses: tuple[float, float], stop: threading.Event) -> None:
        """`pauses` in seconds, the first and the longest. Setting `stop` ends a pause."""
        self._first, self._longest = pauses
        self._stop = stop
        self.restart()

    def restart(self) -> None:
        """Lets the next pause be the first again."""
        self._next = min(self._first, self._longest)

    def wait(self) -> bool:
        """Waits for the next pause. Returns false once `stop` is set, after which no attempt is wanted."""
        pause, self._next = self._next, min(2 * self._next, self._longest)
        return not self._stop.wait(pause)


class Reconnection(Generic[T]):
    """Tries until a connection is made, with a pause before each attempt, see `Backoff`."""

    def __init__(self, connect: Callable[[], T], pauses: tuple[float, float]) -> None:
        """`pauses` in seconds, the first and the longest.

        `connect` raises `OSError`, `ValueError` or an error of FFmpeg's where there is nothing to connect to.

        Raises `RuntimeError` where no thread can be started.
        """
        self._connect = connect
        self._made: list[T] = []  # one, once it is made
        self._closed = threading.Event()
        self._backoff = Backoff(pauses, self._closed)
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
        while self._backoff.wait():
            try:
                self._made.append(self._connect())
                if self._closed.is_set():
                    self._dispose_of_result()
                return
            except (av.error.FFmpegError, OSError, ValueError) as exc:
                log.info("can't be connected to again (%s)", one_line(exc))
