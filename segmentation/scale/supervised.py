"""Starts workers and starts them again when they are lost, be they processes or actors."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Generic, TypeVar

from segmentation.options.config import Config
from segmentation.scale import watch
from segmentation.scale.protocol import Advanced, Done, Ended, Event, Lost, PieceTask, Task, Unable, WorkerPool
from segmentation.scale.worker import Setup, Shorten, Stop

log = logging.getLogger(__name__)

_STARTS = 3  # in a row without a complete piece, after which a worker is not started again

Handle = TypeVar("Handle")  # of one worker, such as its process


class SupervisedPool(WorkerPool, Generic[Handle]):
    """See `WorkerPool`. A worker that dies is started again. So is one that stands still, after it was ended."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._handles: dict[str, Handle] = {}
        self._starts: dict[str, int] = {}  # in a row without a complete piece
        self._watch = watch.Watch()

    def _begin_all(self, number: int, *, gpus: bool) -> None:
        """Starts so many workers. With `gpus` each of them sees one GPU, its first."""
        if gpus:
            self._config = replace(self._config, device="cuda:0")
        self.names = tuple(f"worker {place + 1}" for place in range(number))
        self._starts = dict.fromkeys(self.names, 0)
        for name in self.names:
            self._begin(name)

    def _begin(self, name: str) -> None:
        self._handles[name] = self._launch(name, Setup(name, self._config, watch.SILENCE_AT_WORK / watch.SIGNS))

    @abstractmethod
    def _launch(self, name: str, setup: Setup) -> Handle:
        """Starts a worker."""

    @abstractmethod
    def _receive(self, timeout: float) -> list[Event]:
        """Returns what has happened as `events` does, and gives the signs of life to the watch."""

    @abstractmethod
    def _send(self, handle: Handle, message: Task | Shorten | Stop) -> None:
        """Sends a message to a worker, which may be gone already."""

    @abstractmethod
    def _end(self, handle: Handle) -> None:
        """Ends a worker, also one that stands still."""

    @property
    def left(self) -> int:
        return len(self._handles)

    def events(self, timeout: float) -> list[Event]:
        found = self._receive(timeout)
        return found + [self._lost(name, reason) for name, reason in self._watch.overdue().items()]

    def start(self, worker: str, task: Task) -> None:
        if isinstance(task, PieceTask):
            self._watch.begin(worker)
        self._tell(worker, task)

    def shorten(self, worker: str, end: int) -> None:
        self._tell(worker, Shorten(end))

    def stop(self, worker: str) -> None:
        self._tell(worker, Stop())

    def dismiss(self, worker: str) -> None:
        self._watch.forget(worker)
        handle = self._handles.pop(worker, None)
        if handle is not None:
            self._end(handle)

    def close(self) -> None:
        for worker in list(self._handles):
            self.dismiss(worker)

    def _tell(self, worker: str, message: Task | Shorten | Stop) -> None:
        handle = self._handles.get(worker)
        if handle is not None:
            self._send(handle, message)

    def _reported(self, name: str, events: Iterable[Event]) -> list[Event]:
        """Returns what a worker has reported, after its consequences for the worker itself."""
        found = list(events)
        for event in found:
            match event:
                case Advanced(frames=frames) if frames:
                    self._watch.frame(name)
                case Done():
                    self._starts[name] = 0
                case Ended():
                    self._watch.end(name)
                case Unable():
                    self.dismiss(name)
        return found

    def _lost(self, name: str, reason: str) -> Lost:
        """Starts a worker that is gone again, unless that has been in vain. Returns the event."""
        self.dismiss(name)
        self._starts[name] += 1
        if self._starts[name] < _STARTS:
            self._begin(name)
        else:
            log.warning("%s was lost %d times without a complete piece, and is not started again", name, _STARTS)
        return Lost(name, reason)
