"""Hands chunks to several decoders and returns their batches in presentation order, within a memory budget."""

import threading
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Generic

from segmentation.stages.decode.chunks import BatchT, Chunk

_AHEAD = 3  # chunks that wait for a decoder: when the third one begins, the first one has been read to its end
_RESERVE = 2  # batches that the chunk whose turn it is may have waiting, however many the others hold
_SLACK = 2.5  # times the batches that decoders in step hold; in simulations 1.5 suffices


class ChunkQueue(Generic[BatchT]):
    """Holds chunks until a decoder takes them, and decoded batches until it is their chunk's turn.

    One thread opens chunks, several decode them, and one iterates over the batches.
    """

    def __init__(self, most: int, size: int, decoders: int) -> None:
        """Makes a queue for so many decoders, with batches of `size` frames, at most `most` of them held at once."""
        self.lost = 0  # frames missing at the ends of chunks that have been given out
        self.passed: int | None = None  # the pts of the last frame that such chunks left out before the wanted stretch
        self.closed = threading.Event()
        self._most = most
        self._size = size
        self._decoders = decoders
        self._held = 0  # batches that are being filled or wait
        self._limit = 0.0  # for `_held`: `_most`, or less if less suffices
        self._at_once = 0.0  # decoders that can be at work all the time within `_limit`
        self._new: deque[Chunk[BatchT]] = deque()  # chunks that no decoder has taken
        self._order: deque[Chunk[BatchT]] = deque()  # chunks that are not given out; it is the first one's turn
        self._all_read = False
        self._error: BaseException | None = None
        lock = self._lock = threading.Lock()
        self._chunks = threading.Condition(lock)  # there may be a chunk to take
        self._taken = threading.Condition(lock)  # a chunk was taken
        self._next = threading.Condition(lock)  # there is a batch to take, or none to wait for
        # Of each decoder that waits for room. To wake all at each batch would make each wait for the GIL in vain.
        self._gates: dict[Chunk[BatchT], threading.Condition] = {}

    def open(self, chunk: Chunk[BatchT] | None) -> None:
        """Adds a chunk at the end; `None` says that no more come. Waits while `_AHEAD` or more wait for a decoder."""
        with self._chunks:
            if chunk is None:
                self._all_read = True
                self._next.notify()
                self._chunks.notify_all()
            else:
                self._measure()
                self._new.append(chunk)
                self._order.append(chunk)
                self._chunks.notify()  # waking all would make each wait for the GIL in vain
            self._taken.wait_for(lambda: len(self._new) < _AHEAD or self.closed.is_set())

    def _measure(self) -> None:
        """Computes how many batches may be held, and how many decoders that keeps at work, from the longest chunk here.

        N decoders in step are each 1/N of a chunk behind the one before. When a turn begins, they have decoded
        (N - 1) / 2 chunks, and have begun half a batch each besides: length * (N - 1) / 2 + N / 2 batches. `_SLACK`
        times as many make up for delays that bring decoders out of step. More would only fill memory.
        """
        longest = max((chunk.length for chunk in self._order), default=0) / self._size
        in_step = longest * (self._decoders - 1) / 2 + self._decoders / 2
        self._limit = min(self._most, max(_RESERVE, _SLACK * in_step))
        self._at_once = (longest + 2 * self._limit) / (longest + 1)

    def next_chunk(self, *, wait: bool = True) -> Chunk[BatchT] | None:
        """Returns the next chunk for a decoder; `None` after the last one, and without `wait` while there is none."""
        with self._chunks:
            if wait:
                self._chunks.wait_for(lambda: self._new or self._all_read or self.closed.is_set())
            chunk = self._new.popleft() if self._new and not self.closed.is_set() else None
            self._taken.notify()
            return chunk

    def admit(self, chunk: Chunk[BatchT]) -> None:
        """Waits until there is room for one more batch of this chunk, and takes that room."""
        with self._lock:
            if self.closed.is_set() or self.has_room(chunk):
                self._let_in(chunk)
            else:
                gate = self._gates[chunk] = threading.Condition(self._lock)
                gate.wait_for(lambda: chunk not in self._gates)

    def _let_in(self, chunk: Chunk[BatchT]) -> None:
        self._held += 1
        chunk.begun += 1

    def _open_gates(self) -> None:
        """Lets those chunks in that wait and have room, the nearest ones first."""
        for chunk in [one for one in self._order if one in self._gates]:
            if self.closed.is_set() or self.has_room(chunk):
                self._let_in(chunk)
                self._gates.pop(chunk).notify()

    def has_room(self, chunk: Chunk[BatchT]) -> bool:
        """Returns whether one more batch of this chunk may be begun.

        Batches leave as fast as N decoders fill them. So a chunk's last batch is ready in time if the chunk's remaining
        work is 1/N of all batches that leave until then. A chunk with more remaining work may go on. A chunk that is
        ahead rests, unless there is room beside all batches that nearer chunks should have when the next turn begins.
        Decoders that begin together are thus soon in step, each 1/N of a chunk behind the one before, which keeps all
        at work in the least memory. Without the rule, chunks that are needed last would fill the memory.
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
            due = length - ahead / self._at_once  # batches that it should have when the next turn begins
            if other is chunk:
                break
            kept += max(0.0, due - other.begun)
        rest = first.length / self._size - first.begun + len(first.decoded)  # of this turn
        return chunk.begun <= due - rest / self._at_once or self._held + kept < self._limit

    def put(self, chunk: Chunk[BatchT], batch: BatchT) -> None:
        """Adds a batch for which `admit` has taken room."""
        with self._next:
            chunk.decoded.append(batch)
            if self._ready():
                self._next.notify()

    def finish(self, chunk: Chunk[BatchT], batch: BatchT | None, lost: int) -> None:
        """Adds the last batch of a chunk, if there is one. `lost` frames are missing after that batch."""
        with self._next:
            if batch is not None:
                chunk.decoded.append(batch)
            chunk.done = True
            chunk.lost = lost
            self._pass_on()
            if self._ready():
                self._next.notify()

    def fail(self, error: BaseException) -> None:
        """Closes the queue. The thread that iterates over the batches raises the first error."""
        self._error = self._error or error
        self.close()

    def close(self) -> None:
        """Ends all waiting, in all threads."""
        with self._next:
            self.closed.set()
            self._open_gates()
            for changed in (self._chunks, self._taken, self._next):
                changed.notify_all()

    def __iter__(self) -> Iterator[BatchT]:
        """Yields the batches in presentation order. Raises the error given to `fail`."""
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
        """Returns whether there is a batch to take, or none to wait for."""
        if self.closed.is_set() or (self._all_read and not self._order):
            return True
        return bool(self._order) and bool(self._order[0].decoded)

    def _pass_on(self) -> None:
        """Ends the turns of chunks whose batches have all been taken."""
        while self._order and self._order[0].done and not self._order[0].decoded:
            chunk = self._order.popleft()
            self.lost += chunk.lost
            self.passed = self.passed if chunk.passed is None else chunk.passed
        self._open_gates()
