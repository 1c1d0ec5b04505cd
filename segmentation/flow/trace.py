"""A timeline of the run, as a file for https://ui.perfetto.dev or chrome://tracing.

The JSON of the "Trace Event Format": complete events ("X") in microseconds, a track for each thread and one for the
GPU, counters ("C") for the queues. https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from segmentation.errors import OutputError, one_line
from segmentation.frames import FrameBatch
from segmentation.options.config import Config
from segmentation.system.atomic_file import PendingFile

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu
    from segmentation.gpu.cuda_calls import Event

log = logging.getLogger(__name__)

_KEPT = 512  # events that are held before they are written: the thread that writes them is busy for a millisecond
_GPU = 1000  # the GPU's track; threads count from 1
_Event = tuple[str, int, int, int, int, int]  # name, track, begin, duration, label
Label = tuple[int, int]  # a batch's number and that of its first frame: the batch itself would hold its pictures
NO_BATCH: Label = (-1, -1)
_QUEUE = -1  # instead of a track: the depth of a queue, in place of the duration


def label(batch: FrameBatch | None) -> Label:
    """The batch's label in an event."""
    return NO_BATCH if batch is None else (batch.number, batch.index)


class Trace:
    """Writes the file. Use as a context manager: leaving it without `finish` removes the file.

    Any thread may add events. They are written as they come, so memory does not grow with the length of the video. If
    writing fails, the run goes on, and `finish` raises the error. Times are those of `time.perf_counter_ns`.
    """

    def __init__(self, target: Path, source: str, overwrite: bool) -> None:
        self._pending = PendingFile(target, overwrite=overwrite)
        self._pending.check("--trace")
        self._target, self._source = target, source
        self._begin = time.perf_counter_ns()
        self._events: list[_Event] = []
        self._tracks: dict[int, int] = {}  # by Python's thread identifier
        self._names: dict[int, dict[str, None]] = {}  # of the events on each track, in order of appearance
        self._lock = threading.Lock()
        self._fault: OSError | None = None
        self._finished = False
        try:
            self._pending.create()
            self._file: TextIO = open(self._pending.address, "w", encoding="utf-8")  # noqa: SIM115
            self._file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        except BaseException as exc:  # an interrupt too: `__exit__` is not called without an object
            self._pending.discard()
            if isinstance(exc, OSError):
                raise self._error(exc) from exc
            raise

    def __enter__(self) -> Trace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._finished = True  # a thread that ends late adds nothing more
            self._pending.discard()  # which is not there any more, if `finish` came to its end
            try:
                self._file.close()
            except OSError as exc:
                log.debug("closing %s: %s", self._pending.path, exc)

    def span(self, name: str, label: Label, begin: int, end: int) -> None:
        """The calling thread was busy with a batch from `begin` to `end`."""
        thread = threading.get_ident()
        with self._lock:
            self._add(name, self._tracks.setdefault(thread, len(self._tracks) + 1), begin, end - begin, label)

    def gpu_span(self, name: str, label: Label, begin: int, end: int) -> None:
        """The GPU was busy with a batch."""
        with self._lock:
            self._add(name, _GPU, begin, end - begin, label)

    def depth(self, queue: str, items: int) -> None:
        """Notes the number of items in a queue."""
        with self._lock:
            self._add(queue, _QUEUE, time.perf_counter_ns(), items, NO_BATCH)

    def finish(self) -> None:
        """Completes the file and puts it in its place. Raises `OutputError`."""
        with self._lock:
            self._finished = True
            self._flush()
            try:
                about = {"source": Path(self._source).name, "clock": "time.perf_counter_ns, from the run's beginning"}
                self._file.write(f'{self._metadata()}\n],"otherData":{json.dumps(about)}}}\n')
                self._file.close()
                if self._fault is not None:
                    raise self._fault
                self._pending.commit()
            except OSError as exc:
                raise self._error(exc) from exc

    def _add(self, name: str, track: int, begin: int, value: int, label: Label) -> None:
        if self._finished:
            return
        self._events.append((name, track, begin - self._begin, value, *label))
        if len(self._events) == _KEPT:
            self._flush()

    def _flush(self) -> None:
        events, self._events = self._events, []
        if self._fault is not None:
            return
        pid = os.getpid()
        lines = []
        for name, track, begin, value, number, frame in events:
            when = f'"ts":{begin / 1000},"pid":{pid}'
            if track == _QUEUE:
                lines.append(f'{{"name":"{name}","cat":"queue","ph":"C",{when},"args":{{"waiting":{value}}}}},\n')
                continue
            self._names.setdefault(track, {}).setdefault(name)
            kind = "gpu" if track == _GPU else "host"
            args = f'{{"batch":{number},"frame":{frame}}}' if number >= 0 else "{}"
            how_long = f'"dur":{value / 1000},"tid":{track}'
            lines.append(f'{{"name":"{name}","cat":"{kind}","ph":"X",{when},{how_long},"args":{args}}},\n')
        try:
            self._file.writelines(lines)
        except OSError as exc:
            self._fault = exc

    def _metadata(self) -> str:
        """Names and order of the tracks, as metadata events."""
        pid = os.getpid()
        lines = [{"name": "process_name", "ph": "M", "pid": pid, "args": {"name": "segmentation"}}]
        for order, (track, names) in enumerate(sorted(self._names.items())):
            name = "GPU: " * (track == _GPU) + ", ".join(names)
            for key, value in (("thread_name", {"name": name}), ("thread_sort_index", {"sort_index": order})):
                lines.append({"name": key, "ph": "M", "pid": pid, "tid": track, "args": value})
        return ",\n".join(map(json.dumps, lines))

    def _error(self, exc: OSError) -> OutputError:
        return OutputError(f"{self._target}: the trace cannot be written ({one_line(exc)})")


def tracing(config: Config, source: str) -> Trace | nullcontext[None]:
    """The trace that `config` asks for, or a context of `None`."""
    if config.trace is None:
        return nullcontext()
    return Trace(Path(config.trace), source, config.overwrite)


class DeviceClock:
    """Places the events of a GPU's stream on the host's clock, without waiting for them.

    A reference is taken once. Each event is placed by its distance from the event before it: CUDA gives distances in
    single precision, too coarse over hours. The clocks drift apart by microseconds a second. So the reference moves
    where an event would lie before its work was queued, or after that work was seen to be over.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._last = gpu.record_event(timed=True)
        self._last.synchronize()
        self._at = time.perf_counter_ns()

    def place(self, begin: Event, end: Event, queued: int, seen: int) -> tuple[int, int]:
        """When the GPU passed two events, which were recorded after `queued` and had been passed at `seen`."""
        first = self._at + round(self._last.elapsed_time(begin) * 1e6)
        last = first + round(begin.elapsed_time(end) * 1e6)
        shift = max(queued - first, 0) or min(seen - last, 0)
        before, self._last, self._at = self._at, end, last + shift
        return max(first + shift, before), max(last + shift, before)
