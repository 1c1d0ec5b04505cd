"""When a worker counts as lost though its process is there: it gives no sign of life, or makes no frame."""

from __future__ import annotations

import time

SILENCE = 60.0  # seconds between two signs of life; a library that loads may hold the GIL for a part of that
SILENCE_AT_WORK = 15.0  # seconds likewise, of a worker that has made frames: its libraries are loaded
START = 300.0  # seconds to the first sign of life of a process, which reads its libraries from disk before
NO_FRAME = 1800.0  # seconds between two frames of a span; the first one may wait until an engine is built
SIGNS = 5  # signs of life that a worker sends within `SILENCE_AT_WORK`

_STEP = 1.0  # seconds by which the clock of `Watch` advances at most between two looks


class Watch:
    """When each worker has to report again.

    The clock runs only while `overdue` is called again and again. So a driver that was stopped itself takes no worker
    for lost when it goes on.
    """

    def __init__(self) -> None:
        self._now, self._looked = 0.0, time.monotonic()
        self._signs: dict[str, tuple[float, float]] = {}  # time at which the next one is due, and seconds up to there
        self._frames: dict[str, tuple[float, float]] = {}  # likewise
        self._loaded: set[str] = set()  # workers that have made frames

    def start(self, worker: str) -> None:
        """Takes the start of a worker, which has to give its first sign of life."""
        self._signs[worker] = self._in(START)

    def sign(self, worker: str) -> None:
        """Takes a sign of life."""
        self._signs[worker] = self._in(SILENCE_AT_WORK if worker in self._loaded else SILENCE)

    def begin(self, worker: str) -> None:
        """Takes the start of a span, whose frames have to come from now on."""
        self._frames[worker] = self._in(NO_FRAME)

    def frame(self, worker: str) -> None:
        """Takes new frames, of a span or of other work."""
        self._loaded.add(worker)
        if worker in self._frames:
            self.begin(worker)

    def end(self, worker: str) -> None:
        """Takes the end of a worker's work."""
        self._frames.pop(worker, None)

    def forget(self, worker: str) -> None:
        """Expects nothing more from a worker."""
        self._signs.pop(worker, None)
        self._loaded.discard(worker)
        self.end(worker)

    def overdue(self) -> dict[str, str]:
        """Returns the workers that should have reported by now, with what is missing."""
        now = time.monotonic()
        self._now += min(now - self._looked, _STEP)
        self._looked = now
        due = {"frame": self._frames, "sign of life": self._signs}
        return {
            worker: f"has given no {what} for {seconds:g} s"
            for what, times in due.items()
            for worker, (time_due, seconds) in times.items()
            if time_due < self._now
        }

    def _in(self, seconds: float) -> tuple[float, float]:
        return self._now + seconds, seconds
