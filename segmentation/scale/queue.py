"""Which worker makes which pieces: spans, stealing, and what happens to the pieces of workers that are lost.

This is bookkeeping alone: no process, file or clock is in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

ATTEMPTS = 3  # at a piece, after which its video has failed
WITNESSES = 2  # workers that must have failed at the piece, where there are so many


@dataclass(slots=True)
class Work:
    """Neighbouring pieces of one video, from `begin` to before `end`."""

    video: str
    begin: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.begin)  # a worker may be further than it was to go


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
        self._given: dict[str, Work] = {}  # by worker; `begin` is the piece that the worker is at
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

    def next(self, worker: str) -> tuple[Work | None, tuple[str, int] | None]:
        """Returns the work for an idle worker, if there is any.

        If it is stolen, the second item is the worker that it is taken from, and the end that is left to that one.
        """
        self.workers.add(worker)
        self._given.pop(worker, None)
        work, shortened = self._take(worker), None
        if work is None and (victim := self._longest()) is not None:
            theirs = self._given[victim]
            middle = theirs.end - len(theirs) // 2
            work = Work(theirs.video, middle, theirs.end)
            theirs.end = middle
            shortened = victim, middle
        if work is not None:
            self._given[worker] = Work(work.video, work.begin, work.end)
        return work, shortened

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

    def _longest(self) -> str | None:
        """Returns the worker with the most pieces behind the one that it is at."""
        rests = {worker: len(work) for worker, work in self._given.items()}
        longest = max(rests, key=lambda worker: rests[worker], default=None)
        return longest if longest is not None and rests[longest] > 1 else None


def _runs(video: str, pieces: set[int]) -> Iterator[Work]:
    """Yields neighbouring pieces as one work each."""
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
