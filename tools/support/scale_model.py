"""A model of many GPUs that work on many videos: a discrete-event simulation, and its closed form where there is one.

The driver plans videos into pieces, workers take pieces from its queue, read and write through one shared storage, and
joiners make each video of its pieces. Driver, storage and joiners serve their requests in order of arrival.
"""

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random


@dataclass(frozen=True, kw_only=True)
class Design:
    """Seconds, bytes, and rates a second. What is not given takes no time."""

    gpus: int
    speed: float = 30.0  # seconds of video in a second of one GPU
    begin: float = 0.0  # of each video, on the worker
    start: float = 0.0  # of each worker
    piece: float = 20.0  # seconds of video in a piece
    bytes_in: float = 0.0  # of a second of video
    bytes_out: float = 0.0
    plan: float = 0.0  # seconds of the driver for a video
    plan_second: float = 0.0  # and for each second of that
    check: float = 0.0  # seconds of the driver for a piece: hash, journal, messages
    drivers: int = 1  # each with videos of its own
    joiners: int = 1
    join: float = math.inf  # bytes of the output that a joiner makes in a second
    storage: float = math.inf  # bytes that the storage reads and writes in a second, all together
    network: float = math.inf  # bytes that a worker moves in a second
    between_deaths: float = math.inf  # mean seconds of work of a worker
    restart: float = 0.0  # seconds from a worker's death until another one serves

    def gpu_seconds(self, lengths: Sequence[float]) -> float:
        """Returns the seconds of one GPU for videos of these lengths, without a death."""
        return sum(lengths) / self.speed + len(lengths) * self.begin

    def pieces(self, length: float) -> list[float]:
        """Returns the seconds of each piece of a video; all are as long."""
        count = max(1, round(length / self.piece))
        return [length / count] * count


@dataclass(kw_only=True)
class Found:
    """Figures of a simulated run."""

    seconds: float  # until the last video is joined
    pieces: int
    video_seconds: float
    steady: float  # seconds of video in a second, between the first and the last tenth of the pieces
    use: dict[str, float]  # of GPUs, driver, storage and joiners: the share of the time in which they were busy
    bytes_moved: float
    gpu_seconds: float  # in which GPUs worked, also on what was lost
    deaths: int

    @property
    def limit(self) -> str:
        """Returns which part is the busiest."""
        return max(self.use, key=lambda name: self.use[name])


@dataclass
class _Servers:
    """Several servers with one queue: requests are served in their order."""

    count: int
    busy: float = 0.0
    _free: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self._free = [0.0] * self.count

    def serve(self, now: float, seconds: float) -> float:
        """Returns when a request of this moment is done."""
        done = max(now, self._free[0]) + seconds
        heapq.heapreplace(self._free, done)
        self.busy += seconds
        return done


class Simulation:
    """One run of a design over videos, given by their lengths in seconds."""

    def __init__(self, design: Design, lengths: Sequence[float], seed: int = 1) -> None:
        self._design, self._dice = design, Random(seed)
        self._waiting = deque(enumerate(sorted(lengths, reverse=True)))  # videos that are not planned yet
        self._lengths = dict(self._waiting)
        self._left = {number: len(design.pieces(length)) for number, length in self._waiting}
        self._queue: deque[tuple[int, float, bool]] = deque()  # video, seconds, whether the video begins there
        self._idle: deque[int] = deque()  # workers
        self._driver, self._joiners = _Servers(design.drivers), _Servers(design.joiners)
        self._storage = _Servers(1)
        self._events: list[tuple[float, int, str, tuple[int, ...] | tuple[int, float, bool]]] = []
        self._number = self._planning = self._deaths = 0
        self._gpu_seconds = self._bytes = 0.0
        self._done: list[tuple[float, float]] = []  # when a piece was done, and its seconds of video

    def run(self) -> Found:
        """Runs until all videos are joined."""
        design, end = self._design, 0.0
        for worker in range(design.gpus):
            self._at(design.start, "free", (worker,))
        self._plan(0.0)
        while self._events:
            now, _, kind, what = heapq.heappop(self._events)
            end = now
            getattr(self, f"_{kind}")(now, *what)
        times = {"GPUs": self._gpu_seconds / design.gpus, "driver": self._driver.busy / design.drivers}
        times |= {"storage": self._storage.busy, "joiners": self._joiners.busy / design.joiners}
        return Found(
            seconds=end,
            pieces=len(self._done),
            video_seconds=sum(self._lengths.values()),
            steady=self._steady(),
            use={name: seconds / end for name, seconds in times.items()},
            bytes_moved=self._bytes,
            gpu_seconds=self._gpu_seconds,
            deaths=self._deaths,
        )

    def _steady(self) -> float:
        tenth = len(self._done) // 10
        part = sorted(self._done)[tenth : len(self._done) - tenth]
        return sum(length for _, length in part[1:]) / max(part[-1][0] - part[0][0], 1e-9) if len(part) > 1 else 0.0

    def _at(self, when: float, kind: str, what: tuple[int, ...] | tuple[int, float, bool]) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, kind, what))

    def _move(self, now: float, size: float) -> float:
        """Returns when so many bytes have gone through the storage and a worker's network."""
        self._bytes += size
        return max(self._storage.serve(now, size / self._design.storage), now + size / self._design.network)

    def _plan(self, now: float) -> None:
        """Has the driver plan further videos while few pieces wait."""
        wanted = 2 * self._design.gpus
        while self._waiting and len(self._queue) + self._planning < wanted:
            number, length = self._waiting.popleft()
            self._planning += self._left[number]
            done = self._driver.serve(now, self._design.plan + self._design.plan_second * length)
            self._at(done, "planned", (number,))

    def _planned(self, now: float, number: int) -> None:
        self._planning -= self._left[number]
        pieces = self._design.pieces(self._lengths[number])
        self._queue.extend((number, seconds, place == 0) for place, seconds in enumerate(pieces))
        while self._idle and self._queue:
            self._free(now, self._idle.popleft())

    def _free(self, now: float, worker: int) -> None:
        """A worker takes the next piece, and reads it while it works."""
        if not self._queue:
            self._idle.append(worker)
            self._plan(now)
            return
        piece = self._queue.popleft()
        _, seconds, begins = piece
        design = self._design
        work = seconds / design.speed + design.begin * begins
        alive = self._dice.expovariate(1 / design.between_deaths) if math.isfinite(design.between_deaths) else math.inf
        if alive < work:
            self._gpu_seconds += alive
            self._at(now + alive, "died", piece)
            self._at(now + alive + design.restart, "free", (worker,))
        else:
            self._gpu_seconds += work
            done = max(now + work, self._move(now, seconds * design.bytes_in))
            self._at(done, "worked", piece)
            self._at(done, "free", (worker,))
        self._plan(now)

    def _died(self, now: float, number: int, seconds: float, begins: bool) -> None:
        self._deaths += 1
        self._queue.appendleft((number, seconds, begins))
        if self._idle:
            self._free(now, self._idle.popleft())

    def _worked(self, now: float, number: int, seconds: float, begins: bool) -> None:
        """The piece is written while the worker goes on; then the driver checks it."""
        self._at(self._move(now, seconds * self._design.bytes_out), "written", (number, seconds, begins))

    def _written(self, now: float, number: int, seconds: float, begins: bool) -> None:
        self._at(self._driver.serve(now, self._design.check), "checked", (number, seconds, begins))

    def _checked(self, now: float, number: int, seconds: float, begins: bool) -> None:
        self._done.append((now, seconds))
        self._left[number] -= 1
        if not self._left[number]:
            size = self._lengths[number] * self._design.bytes_out
            joined = max(self._joiners.serve(now, size / self._design.join), self._move(now, 2 * size))
            self._at(joined, "joined", (number,))

    def _joined(self, now: float, number: int) -> None:
        """The video is there."""


def bounds(design: Design, lengths: Sequence[float]) -> dict[str, float]:
    """Returns for each part the seconds that it needs at least, if it waits for no other."""
    total, pieces = sum(lengths), sum(len(design.pieces(length)) for length in lengths)
    out = total * design.bytes_out
    return {
        "GPUs": design.start + design.gpu_seconds(lengths) / design.gpus,
        "driver": (len(lengths) * design.plan + total * design.plan_second + pieces * design.check) / design.drivers,
        "storage": (total * design.bytes_in + 3 * out) / design.storage,
        "joiners": out / design.join / design.joiners,
    }


def with_deaths(work: float, between: float, restart: float) -> float:
    """Returns the mean seconds that a piece of `work` seconds takes where each death begins it anew.

    Deaths come at the rate 1 / `between` while it is worked on: (exp(work / between) - 1) * (between + restart).
    """
    return math.expm1(work / between) * (between + restart)
