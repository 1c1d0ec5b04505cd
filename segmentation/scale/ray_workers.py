"""Workers that are actors of Ray, on one machine or many. No other module imports Ray."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # before the import, else Ray reports to its makers

import ray
import ray.exceptions

from segmentation.errors import BackendError, OutputError, SegmentationError, one_line
from segmentation.options.config import Config
from segmentation.pipeline.planning.parallelism import CORES_OF_WORKER
from segmentation.scale.piece_folder import PieceFolder
from segmentation.scale.protocol import Done, Ended, Event, PieceTask, Task
from segmentation.scale.storage import StorageLost
from segmentation.scale.supervised import SupervisedPool
from segmentation.scale.worker import Setup, Shorten, Stop, Worker
from segmentation.system.atomic_file import write_atomically
from segmentation.system.safe_files import SAFE

_CONNECT = 10.0  # seconds
_EVENTS = 1.0  # seconds that a call for events waits in a worker
_LEAVE = 1.0  # seconds that a worker has to tidy up; one that is gone takes none, one that stands still all

Reported = tuple[Event, bytes]  # the bytes of a complete piece: the driver's disk need not be the worker's


class _Actor:
    """A worker in the process of an actor. Its pieces lie in a temporary folder until they are fetched."""

    def __init__(self, setup: Setup, folder: str) -> None:
        """`folder` is the driver's current one, from which names in options lead."""
        with contextlib.suppress(OSError):  # not on this node
            os.chdir(folder)
        self._events: queue.SimpleQueue[Reported] = queue.SimpleQueue()
        self._folder = tempfile.TemporaryDirectory(prefix="segmentation-", ignore_cleanup_errors=True)
        self._worker = Worker(setup, self._send)

    def prepare(self) -> None:
        self._worker.prepare()

    def take(self, message: Task | Shorten | Stop) -> None:
        if isinstance(message, PieceTask):
            self._task = tempfile.mkdtemp(dir=self._folder.name)
            message = replace(message, folder=self._task)
        self._worker.take(message)

    def events(self) -> list[Reported]:
        """Returns what has happened since the last call."""
        with contextlib.suppress(queue.Empty):
            return [self._events.get(timeout=_EVENTS)]
        return []

    def leave(self) -> None:
        """Deletes the folder: `ray.kill` leaves an actor no time for it."""
        self._folder.cleanup()

    def _send(self, event: Event) -> None:
        data = b""
        if isinstance(event, Done):
            file = PieceFolder(Path(self._task)).file(event.piece)
            data = file.read_bytes()
            file.unlink()
        self._events.put((event, data))


# Groups of one thread each: orders to an actor keep their order, and are not kept waiting by a call for events.
_REMOTE = ray.remote(max_restarts=0, concurrency_groups={"orders": 1, "events": 1})(_Actor)


class RayWorkers(SupervisedPool[Any]):
    """See `WorkerPool`: an actor for each GPU of a cluster, or for a few cores where there is none.

    An actor that is made anew waits for room in the cluster, and gets no work before it has answered. From then on each
    answer to a call for events, also an empty one, is a sign of life.
    """

    def __init__(self, address: str | None, config: Config) -> None:
        """`address` of the cluster's head; without one, a cluster of this machine is begun, and ended by `close`.

        Raises `BackendError`.
        """
        super().__init__(config)
        self._calls: dict[Any, str] = {}  # for events: reference to worker
        self._folders: dict[str, str] = {}  # of a worker's task, on this machine
        self._unwritten: dict[str, SegmentationError] = {}  # why a piece of a worker's task can't be written here
        try:
            _reach(address or "")
            # "local": without an address Ray would join a cluster that somebody has begun here.
            options: dict[str, Any] = {} if address else {"include_dashboard": False}
            try:
                ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **options)
            finally:
                _guard_token(Path.home() / ".ray" / "auth_token")
        except (ConnectionError, RuntimeError, ValueError, OSError) as exc:
            failed = f"ray:{address}: no cluster can be reached" if address else "ray: no cluster can be started"
            reason = one_line(exc)
            if type(exc) is ConnectionError:  # Ray's own: somebody listens there
                reason += "; a cluster that asks for a token needs RAY_AUTH_MODE=token"
            raise BackendError(f"workers {failed} ({reason})") from exc
        size, cores, gpus = _room([node["Resources"] for node in ray.nodes() if node["Alive"]], config)
        # The number of cores sets OMP_NUM_THREADS, which Ray would make 1. Inside an actor its GPU is the first one.
        self._resources = {"num_cpus": cores, "num_gpus": gpus}
        self._begin_all(size, gpus=bool(gpus))

    def _receive(self, timeout: float) -> list[Event]:
        if not self._calls:  # no actor is left
            time.sleep(timeout)
            return []
        found: list[Event] = []
        ray.wait(list(self._calls), num_returns=1, timeout=timeout)
        ready, _ = ray.wait(list(self._calls), num_returns=len(self._calls), timeout=0)  # all, lest one seem silent
        for call in ready:
            name = self._calls.pop(call)
            try:
                reported: list[Reported] = ray.get(call)  # at once: what a dead node holds is missed late
            except ray.exceptions.RayError as exc:
                found.append(self._lost(name, f"was lost ({one_line(str(exc).splitlines()[0])})"))
                continue
            self._watch.sign(name)
            self._ask(name, self._handles[name])
            received = (self._received(name, event, data) for event, data in reported)
            found += self._reported(name, filter(None, received))
        return found

    def start(self, worker: str, task: Task) -> None:
        if isinstance(task, PieceTask):
            self._folders[worker] = task.folder
        super().start(worker, task)

    def dismiss(self, worker: str) -> None:
        self._calls = {call: name for call, name in self._calls.items() if name != worker}
        super().dismiss(worker)

    def close(self) -> None:
        super().close()
        ray.shutdown()

    def _launch(self, name: str, setup: Setup) -> Any:
        self._unwritten.pop(name, None)
        actor = _REMOTE.options(**self._resources).remote(setup, os.getcwd())
        actor.prepare.options(concurrency_group="orders").remote()
        self._ask(name, actor)
        return actor

    def _send(self, handle: Any, message: Task | Shorten | Stop) -> None:
        handle.take.options(concurrency_group="orders").remote(message)

    def _end(self, handle: Any) -> None:
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(handle.leave.options(concurrency_group="orders").remote(), timeout=_LEAVE)
        ray.kill(handle)

    def _ask(self, name: str, actor: Any) -> None:
        self._calls[actor.events.options(concurrency_group="events").remote()] = name

    def _received(self, name: str, event: Event, data: bytes) -> Event | None:
        """Puts a piece into its folder. Where that fails, the worker's task ends with the error."""
        if isinstance(event, Ended) and name in self._unwritten:
            return replace(event, error=self._unwritten.pop(name))
        if isinstance(event, Done):
            if name in self._unwritten:
                return None
            file = PieceFolder(Path(self._folders[name])).file(event.piece)
            try:
                write_atomically(file, data)
            except OSError as exc:
                gone = not file.parent.is_dir()
                error = f"{file.parent if gone else file}: cannot be written ({one_line(exc)})"
                self._unwritten[name] = StorageLost(error) if gone else OutputError(error)
                self.stop(name)
                return None
        return event


def _guard_token(path: Path) -> None:
    """Takes the token, which Ray may have made, from other users: whoever reads it can run anything on the cluster."""
    with contextlib.suppress(OSError):  # there is none
        descriptor = os.open(path, os.O_RDONLY | SAFE)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)


def _reach(address: str) -> None:
    """Raises `OSError` if nobody listens at `HOST:PORT`: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.rpartition("/")[2], int(port)), _CONNECT).close()


def _room(nodes: list[dict[str, float]], config: Config) -> tuple[int, int, int]:
    """Returns how many workers nodes with these resources have room for, and the cores and GPUs of each worker."""
    if config.device != "cpu" and (with_gpus := [node for node in nodes if node.get("GPU", 0) >= 1]):
        cores = min(int(node.get("CPU", 1) // node["GPU"]) for node in with_gpus)
        return sum(int(node["GPU"]) for node in with_gpus), max(1, cores), 1
    counts = [int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= 1]
    cores = min([CORES_OF_WORKER, *counts])
    return max(1, sum(count // cores for count in counts)), cores, 0
