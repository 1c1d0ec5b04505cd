"""Gives work to workers, and passes on to each run what they report of its video."""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from segmentation.errors import BackendError, ConfigError, SegmentationError, reported
from segmentation.scale.fingerprint import differences
from segmentation.scale.protocol import Advanced, Begun, Done, Ended, Event, Lost, Ready, Task, Unable, WorkerPool
from segmentation.scale.queue import Queue
from segmentation.scale.rates import WorkerRates
from segmentation.scale.storage import StorageLost
from segmentation.sessions.workers_status import VideoStatus, WorkersStatus, WorkerStatus

log = logging.getLogger(__name__)

Failed = Callable[[str, str], str | None]  # of the queue: takes worker and reason

_POLL = 0.1  # seconds
_BEGINNING = 0.5  # seconds from work that is given to its first frame
_WAIT = 30  # seconds without a ready worker, after which a line says so


@dataclass(slots=True)
class Video:
    """A video under way: what its workers need, and what they have reported."""

    task: Task
    frames: int  # expected, 0 if unknown
    pieces: dict[int, int]  # frames of each piece
    arrived: queue.Queue[Any] = field(default_factory=queue.Queue)  # Done, Ended, or an exception
    complete: int = 0  # frames of pieces that are complete
    partial: dict[str, int] = field(default_factory=dict)  # frames since, by worker
    labor: WorkerRates = field(default_factory=WorkerRates)
    redone: int = 0

    @property
    def source(self) -> str:
        return self.task.source

    def begin(self, complete: int) -> None:
        """Begins an attempt, when so many frames are complete already."""
        self.arrived, self.partial, self.complete = queue.Queue(), {}, complete

    @property
    def done(self) -> int:
        return self.complete + sum(self.partial.values())


class Dispatcher:
    """A thread that gives the pieces of all videos under way to workers."""

    def __init__(self, pool: WorkerPool, *, exact: bool) -> None:
        """`exact` leaves out workers that differ from the first one."""
        self._exact = exact
        self._queue = Queue()
        self._videos: dict[str, Video] = {}
        self._idle: set[str] = set()
        self._at: dict[str, str] = {}  # of workers at work: video
        self._labor = WorkerRates()
        self._done = 0  # pieces
        self._seen = time.monotonic()  # when a worker was there for the last time
        self._reference: dict[str, str] | None = None  # fingerprint of the first worker
        self._failure: SegmentationError | None = None  # of the last worker
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._pool = pool
        self._thread = threading.Thread(target=self._drive, name="driver of workers", daemon=True)
        self._thread.start()

    def about(self) -> str:
        """Returns a few words on the workers, for a progress bar."""
        with self._lock:
            redone = self._queue.redone
            alive = len(self._idle) + len(self._at)
        return f"{alive} of {len(self._pool.names)} workers" + (f", {redone} pieces redone" if redone else "")

    def status(self) -> WorkersStatus:
        """Returns the figures of this moment."""
        with self._lock:
            workers = tuple(self._worker_status(name) for name in self._pool.names)
            videos = tuple(
                VideoStatus(
                    input=video.source,
                    output=name,
                    frames=video.done,
                    expected=video.frames,
                    pieces=len(video.pieces),
                    left=self._queue.left(name),
                    redone=video.redone,
                )
                for name, video in self._videos.items()
            )
            return WorkersStatus(
                workers=workers,
                videos=videos,
                alive=len(self._idle) + len(self._at),
                frames=sum(worker.frames for worker in workers),
                done=self._done,
                left=sum(video.left for video in videos),
                redone=self._queue.redone,
            )

    def _worker_status(self, name: str) -> WorkerStatus:
        video = self._videos.get(self._at.get(name, ""))
        return WorkerStatus(
            name=name,
            state="at work" if name in self._at else "idle" if name in self._idle else "away",
            video="" if video is None else video.source,
            frames=self._labor.frames(name),
            seconds=round(self._labor.seconds(name), 3),
            fps=self._labor.fps(name),
        )

    def close(self) -> None:
        """Ends the workers.

        Waits until they are gone if one is at work, which may write a piece, or if they would outlive this process.
        """
        self._closed.set()
        self._pool.wake()
        if self._at or not self._pool.end_with_process:
            self._thread.join()

    @contextmanager
    def under_way(self, video: Video, done: set[int]) -> Iterator[None]:
        """Gives a video to the workers, and takes it from them at the end."""
        with self._lock:
            if self._closed.is_set():
                raise _were_closed()
            if not self._thread.is_alive():
                raise self._failure or BackendError("workers: none is left")
            if video.task.video in self._videos:
                raise ConfigError(f"{video.task.video}: two runs at a time have this output")
            self._videos[video.task.video] = video
            self._queue.add(video.task.video, len(video.pieces), done)
        self._pool.wake()
        try:
            yield
        finally:
            self._drop(video)

    def _drop(self, video: Video) -> None:
        """Takes a video from the workers."""
        with self._lock:
            self.stop_workers(video)
            self._queue.drop(video.task.video)
            self._videos.pop(video.task.video, None)
            video.labor.end_all()

    def stop_workers(self, video: Video) -> bool:
        """Asks the workers that are at work on a video to end. Returns whether there are any."""
        with self._lock:
            workers = [worker for worker, name in self._at.items() if name == video.task.video]
            for worker in workers:
                self._pool.stop(worker)
            return bool(workers)

    # The rest is called on the driver's thread.

    def _drive(self) -> None:
        try:
            while not self._closed.is_set():
                for event in self._pool.events(_POLL):
                    with self._lock:
                        self._handle(event)
                with self._lock:
                    self._give_work()
            with self._lock:
                self._fail_all(_were_closed())  # runs of other threads would wait for ever
        except Exception as exc:
            with self._lock:
                self._fail_all(exc)
        finally:
            self._pool.close()

    def _handle(self, event: Event) -> None:
        match event:
            case Ready(worker, fingerprint):
                if self._fits(worker, fingerprint):
                    self._idle.add(worker)
            case Unable(worker, error):
                log.warning("%s can't serve: %s", worker, error)
                self._failure = error
            case Advanced(worker, name, frames):
                self._labor.advance(worker, frames)
                if (video := self._videos.get(name)) is not None:
                    video.partial[worker] = video.partial.get(worker, 0) + frames
                    video.labor.advance(worker, frames)
            case Begun(worker, name, piece):
                self._queue.begun(worker, name, piece)
            case Done(worker, name, piece):
                self._take(event, self._queue.done(worker, name, piece))
            case Ended(worker, name, error, report):
                self._end_task(worker)
                self._idle.add(worker)
                if isinstance(error, StorageLost) and self._queue.given(worker) == name:
                    self._videos[name].arrived.put(error)
                    self._drop(self._videos[name])
                elif error is not None:
                    self._give_back(worker, name, error, self._queue.failed)
                elif report is not None and self._queue.done(worker, name, 0):
                    self._done += 1
                    self._videos[name].arrived.put(event)
            case Lost(worker, reason):
                log.warning("%s %s", worker, reason)
                name = self._end_task(worker)
                self._idle.discard(worker)
                self._failure = SegmentationError(f"{worker} {reason}")
                self._give_back(worker, name, self._failure, self._queue.lost)

    def _fits(self, worker: str, fingerprint: dict[str, str]) -> bool:
        """Compares a worker with the first one. Returns whether it may serve."""
        if self._reference is None:
            self._reference = fingerprint
        found = differences(self._reference, fingerprint) if self._exact else ""
        if found:
            self._failure = BackendError(f"{worker} differs from the first one ({found}), and is left out (--exact)")
            log.warning("%s", self._failure)
            self._pool.dismiss(worker)
        return not found

    def _take(self, event: Done, first: bool) -> None:
        video = self._videos.get(event.video)
        if video is not None:
            frames = video.pieces[event.piece]
            video.partial.pop(event.worker, None)
            for labor in (self._labor, video.labor):
                labor.complete(event.worker, frames)
            if first:
                self._done += 1
                video.complete += frames
                video.arrived.put(event)

    def _end_task(self, worker: str) -> str:
        """Notes that a worker is not at work any more. Returns the video that it was at work on, or an empty string."""
        name = self._at.pop(worker, "")
        self._labor.end(worker)
        if (video := self._videos.get(name)) is not None:
            video.partial.pop(worker, None)
            video.labor.end(worker)
        return name

    def _give_back(self, worker: str, name: str, error: SegmentationError, give_back: Failed) -> None:
        """Gives back the pieces of a worker that has failed. Ends a video that has failed for good."""
        before = self._queue.redone
        reason = give_back(worker, str(error))
        video = self._videos.get(name)
        if video is None:
            return
        video.redone += self._queue.redone - before
        if reason is not None:
            failure = type(error)(f"{video.source}: {reason}")
            failure.__cause__ = error  # has the worker's traceback
            video.arrived.put(failure)
            self._drop(video)

    def _fail_all(self, error: Exception) -> None:
        self._failure = reported(error)
        for video in list(self._videos.values()):
            video.arrived.put(error)
            self._drop(video)

    def _say_if_none_is_ready(self) -> None:
        """Says once that videos wait because no worker is ready, such as for room in a cluster."""
        now = time.monotonic()
        if self._idle or self._at or not self._videos:
            self._seen = now
        elif now - self._seen > _WAIT:
            log.warning("no worker has been ready for %d s; waiting", _WAIT)
            self._seen = math.inf

    def _give_work(self) -> None:
        """Gives work to idle workers."""
        if not self._pool.left and self._videos:
            self._fail_all(self._failure or BackendError("workers: none is left"))
        self._say_if_none_is_ready()
        for worker in sorted(self._idle):
            work, shortened = self._queue.next(worker, self._spare())
            if work is None:
                continue
            if shortened is not None:
                self._pool.shorten(*shortened)
            video = self._videos[work.video]
            self._pool.start(worker, replace(video.task, begin=work.begin, end=work.end))
            self._at[worker] = work.video
            for labor in (self._labor, video.labor):
                labor.begin(worker)
            self._idle.discard(worker)

    def _spare(self) -> dict[str, float]:
        """Returns how many pieces each worker makes while another one begins."""
        found = {}
        for worker, name in self._at.items():
            video = self._videos.get(name)
            if video is not None and video.frames:
                found[worker] = _BEGINNING * self._labor.fps(worker) * len(video.pieces) / video.frames
        return found


def _were_closed() -> BackendError:
    return BackendError("workers: were closed; begin new ones")
