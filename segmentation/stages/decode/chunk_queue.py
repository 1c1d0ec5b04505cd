"""The order in which several decoders of one file give out what they decode."""

import threading
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from segmentation.stages.decode.chunks import Chunk

_AHEAD = 3  # chunks that wait for a decoder: when the third one begins, the first one has been read to its end
_RESERVE = 2  # batches that the chunk whose turn it is may have waiting, however much the others hold
_SLACK = 2.5  # times what decoders in step hold; in simulations 1.5 is enough


class ChunkQueue:
    """Where chunks wait for decoders, and their batches for their turn."""

    def __init__(self, most: int, size: int, decoders: int) -> None:
        self.lost = 0  # frames that were to come after the last ones of chunks that have been given out
        self.passed: int | None = None  # the pts of the last frame that such chunks left out before the wanted stretch
        self.closed = threading.Event()
        self._most = most  # batches that may be in the making or waiting, if they are of use
        self._size = size  # frames in a batch
        self._decoders = decoders
        self._held = 0
        self._limit = 0.0  # batches that may be in the making or waiting
        self._at_once = 0.0  # decoders that can be at work all the time within that
        self._new: deque[Chunk] = deque()  # not begun
        self._order: deque[Chunk] = deque()  # not given out; it is the first one's turn
        self._all_read = False
        self._error: BaseException | None = None
        lock = threading.Lock()
        self._chunks = threading.Condition(lock)  # there are more, or fewer, that wait for a decoder
        self._room = threading.Condition(lock)  # batches were taken
        self._next = threading.Condition(lock)  # there may be a batch to take

    def open(self, chunk: Chunk | None) -> None:
        """Adds a chunk at the end; `None`: no more. Waits while `_AHEAD` or more wait for a decoder."""
        with self._chunks:
            if chunk is None:
                self._all_read = True
                self._next.notify()
            else:
                self._measure()
                self._new.append(chunk)
                self._order.append(chunk)
            self._chunks.notify_all()
            self._chunks.wait_for(lambda: len(self._new) < _AHEAD or self.closed.is_set())

    def _measure(self) -> None:
        """Sets how much is held, and how many decoders that keeps at work, by the longest of the chunks that are here.

        N decoders in step, each 1/N of a chunk behind the one before, have decoded (N - 1) / 2 chunks when a turn begins,
        and begun half a batch each besides: that is length * (N - 1) / 2 + N / 2 batches. `_SLACK` times as much makes
        up for what keeps them out of step; more than that would only fill memory.
        """
        longest = max((chunk.length for chunk in self._order), default=0) / self._size
        in_step = longest * (self._decoders - 1) / 2 + self._decoders / 2
        self._limit = min(self._most, max(_RESERVE, _SLACK * in_step))
        self._at_once = (longest + 2 * self._limit) / (longest + 1)

    def next_chunk(self, *, wait: bool = True) -> Chunk | None:
        """The next chunk for a decoder; `None` when there are no more, or unless it may wait when there is none yet."""
        with self._chunks:
            if wait:
                self._chunks.wait_for(lambda: self._new or self._all_read or self.closed.is_set())
            chunk = self._new.popleft() if self._new and not self.closed.is_set() else None
            self._chunks.notify_all()
            return chunk

    def admit(self, chunk: Chunk) -> None:
        """Waits until there is room for one more batch of this chunk."""
        with self._room:
            self._room.wait_for(lambda: self.has_room(chunk) or self.closed.is_set())
            self._held += 1
            chunk.begun += 1

    def has_room(self, chunk: Chunk) -> bool:
        """Whether one more batch of this chunk may be begun.

        While batches leave as fast as N decoders make them, a chunk can have its last one ready in time if what it has
        left to make is 1/N of what is to leave until then. A chunk that has more left may go on. One that is ahead rests,
        unless there is room beside all that nearer chunks should have when the next turn begins. So decoders that begin
        together are soon in step, each 1/N of a chunk behind the one before, which is how all work in the least memory.
        If each took what room there is, chunks that are needed last would fill it while those that are next wait.
        """
        first = self._order[0]
        if chunk is first and len(chunk.decoded) < _RESERVE:
            return True
        if chunk is first or self._held >= self._limit:
            return self._held < self._limit
        ahead = 0.0  # batches that leave from the next turn on
        kept = self._at_once / 2  # room for nearer chunks, and for batches that are half full
        for other in islice(self._order, 1, None):
            length = other.length / self._size
            ahead += length
            due = length - ahead / self._at_once  # what it should have when the next turn begins
            if other is chunk:
                break
            kept += max(0.0, due - other.begun)
        rest = first.length / self._size - first.begun + len(first.decoded)  # of this turn
        return chunk.begun <= due - rest / self._at_once or self._held + kept < self._limit

    def put(self, chunk: Chunk, batch: Any) -> None:
        """Takes a batch that was admitted."""
        with self._next:
            chunk.decoded.append(batch)
            self._next.notify()

    def finish(self, chunk: Chunk, batch: Any, lost: int) -> None:
        """Takes the last batch of a chunk, or `None`; `lost` frames were to come after it."""
        with self._next:
            if batch is not None:
                chunk.decoded.append(batch)
            chunk.done = True
            chunk.lost = lost
            self._pass_on()
            self._next.notify()

    def fail(self, error: BaseException) -> None:
        """Ends all; who takes batches gets the error."""
        self._error = self._error or error
        self.close()

    def close(self) -> None:
        with self._next:
            self.closed.set()
            for changed in (self._chunks, self._room, self._next):
                changed.notify_all()

    def __iter__(self) -> Iterator[Any]:
        while True:
            with self._next:
                self._next.wait_for(self._ready)
                if self._error is not None:
                    raise self._error
                if self.closed.is_set() or not self._order:
                    return
                batch = self._order[0].decoded.popleft()
                self._held -= 1
                self._pass_on()
            yield batch

    def _ready(self) -> bool:
        if self.closed.is_set() or (self._all_read and not self._order):
            return True
        return bool(self._order) and bool(self._order[0].decoded)

    def _pass_on(self) -> None:
        """Ends the turns of chunks that have nothing left to give."""
        while self._order and self._order[0].done and not self._order[0].decoded:
            chunk = self._order.popleft()
            self.lost += chunk.lost
            self.passed = self.passed if chunk.passed is None else chunk.passed
        self._room.notify_all()
