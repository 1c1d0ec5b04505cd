"""How long stages take, measured from outside, and their ranges for profilers and traces."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from segmentation.flow.trace import DeviceClock, Label, Trace, label
from segmentation.frames import FrameBatch, Memory
from segmentation.gpu.errors import gpu_errors
from segmentation.options.config import STAGES

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu
    from segmentation.gpu.cuda_calls import Event

try:
    import nvtx
except ImportError:  # it comes with the GPU packages
    nvtx = None

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class _Stage(Protocol[T_co]):
    @property
    def memory(self) -> Memory: ...

    def __call__(self, *arguments: Any) -> T_co: ...


class StageClock:
    """Measures each call, or each step of an iterator, on a stage's account.

    On the host that is the time that the thread spends. For a stage on a GPU it is the time that the GPU takes for the
    work queued, between two events on its stream, for which no thread waits. Errors of GPU libraries are translated
    here, see `gpu_errors`.

    For profilers every call is an NVTX range with the stage's name and the batch's number as payload. Other work, such
    as `mux`, may be called on an account of its own, which `totals` leaves out.
    """

    def __init__(self, gpu: Gpu | None = None, trace: Trace | None = None) -> None:
        self._seconds = dict.fromkeys(STAGES, 0.0)
        self._gpu = gpu
        self._trace = trace
        self._placed = DeviceClock(gpu) if gpu is not None and trace is not None else None
        # Of stages on the GPU, in the order of queueing: name, batch, when they were queued, and the events around.
        self._events: deque[tuple[str, Label, int, Event, Event]] = deque()
        self._lock = threading.Lock()

    def call(self, stage: str, batch: FrameBatch | None, function: Callable[..., T], *arguments: object) -> T:
        """Calls `function` on `stage`'s account; `batch` labels the call in a trace."""
        with _range(stage, None if batch is None else batch.number):
            begin = time.perf_counter_ns()
            with gpu_errors():
                result = function(*arguments)
            self._add(stage, batch, begin)
            return result

    def stage(self, name: str, batch: FrameBatch, stage: _Stage[T], *arguments: object) -> T:
        """Calls a stage on its own account: on a GPU, the time is that of the work that it queues."""
        if self._gpu is None or stage.memory == "host":
            return self.call(name, batch, stage, *arguments)
        with _range(name, batch.number), gpu_errors():
            return self._queued(self._gpu, name, batch, stage, arguments)

    def steps(self, stage: str, source: Iterable[FrameBatch]) -> Generator[FrameBatch, None, None]:
        """The batches of `source`, each fetched on `stage`'s account."""
        iterator = iter(source)
        number = 0
        while True:
            with _range(stage, number):
                begin = time.perf_counter_ns()
                with gpu_errors():
                    batch = next(iterator, None)
                self._add(stage, batch, begin)
            if batch is None:
                return
            number = batch.number + 1
            yield batch

    def totals(self) -> dict[str, float]:
        """Seconds by stage. All queued work must be over."""
        self._collect()
        return dict(self._seconds)

    def _queued(
        self, gpu: Gpu, stage: str, batch: FrameBatch, function: Callable[..., T], arguments: tuple[object, ...]
    ) -> T:
        queued = time.perf_counter_ns()
        begin = gpu.record_event(timed=True)
        result = function(*arguments)
        end = gpu.record_event(timed=True)
        if self._trace is not None:
            self._trace.span(stage, label(batch), queued, time.perf_counter_ns())
        self._events.append((stage, label(batch), queued, begin, end))
        self._collect()
        return result

    def _collect(self) -> None:
        """Adds up the events that have passed."""
        with self._lock:
            while self._events and self._events[0][-1].query():
                stage, about, queued, begin, end = self._events.popleft()
                self._seconds[stage] += begin.elapsed_time(end) / 1000
                if self._trace is not None and self._placed is not None:
                    seen = time.perf_counter_ns()
                    self._trace.gpu_span(stage, about, *self._placed.place(begin, end, queued, seen))

    def _add(self, stage: str, batch: FrameBatch | None, begin: int) -> None:
        end = time.perf_counter_ns()
        if self._trace is not None:
            self._trace.span(stage, label(batch), begin, end)
        with self._lock:
            if stage in self._seconds:
                self._seconds[stage] += (end - begin) / 1e9


def _range(stage: str, number: int | None) -> AbstractContextManager[object]:
    if nvtx is None:
        return nullcontext()
    annotation: AbstractContextManager[object] = nvtx.annotate(stage, domain="segmentation", payload=number)
    return annotation
