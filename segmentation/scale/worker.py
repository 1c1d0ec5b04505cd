"""A worker on this machine, which `local` starts. It ends when the driver's end of its connection is closed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from segmentation.errors import SegmentationError, reported
from segmentation.frames.source import Source
from segmentation.gpu.discovery import pin_by_threads, wake
from segmentation.models.model import load_model
from segmentation.options.config import Config
from segmentation.pipeline.planning.plan import make_plan
from segmentation.pipeline.report import Report
from segmentation.pipeline.request import RunRequest
from segmentation.scale.fingerprint import fingerprint
from segmentation.scale.piece_folder import PieceFolder
from segmentation.scale.protocol import Advanced, Begun, Done, Ended, Event, PieceTask, Ready, RunTask, Task, Unable
from segmentation.scale.span import Span
from segmentation.scale.span_run import make_span
from segmentation.scale.storage import SharedStorage
from segmentation.sessions.session import Segmenter
from segmentation.system.child_process import with_traceback

_REPORT = 0.5  # seconds between two reports of frames

pin_by_threads()  # here, since the process that forks this one imports PyTorch next


@dataclass(frozen=True, slots=True)
class Setup:
    """The first message to a worker."""

    name: str
    config: Config
    sign: float  # seconds between two signs of life
    cores: set[int] | None = None  # for the process alone; `None`: as the system has it


@dataclass(frozen=True, slots=True)
class Sign:
    """From a worker: a sign of life."""


@dataclass(frozen=True, slots=True)
class Shorten:
    """To a worker: the pieces from `end` on are another worker's."""

    end: int


@dataclass(frozen=True, slots=True)
class Stop:
    """To a worker: end the task."""


class PieceSession(Segmenter):
    """A session that makes pieces, too."""

    def prepare(self) -> dict[str, str]:
        """Loads what shows early whether this process can serve. Returns its fingerprint. Raises as `segment` does."""
        threading.Thread(target=self._warm_up, name="warm-up", daemon=True).start()
        if self.config.masks is None:
            load_model(self.config)
        return fingerprint(self.config)

    def _warm_up(self) -> None:
        """Imports libraries and makes the GPU's context while the driver plans."""
        if (self.config.device or "").startswith("cuda"):
            wake()
        with suppress(SegmentationError):  # which a run will report
            make_plan(self.config)

    def make(
        self,
        span: Span,
        folder: PieceFolder,
        worker: dict[str, str],
        *,
        stop: threading.Event,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Makes the pieces of a span, see `make_span`. `worker` is the fingerprint. Raises `StorageLost` too."""
        plan = span.plan
        config = replace(plan.config, device=self.config.device)  # that of this process, which may see one GPU alone
        request = RunRequest(Source.parse(plan.source), Path(plan.target), config, stop, progress)
        with SharedStorage(plan.source, folder.path).errors_told_apart():
            make_span(self._resources, request, span, folder, worker)


class Worker:
    """Does one task after the other, and reports to `send`, on the calling thread and on that of the task."""

    def __init__(self, setup: Setup, send: Callable[[Event], None]) -> None:
        self._name, self._send = setup.name, send
        self._session = PieceSession(setup.config)
        self._fingerprint: dict[str, str] = {}
        self._span: Span | None = None
        self._stop = threading.Event()

    def prepare(self) -> bool:
        """Reports `Ready`, or `Unable`. Returns whether the worker can serve."""
        try:
            self._fingerprint = self._session.prepare()
        except Exception as exc:
            self._send(Unable(self._name, with_traceback(reported(exc), "worker's")))
            return False
        self._send(Ready(self._name, self._fingerprint))
        return True

    def take(self, message: Task | Shorten | Stop) -> None:
        """Follows a message of the driver. A task has a thread of its own, and ends with the report `Ended`."""
        match message:
            case PieceTask() | RunTask() as task:
                threading.Thread(target=self._begin(task), name="task", daemon=True).start()
            case Shorten(end):
                if self._span is not None:
                    self._span.end = min(self._span.end, end)
            case Stop():
                self._stop.set()

    def _begin(self, task: Task) -> Callable[[], None]:
        """Returns the work on a task."""
        stop = self._stop = threading.Event()
        attempt: Callable[[_Counter], Report | None]
        if isinstance(task, PieceTask):
            span = Span(
                task.plan,
                task.begin,
                task.end,
                completed=lambda piece: self._send(Done(self._name, task.video, piece)),
                begun=lambda piece: self._send(Begun(self._name, task.video, piece)),
            )
            attempt, self._span = partial(self._make, span, task.folder, stop), span
        else:
            attempt, self._span = partial(self._run, task, stop), None

        def work() -> None:
            error: SegmentationError | None = None
            report: Report | None = None
            try:
                report = self._counted(task, attempt)
            except Exception as exc:  # the piece gets another attempt
                error = with_traceback(reported(exc), "worker's")
            self._send(Ended(self._name, task.video, error, report))

        return work

    def _counted(self, task: Task, attempt: Callable[[_Counter], Report | None]) -> Report | None:
        counter = _Counter(lambda frames: self._send(Advanced(self._name, task.video, frames)))
        try:
            return attempt(counter)
        finally:
            counter.report()

    def _make(self, span: Span, folder: str, stop: threading.Event, counter: _Counter) -> None:
        self._session.make(span, PieceFolder(Path(folder)), self._fingerprint, stop=stop, progress=counter)

    def _run(self, task: RunTask, stop: threading.Event, counter: _Counter) -> Report:
        with task.share.errors_told_apart():
            return self._session.run(**task.run, stop=stop, progress=counter)


class _Counter:
    """A run's progress, of which the frames since the last report are reported from time to time."""

    def __init__(self, report: Callable[[int], None]) -> None:
        self._report = report
        self._done = self._reported = 0
        self._at = time.monotonic()

    def __call__(self, done: int, expected: int) -> None:
        self._done = done
        if time.monotonic() - self._at >= _REPORT:
            self.report()

    def report(self) -> None:
        """Reports the frames since the last report."""
        self._report(self._done - self._reported)
        self._reported, self._at = self._done, time.monotonic()


def main(descriptor: int) -> None:
    """Serves by a connection until its other end is closed. The process is over then, without a wait for a task."""
    with suppress(EOFError, OSError):  # the driver has ended
        _serve(Connection(descriptor))


def _serve(connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles it, and then ends this process in order
    setup = connection.recv()
    if setup.cores is not None:
        os.sched_setaffinity(0, setup.cores)
    sending = threading.Lock()

    def send(message: Event | Sign) -> None:
        with sending:
            connection.send(message)

    def live() -> None:
        with suppress(OSError):  # the driver has ended
            while True:
                send(Sign())
                time.sleep(setup.sign)

    threading.Thread(target=live, name="signs of life", daemon=True).start()
    worker = Worker(setup, send)
    if not worker.prepare():
        return
    while True:
        worker.take(connection.recv())
