"""The order in which several decoders of one file give out what they decode."""

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

from segmentation.decode.packets import Run

_SPREAD = 10  # runs over which the room falls to nothing
_RESERVE = 2  # batches that the run whose turn it is may have waiting, however much the others hold


class Line:
    """Where runs wait for decoders, and their batches for their turn."""

    def __init__(self, most: int) -> None:
        self.lost = 0  # frames that did not come out of their packets
        self.closed = threading.Event()
        self._most = most  # batches that may be in the making or waiting
        self._held = 0
        self._new: deque[Run] = deque()  # not begun
        self._order: deque[Run] = deque()  # not given out; it is the first one's turn
        self._all_read = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def open(self, run: Run | None) -> None:
        """Adds a run at the end; `None`: no more. Waits until at most one other waits for a decoder."""
        with self._changed:
            if run is None:
                self._all_read = True
            else:
                self._new.append(run)
                self._order.append(run)
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(self._new) < 2 or self.closed.is_set())

    def next_run(self) -> Run | None:
        """The next run for a decoder; `None` when there are no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._new or self._all_read or self.closed.is_set())
            run = self._new.popleft() if self._new and not self.closed.is_set() else None
            self._changed.notify_all()
            return run

    def admit(self, run: Run) -> None:
        """Waits until there is room for one more batch of this run.

        The further off its turn is, the less of the room it may have: so long runs finish one after the other, in the
        order in which they are needed, instead of all stopping half done.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._has_room(run) or self.closed.is_set())
            self._held += 1

    def _has_room(self, run: Run) -> bool:
        distance = self._order.index(run)
        if distance == 0 and len(run.decoded) < _RESERVE:
            return True
        return self._held < self._most * (1 - max(0, distance - 1) / _SPREAD)

    def put(self, run: Run, batch: Any) -> None:
        """Takes a batch that was admitted."""
        with self._changed:
            run.decoded.append(batch)
            self._changed.notify_all()

    def finish(self, run: Run, batch: Any, lost: int) -> None:
        """Takes the last batch of a run, or `None`."""
        with self._changed:
            if batch is not None:
                run.decoded.append(batch)
            run.done = True
            self.lost += lost
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Ends all; who takes batches gets the error."""
        self._error = self._error or error
        self.close()

    def close(self) -> None:
        with self._changed:
            self.closed.set()
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Any]:
        while True:
            with self._changed:
                self._changed.wait_for(self._ready)
                if self._error is not None:
                    raise self._error
                if self.closed.is_set() or not self._order:
                    return
                run = self._order[0]
                batch = run.decoded.popleft() if run.decoded else None
                if batch is None:
                    self._order.popleft()  # it was the last one's turn
                else:
                    self._held -= 1
                self._changed.notify_all()
            if batch is not None:
                yield batch

    def _ready(self) -> bool:
        if self.closed.is_set() or (self._all_read and not self._order):
            return True
        return bool(self._order) and (bool(self._order[0].decoded) or self._order[0].done)
