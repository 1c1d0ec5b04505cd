"""Simulates decoders that share a file: in virtual time for their speed, in threads for deadlocks and errors."""

import heapq
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from segmentation.stages.decode.chunk_queue import ChunkQueue
from segmentation.stages.decode.chunks import Chunk

BEGIN = 5  # frames' time that a decoder takes to begin a chunk
SPEED = 1.1  # of the thread that takes the batches, in speeds of all decoders together


def chunk_of(length: int) -> Chunk:
    chunk = Chunk(None, threading.Event())
    chunk.length = length
    return chunk


class Simulation:
    """Decoders on a real queue, in virtual time: a unit is the time for one frame, give or take a tenth."""

    def __init__(self, lengths: list[int], decoders: int, most: int, size: int = 16, seed: int = 0) -> None:
        self.queue = ChunkQueue(most, size, decoders)
        self.time = 0.0
        self.most_held = 0
        self._size = size
        self._held = 0
        self._random = random.Random(seed)
        self._chunks = [chunk_of(length) for length in lengths]
        self._unread = iter(self._chunks)
        self._waiting: list[tuple[Chunk, Iterator[Any]]] = []
        self._events: list[tuple[float, int, Iterator[Any]]] = []
        self._numbers = count()
        self.queue.open(next(self._unread))
        for work in [*(self._decoder() for _ in range(decoders)), self._taker(SPEED * decoders)]:
            self._go_on(work)
        alone = sum(lengths) + BEGIN * len(lengths)  # one decoder's time
        while self._events:
            self.time, _, work = heapq.heappop(self._events)
            assert self.time < 2 * alone, "stuck"
            self._go_on(work)
            self._admit()

    def _go_on(self, work: Iterator[Any]) -> None:
        """Runs a decoder or the taker until it waits, for time to pass or for room."""
        match next(work, None):
            case float() as duration:
                heapq.heappush(self._events, (self.time + duration, next(self._numbers), work))
            case Chunk() as chunk:
                self._waiting.append((chunk, work))

    def _admit(self) -> None:
        self._random.shuffle(self._waiting)
        while (free := next((w for w in self._waiting if self.queue.has_room(w[0])), None)) is not None:
            self._waiting.remove(free)
            self._held += 1
            self.most_held = max(self.most_held, self._held)
            self._go_on(free[1])

    def _decoder(self) -> Iterator[Any]:
        while (chunk := self.queue.next_chunk()) is not None:
            self.queue.open(next(self._unread, None))
            yield float(BEGIN)
            pace = self._random.uniform(0.9, 1.1)
            for made in range(0, chunk.length, self._size):
                yield chunk
                self.queue.admit(chunk)
                frames = min(self._size, chunk.length - made)
                yield frames * pace * self._random.uniform(0.9, 1.1)
                self.queue.put(chunk, frames)
            self.queue.finish(chunk, None, 0)

    def _taker(self, speed: float) -> Iterator[Any]:
        batches, coming = iter(self.queue), deque(self._chunks)
        while coming:
            if coming[0].decoded:
                next(batches)
                self._held -= 1
                yield self._size / speed
            elif coming[0].done:
                coming.popleft()
            else:
                yield 0.5  # looks again


def share(length: int, decoders: int, most: int, size: int) -> float:
    """Returns the part of the decoders' time in which they decode, beginning and end apart."""
    chunks = 10_000 // length
    few, many = (Simulation([length] * n, decoders, most, size).time for n in (chunks, 4 * chunks))
    return 3 * chunks * (length + BEGIN) / decoders / (many - few)


@pytest.mark.parametrize(
    ("length", "decoders", "most", "size", "least"),
    [
        (24, 7, 50, 16, 0.98),
        (30, 7, 50, 16, 0.98),
        (30, 7, 12, 16, 0.98),  # as of 4K
        (60, 7, 20, 16, 0.96),
        (250, 7, 50, 16, 0.9),  # 750 frames in step and seven halves of a batch would be 50.4
        (250, 7, 60, 16, 0.95),
        (250, 7, 200, 4, 0.9),
        (250, 7, 800, 1, 0.9),
        (250, 4, 50, 16, 0.95),
        (250, 8, 70, 16, 0.95),
        (250, 2, 12, 16, 0.9),
        (250, 1, 50, 16, 0.95),
        (250, 7, 40, 16, 0.73),  # from here on the room is what limits
        (250, 7, 12, 16, 0.3),
        (600, 7, 50, 16, 0.45),
        (2_000, 7, 50, 16, 0.21),
    ],
)
def test_decoders_are_kept_at_work(length: int, decoders: int, most: int, size: int, least: float) -> None:
    """If each took all free room, chunks of 250 would come to 0.78, 0.48, 0.19 in 50, 40 and 12 batches of 16."""
    assert share(length, decoders, most, size) >= least


@pytest.mark.parametrize(("length", "most_held"), [(24, 22), (30, 24), (60, 40), (250, 50)])
def test_short_chunks_do_not_fill_the_room(length: int, most_held: int) -> None:
    """Decoders far ahead of their turn would only hold memory."""
    assert Simulation([length] * (20_000 // length), 7, 50).most_held <= most_held + 2


def test_decoders_that_begin_together_are_soon_in_step() -> None:
    """Of ten chunks, the first comes out at one decoder's speed, the others at seven times that."""
    in_step = (250 + BEGIN) * (1 + 9 / 7)
    assert Simulation([250] * 10, 7, 54).time < 1.15 * in_step


def test_short_chunks_beside_long_ones_use_the_room() -> None:
    lengths = random.Random(0).choices([30, 250], k=100)
    busy = sum(length + BEGIN for length in lengths) / 7
    assert Simulation(lengths, 7, 50).time < busy / 0.7


@pytest.mark.parametrize("seed", range(60))
def test_the_room_is_kept_and_no_decoder_gets_stuck(seed: int) -> None:
    choice = random.Random(seed)
    lengths = [choice.choice([1, 5, 24, 30, 250, 900]) for _ in range(choice.randrange(1, 40))]
    most = choice.choice([0, 1, 2, 3, 12, 50])
    simulation = Simulation(lengths, choice.randrange(1, 9), most, choice.choice([1, 4, 16]), seed)
    assert simulation.most_held <= most + 2


@pytest.mark.parametrize("seed", range(10))
def test_threads_give_every_batch_in_order(seed: int) -> None:
    choice = random.Random(seed)
    chunks = [chunk_of(choice.randrange(1, 40)) for _ in range(60)]
    decoders = choice.randrange(1, 9)
    queue = ChunkQueue(choice.choice([0, 1, 3, 12, 50]), 1, decoders)

    def read() -> None:
        for chunk in [*chunks, None]:
            queue.open(chunk)

    def work() -> None:
        while (chunk := queue.next_chunk()) is not None:
            for index in range(chunk.length):
                queue.admit(chunk)
                queue.put(chunk, (chunk, index))
            time.sleep(0.001)  # meanwhile its last batch may be taken
            queue.finish(chunk, None, 1)

    threads = started(read, *[work] * decoders)
    alarm = threading.Timer(10, queue.fail, [TimeoutError("stuck")])
    alarm.start()
    assert list(queue) == [(chunk, index) for chunk in chunks for index in range(chunk.length)]
    alarm.cancel()
    joined(threads)
    assert queue.lost == len(chunks)


def test_closing_ends_all_waiting_and_an_error_comes_out_where_batches_are_taken() -> None:
    queue = ChunkQueue(1, 1, 2)
    first, second = chunk_of(2), chunk_of(2)
    queue.open(first)
    assert queue.next_chunk() is first
    queue.admit(first)
    queue.open(second)
    assert queue.next_chunk() is second

    assert queue.next_chunk(wait=False) is None

    def read() -> None:
        for _ in range(3):
            queue.open(chunk_of(1))

    threads = started(lambda: queue.admit(second), read)
    time.sleep(0.05)
    assert all(thread.is_alive() for thread in threads)
    queue.fail(ValueError("broken"))
    joined(threads)
    with pytest.raises(ValueError, match="broken"):
        next(iter(queue))


def started(*works: Callable[[], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    return threads


def joined(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(240)
        assert not thread.is_alive()
