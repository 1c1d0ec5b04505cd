"""Requests of the coordinator to workers, wherever they are, and their reports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from segmentation.errors import SegmentationError
from segmentation.pipeline.report import Report
from segmentation.scale.plan import VideoPlan
from segmentation.scale.storage import SharedStorage

Fingerprint = dict[str, str]  # what packets depend on, such as the versions of libraries


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker has its network, and waits for work."""

    worker: str
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class Unable:
    """A worker can't serve at all, as without its network. It is gone."""

    worker: str
    error: SegmentationError


@dataclass(frozen=True, slots=True)
class Advanced:
    """A worker has made so many more frames."""

    worker: str
    video: str
    frames: int


@dataclass(frozen=True, slots=True)
class Begun:
    """A worker has begun to decode a piece."""

    worker: str
    video: str
    piece: int


@dataclass(frozen=True, slots=True)
class Done:
    """The file of a piece is complete and in its folder."""

    worker: str
    video: str
    piece: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker has ended its span, and waits for work. With `error` it failed at a piece. `report` is that of a run."""

    worker: str
    video: str
    error: SegmentationError | None = None
    report: Report | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker is gone."""

    worker: str
    reason: str


Event = Ready | Unable | Advanced | Begun | Done | Ended | Lost


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceTask:
    """Pieces of a plan, for one worker."""

    video: str
    plan: VideoPlan
    folder: str
    begin: int = 0
    end: int = 1

    @property
    def source(self) -> str:
        """Returns the input."""
        return self.plan.source

    @property
    def share(self) -> SharedStorage:
        """Returns what the driver and the worker share."""
        return SharedStorage(self.source, self.folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTask:
    """A whole run, for one worker."""

    video: str
    run: dict[str, Any]  # its arguments
    begin: int = 0
    end: int = 1

    @property
    def source(self) -> str:
        """Returns the input."""
        return str(self.run["input"])

    @property
    def share(self) -> SharedStorage:
        """Returns what the driver and the worker share."""
        return SharedStorage(self.source, self.run["output"].parent)


Task: TypeAlias = PieceTask | RunTask


class WorkerPool(ABC):
    """Workers as the driver sees them. `stop` and `wake` may be called on any thread, the rest on the driver's."""

    names: tuple[str, ...]  # of the workers that it has when all is well
    end_with_process: ClassVar[bool] = False  # whether workers are gone soon after this process, also without `close`

    @property
    @abstractmethod
    def left(self) -> int:
        """Workers that are there, or are being started."""

    @abstractmethod
    def events(self, timeout: float) -> list[Event]:
        """Returns what has happened, after at most `timeout` seconds. Lost workers are started again."""

    def wake(self) -> None:  # noqa: B027  # Ray has no such way
        """Makes `events` return sooner, where that is possible: there is work to give."""

    @abstractmethod
    def start(self, worker: str, task: Task) -> None:
        """Gives work to a worker that is ready."""

    @abstractmethod
    def shorten(self, worker: str, end: int) -> None:
        """Takes the pieces from `end` on from a worker."""

    @abstractmethod
    def stop(self, worker: str) -> None:
        """Ends a worker's task. The worker reports `Ended`."""

    @abstractmethod
    def dismiss(self, worker: str) -> None:
        """Ends a worker for good, without a report."""

    @abstractmethod
    def close(self) -> None:
        """Ends all workers."""
