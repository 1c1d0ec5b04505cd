"""Captures of CUDA graphs, and what they can't bear beside them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Quiet:
    """Keeps what would spoil the capture of a CUDA graph out of its way.

    Where another thread makes a decoder meanwhile, the capture fails, and the network would run many times slower.
    """

    def __init__(self) -> None:
        self._loud = 0
        self._changed = threading.Condition()

    @contextmanager
    def broken(self) -> Iterator[None]:
        """For what spoils captures: any number of threads at once, none while there is a capture."""
        self._add(1)
        try:
            yield
        finally:
            self._add(-1)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """For a capture."""
        with self._changed:
            self._changed.wait_for(lambda: not self._loud)
            yield

    def _add(self, change: int) -> None:
        with self._changed:
            self._loud += change
            self._changed.notify_all()


quiet = _Quiet()  # of the process: two runs may share a device
