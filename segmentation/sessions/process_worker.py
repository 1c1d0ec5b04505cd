"""The process with a session that makes a share of the runs: `python -m segmentation.sessions.process_worker FD`, or a
fork.

The descriptor is that of the connection to the process that started it; `processes` holds the other end. Where that end
is closed, or when `None` comes, runs of live sources end with complete files, and those of files without one.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection

from segmentation.errors import reported
from segmentation.flow.threads import interrupt
from segmentation.gpu.discovery import pin_by_threads, wake
from segmentation.pipeline.request import RunRequest
from segmentation.pipeline.stream_status import StreamMonitor
from segmentation.sessions.process_protocol import (
    Begin,
    Cancel,
    Logged,
    Picture,
    RunAdvanced,
    RunEnded,
    Start,
    StatusUpdate,
    StopRun,
    ThumbnailRequest,
)
from segmentation.sessions.session import Segmenter
from segmentation.system.child_process import ignore_interrupts, picklable, with_traceback
from segmentation.system.heap import trim_heap

_TOLD = 0.5  # seconds between a run's figures
_PATIENCE = 10.0  # seconds that runs get to end

pin_by_threads()  # here, since the process that forks this one imports PyTorch next


class _Log(QueueHandler):
    """Sends the log's lines to the other process."""

    def __init__(self, worker: _RunWorker) -> None:
        super().__init__(worker)  # type: ignore[arg-type]  # it is used by `enqueue` alone
        self.setFormatter(logging.Formatter())  # the message alone: `basicConfig` would put level and name before it

    def enqueue(self, record: logging.LogRecord) -> None:
        self.queue.send(Logged(record))  # type: ignore[attr-defined]


class _RunWorker:
    """The runs of this process."""

    def __init__(self, link: Connection, start: Start) -> None:
        self._link, self._sending = link, threading.Lock()
        logging.basicConfig(level=start.level, handlers=[_Log(self)], force=True)
        if start.on_gpu:
            threading.Thread(target=wake, name="warm-up", daemon=True).start()
        self._segmenter = Segmenter(start.config)
        self._stops: dict[int, threading.Event] = {}  # of runs under way
        self._of_files: dict[int, threading.Thread] = {}  # likewise
        self._monitors: dict[int, StreamMonitor] = {}
        self._threads: list[threading.Thread] = []

    def send(self, message: object) -> None:
        """Sends a message, unless the other process is gone. For any number of threads."""
        with suppress(OSError), self._sending:
            self._link.send(message)

    def take(self, message: Begin | StopRun | Cancel | ThumbnailRequest) -> None:
        """Does what a message asks for, without waiting for it."""
        match message:
            case Begin():
                stop = self._stops[message.number] = threading.Event()
                thread = self._thread(self._run, message, stop)
                if not message.source.is_live:
                    self._of_files[message.number] = thread
                self._begin(thread, message)
            case StopRun(number):
                if (running := self._stops.get(number)) is not None:  # else the run is over
                    running.set()
            case Cancel(number):
                self._beside(self._leave, [number])
            case ThumbnailRequest():
                self._beside(self._look, message)

    def tell(self) -> None:
        """Sends the figures of all runs, for ever."""
        while True:
            time.sleep(_TOLD)
            for number, monitor in list(self._monitors.items()):
                self.send(StatusUpdate(number, monitor.status(), monitor.late))

    def close(self) -> None:
        """Ends all runs."""
        self._leave(list(self._stops))
        deadline = time.monotonic() + _PATIENCE
        for thread in filter(threading.Thread.is_alive, self._threads):
            thread.join(max(0.0, deadline - time.monotonic()))
        self._segmenter.close()

    def _leave(self, numbers: list[int]) -> None:
        """Ends runs, those of live sources with complete files."""
        files = [thread for number in numbers if (thread := self._of_files.get(number)) is not None]
        for number in numbers:
            if number not in self._of_files and (stop := self._stops.get(number)) is not None:
                stop.set()
        interrupt(files)

    def _begin(self, thread: threading.Thread, message: Begin) -> None:
        """Starts a run, or sends that there is no thread for it."""
        try:
            thread.start()
        except RuntimeError as exc:
            self._forget(message.number)
            self.send(RunEnded(message.number, None, reported(exc, message.source.label)))

    def _beside(self, work: Callable[..., None], *arguments: object) -> None:
        """Does something on a thread of its own, or at once where none can be started."""
        try:
            self._thread(work, *arguments).start()
        except RuntimeError:
            work(*arguments)

    def _forget(self, number: int) -> None:
        for known in (self._monitors, self._of_files, self._stops):
            known.pop(number, None)

    def _thread(self, work: object, *arguments: object) -> threading.Thread:
        """Returns a thread that is not started yet."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        return thread

    def _look(self, message: ThumbnailRequest) -> None:
        monitor = self._monitors.get(message.number)
        self.send(Picture(message.number, None if monitor is None else monitor.jpeg(message.patience)))

    def _run(self, begin: Begin, stop: threading.Event) -> None:
        """Makes one run, on a thread of its own."""
        number = begin.number
        told = 0.0
        untold: RunAdvanced | None = None

        def advance(done: int, expected: int) -> None:
            nonlocal told, untold
            untold = RunAdvanced(number, done, expected)
            if not told or time.monotonic() - told > _TOLD:
                self.send(untold)
                told, untold = time.monotonic(), None

        try:
            with self._segmenter.streams.watch(begin.source) if begin.source.is_live else nullcontext() as monitor:
                if monitor is not None:
                    self._monitors[number] = monitor
                request = RunRequest(begin.source, begin.target, begin.config, stop, advance, monitor)
                report = self._segmenter.perform(request)
                if monitor is not None:
                    self.send(StatusUpdate(number, monitor.status(), monitor.late))
                    monitor.finished(report)
                    trim_heap()
            ended = RunEnded(number, report, None)
        except BaseException as exc:
            ended = RunEnded(number, None, picklable(with_traceback(exc, "run's")))
        if untold is not None:
            self.send(untold)
        self._forget(number)
        self.send(ended)


def main(descriptor: int) -> None:
    """Works until it is to end, or the other end of the connection is closed."""
    ignore_interrupts()
    link = Connection(descriptor)
    with suppress(EOFError, OSError):
        worker = _RunWorker(link, link.recv())
        threading.Thread(target=worker.tell, daemon=True).start()
        try:
            while (message := link.recv()) is not None:
                worker.take(message)
        finally:
            worker.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
