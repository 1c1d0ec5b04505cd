"""Reports several workers while they are at work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from segmentation.sessions.prometheus import head, labels

WorkerState: TypeAlias = Literal["at work", "idle", "away"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """One worker at this moment."""

    name: str
    state: WorkerState  # `away` while it starts, and when it is lost
    video: str  # the input that it is at work on, else empty
    frames: int  # that it has made, also those of pieces that were lost
    seconds: float  # at work
    fps: float  # frames a second while it was at work


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoStatus:
    """One video under way."""

    input: str
    output: str
    frames: int  # made so far, also by an earlier command
    expected: int  # frames of the whole, 0 if unknown
    pieces: int
    left: int  # pieces that are not complete
    redone: int  # pieces that were begun again


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersStatus:
    """All workers of a driver at this moment, with the videos under way. Frames and pieces are those of this driver."""

    workers: tuple[WorkerStatus, ...]
    videos: tuple[VideoStatus, ...]
    alive: int  # workers at work or idle
    frames: int  # by all workers
    done: int  # pieces that were completed
    left: int  # pieces of the videos under way that are not complete
    redone: int  # pieces that were begun again

    @property
    def away(self) -> list[str]:
        """Returns the names of the workers that can't be given work."""
        return [worker.name for worker in self.workers if worker.state == "away"]


def metrics(status: WorkersStatus) -> Iterator[str]:
    """Yields the lines of Prometheus' text format."""
    each: list[tuple[str, str, str, Callable[[WorkerStatus], float]]] = [
        ("worker_up", "gauge", "Whether a worker is at work or idle.", lambda one: int(one.state != "away")),
        ("worker_frames_total", "counter", "Frames that a worker has made.", lambda one: one.frames),
        ("worker_busy_seconds_total", "counter", "Time that a worker was at work.", lambda one: one.seconds),
    ]
    for name, kind, about, value in each:
        yield from head(name, kind, about)
        for one in status.workers:
            yield f"segmentation_{name}{labels(worker=one.name)} {value(one)}"
    for name, kind, about, number in (
        ("pieces_done_total", "counter", "Pieces that were completed.", status.done),
        ("pieces_redone_total", "counter", "Pieces that were begun again.", status.redone),
        ("pieces_left", "gauge", "Pieces of the videos under way that are not complete.", status.left),
        ("videos_under_way", "gauge", "Videos under way.", len(status.videos)),
    ):
        yield from head(name, kind, about)
        yield f"segmentation_{name} {number}"
