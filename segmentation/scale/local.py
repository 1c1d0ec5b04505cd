"""Workers that are processes of this machine: one a GPU, or with a share of the cores each."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import IO

from segmentation.config import Config
from segmentation.cores import core_count
from segmentation.errors import BackendError, one_line
from segmentation.gpu.discovery import find_gpu
from segmentation.scale.worker import Setup, Shorten, Stop
from segmentation.scale.workers import Done, Event, Lost, Task, Unable, WorkerPool

log = logging.getLogger(__name__)

CORES = 4  # for each of `auto`'s workers without a GPU
_STARTS = 3  # in a row without a complete piece, after which a worker is not started again
_GRACE = 5.0  # seconds for a process to end


@dataclass(slots=True)
class _Process:
    popen: subprocess.Popen[bytes]
    connection: Connection
    stderr: IO[bytes]


class LocalWorkers(WorkerPool):
    """See `WorkerPool`. A process that dies is started again."""

    def __init__(self, number: int | None, config: Config) -> None:
        """`number` of workers; by default one a GPU, or one for each `CORES` cores where there is none.

        Raises `BackendError` where no process can be started.
        """
        gpus = _gpus(config)
        self.size = number or len(gpus) or max(1, core_count() // CORES)
        self._config = replace(config, device="cuda:0") if gpus else config
        self._gpus = gpus
        self._starts = {f"worker {place + 1}": 0 for place in range(self.size)}
        self._processes: dict[str, _Process] = {}
        for name in self._starts:
            self._begin(name)

    @property
    def left(self) -> int:
        return len(self._processes)

    def events(self, timeout: float) -> list[Event]:
        by_connection = {process.connection: name for name, process in self._processes.items()}
        found: list[Event] = []
        for connection in wait(list(by_connection), timeout):
            assert isinstance(connection, Connection)
            name = by_connection[connection]
            try:
                event: Event = connection.recv()
            except (EOFError, OSError):
                event = Lost(name, self._last_words(name))
                self._begin_again(name)
            if isinstance(event, Done):
                self._starts[name] = 0
            elif isinstance(event, Unable):
                self.dismiss(name)
            found.append(event)
        return found

    def start(self, worker: str, task: Task) -> None:
        self._send(worker, task)

    def shorten(self, worker: str, end: int) -> None:
        self._send(worker, Shorten(end))

    def stop(self, worker: str) -> None:
        self._send(worker, Stop())

    def dismiss(self, worker: str) -> None:
        process = self._processes.pop(worker, None)
        if process is not None:
            _end(process)

    def close(self) -> None:
        for worker in list(self._processes):
            self.dismiss(worker)

    def _send(self, worker: str, message: object) -> None:
        process = self._processes.get(worker)
        if process is not None:
            with suppress(OSError):  # it is gone, as `events` will say
                process.connection.send(message)

    def _begin(self, name: str) -> None:
        """Starts a process."""
        place = int(name.rpartition(" ")[2]) - 1
        ours, theirs = Pipe()
        stderr = tempfile.TemporaryFile()  # noqa: SIM115
        # -P as for the encoders' process: no module of the current folder is imported.
        command = [sys.executable, "-P", "-m", "segmentation.scale.worker", str(theirs.fileno())]
        try:
            with theirs, _on_share_of_cores(place, self.size):
                popen = subprocess.Popen(
                    command,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=stderr,
                    stderr=stderr,
                    process_group=0,
                    env=self._environment(place),
                )
        except OSError as exc:
            raise BackendError(f"workers: no process can be started ({one_line(exc)})") from exc
        self._processes[name] = _Process(popen, ours, stderr)
        self._send(name, Setup(name, self._config))

    def _begin_again(self, name: str) -> None:
        self.dismiss(name)
        self._starts[name] += 1
        if self._starts[name] < _STARTS:
            self._begin(name)
        else:
            log.warning("%s has died %d times without a complete piece, and is not started again", name, _STARTS)

    def _environment(self, place: int) -> dict[str, str]:
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        gpu = {"CUDA_VISIBLE_DEVICES": self._gpus[place % len(self._gpus)]} if self._gpus else {}
        return {**os.environ, "PYTHONPATH": path, **gpu}

    def _last_words(self, name: str) -> str:
        """Returns how a process has ended, with the last line that it has written."""
        process = self._processes[name]
        with suppress(subprocess.TimeoutExpired):
            process.popen.wait(_GRACE)
        process.stderr.seek(0)
        lines = process.stderr.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        code = process.popen.poll()
        how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
        return f"{how}{f' ({one_line(last)})' if last else ''}"


def _end(process: _Process) -> None:
    process.connection.close()
    process.popen.kill()
    process.popen.wait()
    process.stderr.close()


def _gpus(config: Config) -> list[str]:
    """Returns what `CUDA_VISIBLE_DEVICES` is to be for a worker on each of the GPUs; empty for the CPU."""
    if config.device == "cpu" or config.mode == "baseline" or find_gpu() is None:
        return []
    visible = [part for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part]
    names = [visible[i] if visible else str(i) for i in _numbers()]
    if config.device is not None and ":" in config.device:
        return names[int(config.device.partition(":")[2]) :][:1]
    return names


def _numbers() -> Iterator[int]:
    """Yields the numbers of this process's GPUs."""
    for number in count():
        if find_gpu(number) is None:
            return
        yield number


def _share(place: int, workers: int) -> set[int]:
    """Returns the cores of one of so many workers."""
    cores = sorted(os.sched_getaffinity(0))
    if workers >= len(cores):
        return {cores[place % len(cores)]}
    return set(cores[place * len(cores) // workers : (place + 1) * len(cores) // workers])


@contextmanager
def _on_share_of_cores(place: int, workers: int) -> Iterator[None]:
    """Lets processes that this thread starts meanwhile run on one worker's cores alone, where the system has that."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, _share(place, workers))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
