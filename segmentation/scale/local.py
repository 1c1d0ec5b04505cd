"""Workers that are processes of this machine: one a GPU, or with a share of the cores each."""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait

from segmentation.errors import BackendError, one_line
from segmentation.gpu.discovery import visible_gpus
from segmentation.options.config import Config
from segmentation.pipeline.planning.parallelism import local_workers
from segmentation.scale.protocol import Done, Event, Task
from segmentation.scale.supervised import SupervisedPool
from segmentation.scale.worker import Setup, Shorten, Sign, Stop, WorkerPlace
from segmentation.system.linked_process import LinkedProcess

_GRACE = 5.0  # seconds for a process to end, or to go on amid a message
_LONG = 10.0  # seconds after the first piece: in shorter runs a spare process costs more than it can save


class LocalWorkers(SupervisedPool[LinkedProcess]):
    """See `WorkerPool`: processes.

    On GPUs, in longer runs, a spare process waits to take the place of one that is lost. It has imported PyTorch and
    others already, which takes more than a third of a start.
    """

    def __init__(self, number: int | None, config: Config) -> None:
        """`number` of workers; by default one a GPU, or one for each `CORES_OF_WORKER` cores where there is none.

        Raises `BackendError` where no process can be started.
        """
        super().__init__(config)
        self._gpus = visible_gpus(config)
        self._spare: LinkedProcess | None = None
        self._first: float | None = None  # when a piece was done, on the monotonic clock
        self._begin_all(number or local_workers(len(self._gpus)), gpus=bool(self._gpus))

    def _receive(self, timeout: float) -> list[Event]:
        by_connection = {process.link: name for name, process in self._handles.items()}
        found: list[Event] = []
        for connection in wait(list(by_connection), timeout):
            assert isinstance(connection, Connection)
            name = by_connection[connection]
            try:
                message = connection.recv()
            except (EOFError, OSError):
                found.append(self._lost(name, _last_words(self._handles[name])))
                continue
            self._watch.sign(name)
            if not isinstance(message, Sign):
                found += self._reported(name, [message])
        return found

    def _reported(self, name: str, events: Iterable[Event]) -> list[Event]:
        found = super()._reported(name, events)
        now = time.monotonic()
        if self._first is None and any(isinstance(event, Done) for event in found):
            self._first = now
        if self._gpus and self._spare is None and self._first is not None and now - self._first > _LONG:
            self._start_spare()
        return found

    def _start_spare(self) -> None:
        with suppress(BackendError):  # a worker that is lost will do without
            self._spare = _started({}, "in-advance")

    def _launch(self, name: str, setup: Setup) -> LinkedProcess:
        number = self.names.index(name)
        gpu = {"CUDA_VISIBLE_DEVICES": self._gpus[number % len(self._gpus)]} if self._gpus else {}
        cores = _share(number, len(self.names)) if hasattr(os, "sched_setaffinity") else None
        process = self._taken_spare()
        if process is not None:
            setup = replace(setup, place=WorkerPlace(gpu, cores))
        else:
            with _on(cores):
                process = _started(gpu)
        self._send(process, setup)
        self._watch.start(name)
        return process

    def _taken_spare(self) -> LinkedProcess | None:
        """Returns the spare process, which is none any more; `None` if there is none that lives."""
        process, self._spare = self._spare, None
        if process is not None and not process.is_alive():
            self._end(process)
            return None
        return process

    def close(self) -> None:
        super().close()
        spare = self._taken_spare()
        if spare is not None:
            self._end(spare)

    def _send(self, handle: LinkedProcess, message: Setup | Task | Shorten | Stop) -> None:
        try:
            handle.link.send(message)
        except OSError:  # it is gone, as `events` will say, or stands still with a part of the message
            handle.kill()

    def _end(self, handle: LinkedProcess) -> None:
        handle.link.close()
        handle.kill()
        handle.close(0)


def _started(environment: dict[str, str], *arguments: str) -> LinkedProcess:
    """Starts a process with these variables besides. Raises `BackendError`, or `OSError` where descriptors run out."""
    try:
        process = LinkedProcess("segmentation.scale.worker", arguments=arguments, environment=environment, quiet=True)
    except OSError as exc:
        if exc.errno in (errno.EMFILE, errno.ENFILE):
            raise
        raise BackendError(f"workers: no process can be started ({one_line(exc)})") from exc
    _limit_waits(process.link)
    return process


def _limit_waits(connection: Connection) -> None:
    """Lets reading and writing fail with `OSError` when a process stands still amid a message."""
    seconds, rest = divmod(_GRACE, 1)
    limit = struct.pack("ll", int(seconds), int(rest * 1e6))  # a `timeval`
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def _last_words(process: LinkedProcess) -> str:
    """Returns how a process has ended, with the last line that it has written."""
    death = process.describe_death(_GRACE)
    return "stands still amid a message" if process.is_alive() else death


def _share(place: int, workers: int) -> set[int]:
    """Returns the cores of one of so many workers."""
    cores = sorted(os.sched_getaffinity(0))
    if workers >= len(cores):
        return {cores[place % len(cores)]}
    return set(cores[place * len(cores) // workers : (place + 1) * len(cores) // workers])


@contextmanager
def _on(cores: set[int] | None) -> Iterator[None]:
    """Lets processes that this thread starts meanwhile run on these cores alone, where the system has that choice."""
    if cores is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
