"""Which worker makes which pieces: spans, stealing, and what happens to the pieces of workers that are lost.

This is bookkeeping alone: no process, file or clock is in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil

ATTEMPTS = 3  # at a piece, after which its video has failed
WITNESSES = 2  # workers that must have failed at the piece, where there are so many


@dataclass(slots=True)
class Work:
    """Neighboring pieces of one video, from `begin` to before `end`."""

    video: str
    begin: int
    end: int


@dataclass(slots=True)
class _Given(Work):
    """The work of a worker. `begin` is its first piece that is not complete."""

    at: int  # the piece that it decodes; those before it are on their way through the encoders

    def to_steal(self, spare: float) -> int:
        """Returns how many pieces from the end on another worker should take, so that both end together.

        This one makes `spare` pieces while the other begins.
        """
        return ceil((self.end - max(self.at, self.begin) - spare - 1) / 2)  # to the nearest


@dataclass(slots=True)
class _Video:
    left: set[int]  # pieces that are not complete
    failures: dict[int, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))  # worker, reason


class Queue:
    """The pieces of all videos under way, in the order in which the videos were added.

    A video is known by any name. `redone` counts the pieces that were given to a second worker.
    """

    def __init__(self) -> None:
        self._videos: dict[str, _Video] = {}
        self._waiting: list[Work] = []
        self._given: dict[str, _Given] = {}  # by worker
        self.workers: set[str] = set()  # that are ready, at work or not
        self.redone = 0

    def add(self, video: str, pieces: int, done: set[int]) -> None:
        """Adds a video of so many pieces, of which some are done."""
        left = set(range(pieces)) - done
        self._videos[video] = _Video(left)
        self._waiting += _runs(video, left)

    def drop(self, video: str) -> None:
        """Forgets a video."""
        self._videos.pop(video, None)
        self._waiting = [work for work in self._waiting if work.video != video]
        self._given = {worker: work for worker, work in self._given.items() if work.video != video}

    def given(self, worker: str) -> str | None:
        """Returns the video that a worker has work of."""
        work = self._given.get(worker)
        return None if work is None else work.video

    def left(self, video: str) -> int:
        """Returns how many pieces of a video are not complete."""
        return len(self._videos[video].left)

    def next(self, worker: str, spare: Mapping[str, float]) -> tuple[Work | None, tuple[str, int] | None]:
        """Returns the work for an idle worker, if there is any.

        If it is stolen, the second item is the worker that it is taken from, and the end that is left to that one.
        `spare` is how many pieces each worker makes while another one begins, 0 where it is not there.
        """
        self.workers.add(worker)
        self._given.pop(worker, None)
        work, shortened = self._take(worker), None
        if work is None and (found := self._to_steal(spare)) is not None:
            victim, count = found
            theirs = self._given[victim]
            work = Work(theirs.video, theirs.end - count, theirs.end)
            theirs.end -= count
            shortened = victim, theirs.end
        if work is not None:
            self._given[worker] = _Given(work.video, work.begin, work.end, at=work.begin)
        return work, shortened

    def begun(self, worker: str, video: str, piece: int) -> None:
        """Takes note of a piece whose decoding has begun: nobody steals it."""
        work = self._given.get(worker)
        if work is not None and work.video == video:
            work.at = max(work.at, piece)

    def done(self, worker: str, video: str, piece: int) -> bool:
        """Takes a complete piece. Returns whether it is the first of its number."""
        work = self._given.get(worker)
        if work is not None and work.video == video and piece >= work.begin:
            work.begin = piece + 1
        known = self._videos.get(video)
        if known is None or piece not in known.left:
            return False
        known.left.remove(piece)
        return True

    def failed(self, worker: str, reason: str) -> str | None:
        """Takes the failure of a worker at its piece. The rest of the worker's pieces go to the front of the queue.

        Returns the reason if the video has failed for good.
        """
        work = self._given.pop(worker, None)
        known = self._videos.get(work.video) if work is not None else None
        if work is None or known is None:
            return None
        left = sorted(known.left & set(range(work.begin, work.end)))
        if not left:
            return None
        self.redone += 1
        failures = known.failures[left[0]]
        failures.append((worker, reason))
        # The piece alone, so that the others don't wait for its next attempt.
        self._waiting[:0] = [*_runs(work.video, {left[0]}), *_runs(work.video, set(left[1:]))]
        witnesses = {name for name, _ in failures}
        if len(failures) >= ATTEMPTS and len(witnesses) >= min(WITNESSES, len(self.workers | witnesses)):
            return f"piece {left[0]} failed {len(failures)} times: {reason}"
        return None

    def lost(self, worker: str, reason: str) -> str | None:
        """Takes the end of a worker; the rest as `failed`."""
        failed = self.failed(worker, reason)
        self.workers.discard(worker)
        return failed

    def _take(self, worker: str) -> Work | None:
        """Takes waiting work: the first that has not failed on this worker, else one that it may try again.

        The last attempt is another worker's, unless all workers have failed.
        """
        again: list[int] = []
        for number, work in enumerate(self._waiting):
            failures = [name for name, _ in self._videos[work.video].failures.get(work.begin, ())]
            if worker not in failures:
                return self._waiting.pop(number)
            if len(failures) < ATTEMPTS - 1 or self.workers <= set(failures):
                again.append(number)
        return self._waiting.pop(again[0]) if again else None

    def _to_steal(self, spare: Mapping[str, float]) -> tuple[str, int] | None:
        """Returns the worker from which most pieces are to be stolen, and how many."""
        counts = {worker: work.to_steal(spare.get(worker, 0)) for worker, work in self._given.items()}
        victim = max(counts, key=lambda worker: counts[worker], default=None)
        return None if victim is None or counts[victim] < 1 else (victim, counts[victim])


def _runs(video: str, pieces: set[int]) -> Iterator[Work]:
    """Yields neighboring pieces as one work each."""
    work: Work | None = None
    for piece in sorted(pieces):
        if work is not None and piece == work.end:
            work.end += 1
            continue
        if work is not None:
            yield work
        work = Work(video, piece, piece + 1)
    if work is not None:
        yield work
