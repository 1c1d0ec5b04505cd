"""How many frames each worker has made, in how much time at work."""

from __future__ import annotations

import time


class WorkerRates:
    """Frames and seconds at work, by worker, also of pieces that were lost."""

    def __init__(self) -> None:
        self._frames: dict[str, int] = {}
        self._complete: dict[str, int] = {}  # frames of complete pieces
        self._seconds: dict[str, float] = {}
        self._since: dict[str, float] = {}  # of workers at work

    def begin(self, worker: str) -> None:
        """Begins a task."""
        self._since[worker] = time.monotonic()

    def end(self, worker: str) -> None:
        """Ends the task, if there is one."""
        if worker in self._since:
            self._seconds[worker] = self.seconds(worker)
            del self._since[worker]

    def end_all(self) -> None:
        """Ends all tasks."""
        for worker in list(self._since):
            self.end(worker)

    def advance(self, worker: str, frames: int) -> None:
        """Adds so many frames."""
        self._frames[worker] = self.frames(worker) + frames

    def complete(self, worker: str, frames: int) -> None:
        """Adds a complete piece, whose last frames may not be reported yet."""
        self._complete[worker] = self._complete.get(worker, 0) + frames
        self._frames[worker] = max(self.frames(worker), self._complete[worker])

    def frames(self, worker: str) -> int:
        """Returns the frames of a worker."""
        return self._frames.get(worker, 0)

    def seconds(self, worker: str) -> float:
        """Returns the seconds that a worker was at work, up to now."""
        now = time.monotonic()
        return self._seconds.get(worker, 0.0) + now - self._since.get(worker, now)

    def fps(self, worker: str) -> float:
        """Returns the frames a second of a worker, while it was at work."""
        seconds = self.seconds(worker)
        return round(self.frames(worker) / seconds, 2) if seconds else 0.0

    @property
    def rates(self) -> dict[str, float]:
        """Returns the frames a second of all workers that have made some."""
        return {worker: self.fps(worker) for worker, frames in self._frames.items() if frames}
