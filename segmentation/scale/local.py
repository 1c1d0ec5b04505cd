"""Workers that are processes of this machine: one a GPU, or with a share of the cores each."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import ClassVar

from segmentation.errors import BackendError, one_line
from segmentation.gpu.discovery import visible_gpus
from segmentation.options.config import Config
from segmentation.pipeline.planning.parallelism import local_workers
from segmentation.scale.protocol import Event, Task
from segmentation.scale.supervised import SupervisedPool
from segmentation.scale.worker import Setup, Shorten, Sign, Stop
from segmentation.system.fork_server import ForkServer
from segmentation.system.linked_process import LinkedProcess

_GRACE = 5.0  # seconds for a process to end, or to go on amid a message
_WORKER = "segmentation.scale.worker"


class LocalWorkers(SupervisedPool[LinkedProcess]):
    """See `WorkerPool`: processes, forked from one that has imported what they need."""

    end_with_process: ClassVar[bool] = True

    def __init__(self, number: int | None, config: Config) -> None:
        """`number` of workers; by default one a GPU, or one for each `CORES_OF_WORKER` cores where there is none.

        Raises `BackendError` where no process can be started.
        """
        super().__init__(config)
        self._awake, self._waker = Pipe(duplex=False)
        self._gpus = visible_gpus(config)
        with _failures_named():
            self._server = ForkServer(_WORKER)
        self._begin_all(number or local_workers(len(self._gpus)), gpus=bool(self._gpus))

    def _receive(self, timeout: float) -> list[Event]:
        by_connection = {process.link: name for name, process in self._handles.items()}
        found: list[Event] = []
        for connection in wait([*by_connection, self._awake], timeout):
            assert isinstance(connection, Connection)
            if connection is self._awake:
                connection.recv_bytes()
                continue
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

    def wake(self) -> None:
        with suppress(OSError):  # they are closed
            self._waker.send_bytes(b"")

    def _launch(self, name: str, setup: Setup) -> LinkedProcess:
        number = self.names.index(name)
        gpu = {"CUDA_VISIBLE_DEVICES": self._gpus[number % len(self._gpus)]} if self._gpus else {}
        with _failures_named():
            process = LinkedProcess(_WORKER, environment=gpu, quiet=True, fork=self._server)
        _limit_waits(process.link)
        self._send(process, replace(setup, cores=_share(number, len(self.names))))
        self._watch.start(name)
        return process

    def close(self) -> None:
        for process in self._handles.values():
            process.kill()  # all at once: a driver of GPUs takes a while for each
        super().close()
        self._server.close()
        self._waker.close()
        self._awake.close()

    def _send(self, handle: LinkedProcess, message: Setup | Task | Shorten | Stop) -> None:
        try:
            handle.link.send(message)
        except OSError:  # it is gone, as `events` will say, or stands still with a part of the message
            handle.kill()

    def _end(self, handle: LinkedProcess) -> None:
        if not handle.is_started():  # else the server would first have to import all
            self._server.kill()
        handle.link.close()
        handle.kill()
        handle.close(0)


@contextmanager
def _failures_named() -> Iterator[None]:
    """Raises `BackendError` where a process can't be started, or `OSError` where descriptors run out."""
    try:
        yield
    except OSError as exc:
        if exc.errno in (errno.EMFILE, errno.ENFILE):
            raise
        raise BackendError(f"workers: no process can be started ({one_line(exc)})") from exc


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
