"""Dynamic batching: what several runs bring at the same time goes through a network on a GPU together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from segmentation.gpu.errors import gpu_errors

if TYPE_CHECKING:  # the tests run this class on machines that lack the libraries of `Gpu`
    from segmentation.gpu.context import Gpu
    from segmentation.gpu.cuda_calls import Event


class BatchRequest(Protocol):
    """Pictures of one run that wait for the network."""

    @property
    def count(self) -> int: ...


Q = TypeVar("Q", bound=BatchRequest)
R = TypeVar("R")


@dataclass(eq=False, slots=True)
class _Waiting(Generic[Q, R]):
    """A request that waits for its result."""

    request: Q
    results: list[R] = field(default_factory=list)  # one, once the batch with it is queued


class DynamicBatcher(Generic[Q, R]):
    """Makes batches for a network that takes as long for one picture as for a batch.

    While the GPU is busy with the last batch, and while other threads have their turn, pictures of several runs gather.
    The thread that comes next takes those of all runs along, in one batch. A picture that is alone waits for nothing,
    and a full batch neither, nor what follows one: the last batch of a chunk is short, and a single run that waited
    there, for pictures that nobody brings, would leave the GPU idle.
    """

    def __init__(self, size: int, turn: AbstractContextManager[object], gpu: Gpu) -> None:
        """`size` of a batch, in pictures. `turn` is held while one is queued on the stream of `gpu`."""
        self.size = size
        self._turn, self._gpu = turn, gpu
        self._last: Event | None = None  # passes when the GPU has done the last batch; none behind a full one
        self._waiting: list[_Waiting[Q, R]] = []
        self._lock = threading.Lock()

    def __call__(self, request: Q, work: Callable[[list[Q]], list[R]]) -> R:
        """Returns the result of the request. At most `size` pictures may be in it.

        `work` queues a batch and returns the result of each request; what it raises is raised here. It is the same for
        all calls. To keep it would be a cycle of references, and a network's memory would come back late.
        """
        assert 0 < request.count <= self.size
        own: _Waiting[Q, R] = _Waiting(request)
        with self._lock:
            self._waiting.append(own)
            full = sum(other.request.count for other in self._waiting) >= self.size
        try:
            if (last := self._last) is not None and not full:
                with gpu_errors():
                    last.synchronize()
            with self._turn:
                if not own.results:
                    self._answer(self._taken(own), work)
            return own.results[0]
        finally:
            with self._lock, suppress(ValueError):
                self._waiting.remove(own)  # it failed

    def _taken(self, own: _Waiting[Q, R]) -> list[_Waiting[Q, R]]:
        """Returns a request and those that fit beside it, which no longer wait."""
        taken, room = [own], self.size - own.request.count
        with self._lock:
            self._waiting.remove(own)
            for other in tuple(self._waiting):
                if other.request.count <= room:
                    self._waiting.remove(other)
                    taken.append(other)
                    room -= other.request.count
        return taken

    def _answer(self, requests: list[_Waiting[Q, R]], work: Callable[[list[Q]], list[R]]) -> None:
        """Queues one batch. If that fails, it fails for the first request, and the others go on waiting."""
        try:
            results = work([one.request for one in requests])
            with gpu_errors():
                full = sum(one.request.count for one in requests) >= self.size
                self._last = None if full else self._gpu.record_event()
            for one, result in zip(requests, results, strict=True):
                one.results.append(result)
        except BaseException:
            with self._lock:
                self._waiting += requests[1:]
            raise
