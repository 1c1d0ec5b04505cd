"""Threads of the command line: several inputs at a time."""

import ctypes
import queue
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_POLL = 0.1  # seconds: a signal that reaches another thread than the main one is seen this late
_PATIENCE = 3.0  # seconds for interrupted threads to remove their files


def in_threads(
    function: Callable[[T], R], items: Sequence[T], count: int, stop: threading.Event
) -> Generator[R, None, None]:
    """Yields `function` of each item as it comes, on up to `count` threads; begins no item once `stop` is set.

    An exception of `function`, or one in the consuming thread such as KeyboardInterrupt, interrupts all threads. Close
    the iterator for the latter.
    """
    results: queue.SimpleQueue[R] = queue.SimpleQueue()
    failures: list[BaseException] = []
    waiting: queue.SimpleQueue[T] = queue.SimpleQueue()
    for item in items:
        waiting.put(item)

    def work() -> None:
        try:
            while not stop.is_set():
                results.put(function(waiting.get_nowait()))
        except queue.Empty:
            pass
        except BaseException as exc:  # raised again by the consumer
            failures.append(exc)

    # Daemons: one that is stuck in a library does not keep the process from its end.
    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(count, len(items)))]
    for thread in threads:
        thread.start()
    try:
        while not failures and (any(thread.is_alive() for thread in threads) or not results.empty()):
            yield from _arrived(results)
        if failures:
            raise failures[0]
    finally:
        _interrupt(threads)


def _arrived(results: "queue.SimpleQueue[R]") -> list[R]:
    """Returns the next result, or none after a while.

    Apart from the loop: a signal at a `continue` within `except` passes by the `finally` around it (Python 3.11).
    """
    try:
        return [results.get(timeout=_POLL)]
    except queue.Empty:
        return []


def _interrupt(threads: Sequence[threading.Thread]) -> None:
    """Raises KeyboardInterrupt in the threads that still run, as a signal does in the main thread, and waits a bit."""
    for thread in threads:
        if thread.is_alive() and thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt)
            )
    deadline = time.monotonic() + _PATIENCE
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
