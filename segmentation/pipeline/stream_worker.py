"""The process with a session that runs a share of the streams: `python -m segmentation.pipeline.stream_worker FD`.

The descriptor is that of the connection to the process that started it; `stream_processes` holds the other end. Where
that end is closed, all runs end with complete files, as they do when `None` comes.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from contextlib import suppress
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection

from segmentation.child_process import ignore_interrupts, picklable
from segmentation.errors import SegmentationError
from segmentation.heap import trim_heap
from segmentation.pipeline.run import Request
from segmentation.pipeline.session import Segmenter
from segmentation.pipeline.stream_protocol import Advanced, Begin, Ended, Logged, Look, Picture, Start, Stop, Told
from segmentation.pipeline.stream_status import StreamMonitor

_TOLD = 0.5  # seconds between a run's figures
_PATIENCE = 10.0  # seconds that runs get to end


class _Log(QueueHandler):
    """Sends the log's lines to the other process."""

    def __init__(self, worker: _Worker) -> None:
        super().__init__(worker)  # type: ignore[arg-type]  # it is used by `enqueue` alone

    def enqueue(self, record: logging.LogRecord) -> None:
        self.queue.send(Logged(record))  # type: ignore[attr-defined]


class _Worker:
    """The runs of this process."""

    def __init__(self, link: Connection, start: Start) -> None:
        self._link, self._sending = link, threading.Lock()
        logging.basicConfig(level=start.level, handlers=[_Log(self)], force=True)
        self._segmenter = Segmenter(start.config)
        self._stops: dict[int, threading.Event] = {}
        self._monitors: dict[int, StreamMonitor] = {}
        self._threads: list[threading.Thread] = []

    def send(self, message: object) -> None:
        """Sends a message, unless the other process is gone. For any number of threads."""
        with suppress(OSError), self._sending:
            self._link.send(message)

    def take(self, message: Begin | Stop | Look) -> None:
        """Does what a message asks for, without waiting for it."""
        match message:
            case Begin():
                stop = self._stops[message.number] = threading.Event()
                self._start(self._run, message, stop)
            case Stop(number):
                if (running := self._stops.get(number)) is not None:  # else the run is over
                    running.set()
            case Look():
                self._start(self._look, message)

    def tell(self) -> None:
        """Sends the figures of all runs, for ever."""
        while True:
            time.sleep(_TOLD)
            for number, monitor in list(self._monitors.items()):
                self.send(Told(number, monitor.status(), monitor.late))

    def close(self) -> None:
        """Ends all runs with complete files."""
        for stop in list(self._stops.values()):
            stop.set()
        deadline = time.monotonic() + _PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._segmenter.close()

    def _start(self, work: object, *arguments: object) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _look(self, message: Look) -> None:
        monitor = self._monitors.get(message.number)
        self.send(Picture(message.number, None if monitor is None else monitor.jpeg(message.patience)))

    def _run(self, begin: Begin, stop: threading.Event) -> None:
        """Runs one source to its end, on a thread of its own."""
        number = begin.number
        told = 0.0

        def advance(done: int, expected: int) -> None:
            nonlocal told
            if not told or time.monotonic() - told > _TOLD:
                told = time.monotonic()
                self.send(Advanced(number, done, expected))

        try:
            with self._segmenter.streams.watch(begin.source) as monitor:
                self._monitors[number] = monitor
                request = Request(begin.source, begin.target, begin.config, stop, advance, monitor)
                report = self._segmenter.perform(request)
                self.send(Told(number, monitor.status(), monitor.late))
                monitor.finished(report)
            trim_heap()
            ended = Ended(number, report, None)
        except BaseException as exc:
            if not isinstance(exc, SegmentationError | OSError):  # a bug
                exc.add_note(f"In the stream's process:\n{''.join(traceback.format_exception(exc))}".rstrip())
            ended = Ended(number, None, picklable(exc))
        self._monitors.pop(number, None)
        del self._stops[number]
        self.send(ended)


def main(link: Connection) -> None:
    """Works until it is told to end, or the other end of the connection is closed."""
    ignore_interrupts()
    with suppress(EOFError, OSError):
        worker = _Worker(link, link.recv())
        threading.Thread(target=worker.tell, daemon=True).start()
        try:
            while (message := link.recv()) is not None:
                worker.take(message)
        finally:
            worker.close()


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
