"""Inputs under way at a time: those of the command line, and those of `Streams`."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from segmentation.errors import ConfigError
from segmentation.flow.threads import interrupt
from segmentation.frames.source import Source

E = TypeVar("E")


@dataclass(frozen=True, slots=True, eq=False)
class InputThread:
    """One input under way."""

    source: Source
    thread: threading.Thread
    stop: threading.Event  # ends it with complete files
    begin: float = field(default_factory=time.monotonic)  # seconds


class InputThreads(Generic[E]):
    """Gives each input a thread, whose result is an event. Other threads can be interrupted, whatever it does."""

    def __init__(self) -> None:
        self._under_way: dict[threading.Thread, InputThread] = {}
        self._interrupted: list[threading.Thread] = []
        # No `SimpleQueue`: a signal at the end of its timeout makes it wait for an item (Python 3.11).
        self._events: queue.Queue[E | BaseException] = queue.Queue()
        self._lock = threading.Lock()

    def begin(self, source: Source, work: Callable[[threading.Event], E]) -> None:
        """Begins `work` of an input, which returns early once its argument is set.

        Raises `RuntimeError` where no thread can be started.
        """
        stop = threading.Event()

        def run() -> None:
            try:
                event: E | BaseException = work(stop)
            except BaseException as exc:  # raised again by `next`
                event = exc
            with self._lock:
                if self._under_way.pop(thread, None) is not None:  # else it was interrupted
                    self._events.put(event)

        # A daemon: one that is stuck in a library does not keep the process from its end.
        thread = threading.Thread(target=run, name=f"segmentation-{source.label}", daemon=True)
        with self._lock:
            thread.start()
            self._under_way[thread] = InputThread(source, thread, stop)

    def put(self, event: E) -> None:
        """Adds an event of an input that goes on."""
        self._events.put(event)

    def next(self, timeout: float | None = None) -> E | None:
        """Returns the next event, or `None` if none comes within `timeout` seconds.

        Raises an exception that `work` has raised. A function, not a part of a loop: a signal at a `continue` within
        `except` passes by the `finally` around it (Python 3.11).
        """
        try:
            event = self._events.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(event, BaseException):
            raise event
        return event

    @property
    def under_way(self) -> list[InputThread]:
        """All inputs that have not ended."""
        with self._lock:
            return list(self._under_way.values())

    def __len__(self) -> int:
        """Returns how many inputs are under way, and how many events nobody has taken yet. With 0, none comes."""
        with self._lock:
            return len(self._under_way) + self._events.qsize()

    @property
    def stuck(self) -> bool:
        """Whether a thread still runs though it was interrupted. It may hold a lock that closing the session needs."""
        return any(thread.is_alive() for thread in self._interrupted)

    def named(self, name: str) -> list[InputThread]:
        """Returns the live sources of this name. Raises `ConfigError` if none is under way."""
        found = [one for one in self.under_way if one.source.is_live and one.source.label == name]
        if not found:
            raise ConfigError(f"{name}: no such stream is under way")
        return found

    def stop(self) -> list[InputThread]:
        """Lets all inputs end with complete files; returns them."""
        for one in (all := self.under_way):
            one.stop.set()
        return all

    def interrupt(self, limit: float = 0.0) -> list[InputThread]:
        """Ends inputs that have taken `limit` seconds, without events and files; returns them."""
        now = time.monotonic()
        with self._lock:
            late = [one for one in self._under_way.values() if now - one.begin >= limit]
            for one in late:
                del self._under_way[one.thread]
        threads = [one.thread for one in late]
        self._interrupted += threads
        interrupt(threads)
        return late
