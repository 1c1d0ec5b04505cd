"""A readers-writer lock around CUDA graph capture.

Creating a decoder, or freeing memory, on another thread invalidates a running capture; the network would then run
without its graph, many times slower. The lock belongs to the process, because runs may share a device.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_changed = threading.Condition()
_unsafe_calls = 0


@contextmanager
def capture_unsafe() -> Iterator[None]:
    """Keeps captures from beginning. Any number of threads may be inside at once; all wait while a capture runs."""
    global _unsafe_calls
    with _changed:
        _unsafe_calls += 1
    try:
        yield
    finally:
        with _changed:
            _unsafe_calls -= 1
            _changed.notify_all()


@contextmanager
def capturing() -> Iterator[None]:
    """Waits until no thread is inside `capture_unsafe`, and keeps threads out of it while the capture runs."""
    with _changed:
        _changed.wait_for(lambda: not _unsafe_calls)
        yield
