"""Runs in several processes, each with a session: the GIL and a GPU's context would be the limit of many.

A live frame goes through the stages alone, so that many streams ask for the lock a few thousand times a second. Many
files at once wait for the lock, and for that of the context, which each call of the driver takes.
"""

from __future__ import annotations

import logging
import os
import pickle
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Unpack

from segmentation.errors import ConfigError, SegmentationError, one_line
from segmentation.frames.latency import Histogram, Latencies
from segmentation.frames.picture_names import NUMBER
from segmentation.frames.source import Source
from segmentation.gpu.discovery import visible_gpus
from segmentation.media.output_stream import OutputAddress
from segmentation.options.config import Config
from segmentation.options.keywords import Options
from segmentation.pipeline.output_paths import written_files
from segmentation.pipeline.report import Report
from segmentation.pipeline.request import RunRequest
from segmentation.pipeline.stream_status import StreamBoard, StreamMonitor, StreamStatus
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
from segmentation.system.atomic_file import remove_leftovers
from segmentation.system.child_process import Fork, SharedProcesses
from segmentation.system.fork_server import ForkServer
from segmentation.system.linked_process import LinkedProcess

log = logging.getLogger(__name__)

_POLL = 0.05  # seconds between checks whether a run is to end
_WORKER = "segmentation.sessions.process_worker"
_PATIENCE = 15.0  # seconds that a process gets to end its runs and to close its session


class _RemoteMonitor(StreamMonitor):
    """Holds the figures of a run in another process that this process has sent last."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._late = Latencies().histogram()
        self._look: Callable[[float], bytes | None] | None = None

    def follow(self, look: Callable[[float], bytes | None]) -> None:
        """The run begins; `look` returns a small picture of its output within so many seconds."""
        self._look = look

    def told(self, status: StreamStatus, late: Histogram) -> None:
        """Takes figures, with the name that this process has for the source."""
        if not self.ended:
            self._status, self._late = replace(status, name=self.name), late

    def status(self) -> StreamStatus:
        return self._status

    @property
    def late(self) -> Histogram:
        return self._late

    def jpeg(self, patience: float) -> bytes | None:
        return None if self._look is None or self.ended else self._look(patience)


class _Died(SegmentationError):
    """The process that made a run is gone."""


class _Process:
    """A process with a session, and the runs that it has been given."""

    def __init__(self, config: Config, gpu: str | None, fork: Fork | None = None) -> None:
        """Returns at once, while the process starts up. `gpu` is the only one that it sees, else all.

        Raises `SegmentationError` where it can't be started.
        """
        self.gpu = gpu
        environment = None if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}
        self._numbers = count()
        self._runs: dict[int, queue.Queue[RunAdvanced | RunEnded]] = {}  # those under way
        self._monitors: dict[int, _RemoteMonitor] = {}
        self._pictures: dict[int, queue.Queue[Picture]] = {}
        self._sending = threading.Lock()
        self._dead = False
        self.shared = False  # whether it has made several runs at a time
        with _failures_named():
            self._process = LinkedProcess(_WORKER, environment=environment, fork=fork)
        self._send(Start(config, logging.getLogger().level, on_gpu=gpu is not None))
        self._reader = threading.Thread(target=self._read, name="segmentation-streams", daemon=True)
        self._reader.start()

    def is_alive(self) -> bool:
        return not self._dead and self._process.is_alive()

    def run(self, request: RunRequest) -> Report:
        """Runs a request there, and returns its report. Raises what the run raises."""
        number = next(self._numbers)
        self._runs[number] = queue.Queue()
        self.shared = self.shared or len(self._runs) > 1
        try:
            return self._run(number, request, self._runs[number])
        finally:
            self._send(Cancel(number))  # which ends what is under way still
            for known in (self._runs, self._monitors, self._pictures):
                known.pop(number, None)

    def _run(self, number: int, request: RunRequest, inbox: queue.Queue[RunAdvanced | RunEnded]) -> Report:
        assert isinstance(request.target, Path | OutputAddress | None)
        if isinstance(request.monitor, _RemoteMonitor):
            self._monitors[number] = request.monitor
            request.monitor.follow(lambda patience: self._picture(number, patience))
        self._send(Begin(number=number, source=request.source, target=request.target, config=request.config))
        stopped = False
        while True:
            if request.stop.is_set() and not stopped:
                stopped = True
                self._send(StopRun(number))
            try:
                message = inbox.get(timeout=_POLL)
            except queue.Empty:
                if self._dead and inbox.empty():
                    death = self._process.describe_death()  # waits for it: its locks end with it
                    if not request.source.is_live:  # what was recorded of one may be all that there is
                        for _, path in written_files(request.target, request.config):
                            if not NUMBER.search(path.name):  # numbered pictures are more than one file
                                remove_leftovers(path)
                    raise _Died(f"{request.source.label}: the process that ran it {death}; start again") from None
                continue
            if isinstance(message, RunAdvanced):
                if request.progress is not None:
                    request.progress(message.done, message.expected)
            elif message.error is not None:
                raise message.error
            elif message.report is not None:
                return message.report

    def end(self) -> None:
        """Makes the process end, with its runs."""
        self._send(None)  # closing this end would not do, as the reader waits at it

    def close(self) -> None:
        """Waits until the process has ended."""
        self._process.close(_PATIENCE)
        self._reader.join()
        self._process.link.close()

    def _send(self, message: object) -> None:
        with suppress(OSError), self._sending:  # a process that is gone is told of by `_read`
            self._process.link.send(message)

    def _picture(self, number: int, patience: float) -> bytes | None:
        """Returns a small picture of a run's output, if one comes in time."""
        inbox = self._pictures.setdefault(number, queue.Queue())
        with suppress(queue.Empty):  # what came too late for the last look is old
            while True:
                inbox.get_nowait()
        self._send(ThumbnailRequest(number, patience))
        try:
            return inbox.get(timeout=patience + _POLL).jpeg
        except queue.Empty:
            return None

    def _read(self) -> None:
        """Hands out what the process sends, until it is gone."""
        try:
            with suppress(EOFError, OSError):
                while True:  # runs may send nothing for long, but the process wakes up twice a second
                    self._take(self._process.receive())
        finally:  # a message that can't be read, too, is the end of all runs there
            self._dead = True

    def _take(self, message: object) -> None:
        match message:
            case RunAdvanced(number) | RunEnded(number):
                if (run := self._runs.get(number)) is not None:  # else it is over
                    run.put(message)
            case StatusUpdate(number, status, late):
                if (monitor := self._monitors.get(number)) is not None:
                    monitor.told(status, late)
            case Picture(number):
                if (pictures := self._pictures.get(number)) is not None:
                    pictures.put(message)
            case Logged(record):
                logging.getLogger(record.name).handle(record)


class Processes(Segmenter):
    """A session whose runs go to several processes, each with a GPU in turn: each run to the one that has the fewest.

    A process that dies takes its runs along, and no others. Files that shared it are begun again, each in a process of
    its own. The next run starts another process in its place. Use it as `Segmenter`, from several threads:

        with Processes(4, effect="blur:40") as session, ThreadPoolExecutor(16) as pool:
            reports = list(pool.map(session.run, videos))
    """

    def __init__(self, processes: int, config: Config | None = None, **options: Unpack[Options]) -> None:
        """Starts up to so many `processes`, as runs need them. Options are those of `Segmenter`.

        Raises `ConfigError`.
        """
        super().__init__(config, **options)
        if processes < 1:
            raise ConfigError(f"processes {processes}: give 1 or more")
        _check_sendable(self.config, f"processes {processes}")
        self._board = StreamBoard(_RemoteMonitor)
        self._gpus = visible_gpus(self.config)
        self._started: list[_Process] = []
        self._fork: ForkServer | None = None
        if hasattr(os, "memfd_create"):  # on Linux; elsewhere libraries don't survive a fork
            with _failures_named():
                self._fork = ForkServer(_WORKER)
        self._processes = SharedProcesses(self._start, processes)

    @property
    def streams(self) -> StreamBoard:
        return self._board

    def perform(self, request: RunRequest) -> Report:
        """Makes a run in one of the processes. Raises `ConfigError` for inputs, outputs and options that can't go."""
        if request.source.stream is not None:
            raise ConfigError(
                f"{request.source.text}: an input is a file or an address with --processes; leave it out for others"
            )
        if not isinstance(request.target, Path | OutputAddress | None):
            raise ConfigError("processes: an output is a file or an address there, no pipe and no file object")
        if not isinstance(request.config.results, str | Path | None):  # what is sent would be a copy
            raise ConfigError("processes: results go to a file or an address there, not to a file object")
        _check_sendable(request.config, "processes")
        live, request = request.source.is_live, replace(request, config=self._config_there(request.config))
        with self._processes.lent() as process:
            try:
                return process.run(request)
            except _Died as exc:
                if live or not process.shared:
                    raise
                log.warning("%s; the file is begun again in a process of its own", exc)
        process = self._start()
        try:
            return process.run(request)
        finally:
            process.end()
            process.close()

    def close(self) -> None:
        self._processes.close()
        if self._fork is not None:
            self._fork.close()
        super().close()

    def _start(self) -> _Process:
        """Starts a process on the GPU that the fewest others have."""
        self._started = [process for process in self._started if process.is_alive()]
        taken = Counter(process.gpu for process in self._started)
        gpu = min(self._gpus, key=lambda name: taken[name], default=None)
        process = _Process(self._config_there(self.config), gpu, self._fork)
        self._started.append(process)
        return process

    def _config_there(self, config: Config) -> Config:
        """Returns the options for a process, which sees one GPU alone."""
        return config if not self._gpus or config.device is None else replace(config, device="cuda:0")


@contextmanager
def _failures_named() -> Iterator[None]:
    """Raises `SegmentationError` where a process can't be started."""
    try:
        yield
    except OSError as exc:
        raise SegmentationError(f"processes: none can be started ({one_line(exc)})") from exc


def _check_sendable(config: Config, label: str) -> None:
    """Raises `ConfigError` for options that can't be sent to a process, such as a function."""
    try:
        pickle.dumps(config)
    except Exception as exc:
        raise ConfigError(f"{label}: an option can't be sent to them ({one_line(exc)})") from exc


def session(processes: int, config: Config | None = None, **options: Unpack[Options]) -> Segmenter:
    """Returns a session in this process, or in several. Raises `ConfigError`."""
    return Segmenter(config, **options) if processes == 1 else Processes(processes, config, **options)
