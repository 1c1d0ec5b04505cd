"""How long stages take, measured from outside, and their ranges for profilers."""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from segmentation.config import STAGES

try:
    import nvtx
except ImportError:  # it comes with the GPU packages
    nvtx = None

T = TypeVar("T")


class StageClock:
    """Measures each call, or each step of an iterator: on the host, how long it keeps its thread; for a stage on a GPU,
    how long the GPU takes for what it queues, between two events that nobody waits for.

    For profilers every call is an NVTX range with the stage's name and the call's number as payload.
    """

    def __init__(self, gpu: Any = None) -> None:
        self._seconds = dict.fromkeys(STAGES, 0.0)
        self._calls = dict.fromkeys(STAGES, 0)
        self._gpu = gpu
        self._events: deque[tuple[str, Any, Any]] = deque()  # of stages on the GPU, in the order of queueing
        self._lock = threading.Lock()

    def call(self, stage: str, function: Callable[..., T], *arguments: Any) -> T:
        """Calls `function`, on `stage`'s account."""
        self._calls[stage] += 1
        with self._range(stage):
            if self._gpu is not None and getattr(function, "memory", None) == "cuda":
                return self._queued(stage, function, arguments)
            begin = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self._add(stage, time.perf_counter() - begin)

    def steps(self, stage: str, source: Iterable[T]) -> Generator[T, None, None]:
        """The items of `source`, each fetched on `stage`'s account."""
        iterator = iter(source)
        end = object()
        while (item := self.call(stage, next, iterator, end)) is not end:
            yield item

    def totals(self) -> dict[str, float]:
        """Seconds by stage. What is queued must be over."""
        self._collect()
        return dict(self._seconds)

    def _queued(self, stage: str, function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        begin, end = self._gpu.event(), self._gpu.event()
        begin.record(self._gpu.stream)
        try:
            return function(*arguments)
        finally:
            end.record(self._gpu.stream)
            self._events.append((stage, begin, end))
            self._collect()

    def _collect(self) -> None:
        """Adds up what has passed."""
        with self._lock:
            while self._events and self._events[0][2].query():
                stage, begin, end = self._events.popleft()
                self._seconds[stage] += begin.elapsed_time(end) / 1000

    def _add(self, stage: str, seconds: float) -> None:
        with self._lock:
            self._seconds[stage] += seconds

    def _range(self, stage: str) -> AbstractContextManager[Any]:
        if nvtx is None:
            return nullcontext()
        annotation: AbstractContextManager[Any] = nvtx.annotate(
            stage, domain="segmentation", payload=self._calls[stage]
        )
        return annotation
