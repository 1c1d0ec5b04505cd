"""Threads of a run, and the locks between them."""

import ctypes
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

import cv2

from segmentation.frames import Memory

T = TypeVar("T")
R = TypeVar("R")


class _End:
    """Follows the last item in a queue."""


_POLL = 0.05  # seconds between checks whether the context was left
_SWITCH = 0.05  # seconds
_INTERRUPTED = 3.0  # seconds for interrupted threads to remove their files
_PATIENCE = 1.0  # seconds: a thread that is stuck in a read does not hold up the end for longer


class StageThreads:
    """Runs the parts of a chain of iterators in threads of their own.

    Calling it with an iterable starts a thread, and yields the iterable's items from a bounded queue. An iterable may
    draw on another one that was made so: then both work at once. The chain is as fast as its slowest part, because
    FFmpeg, OpenCV and the inference libraries release the GIL. An exception is raised where the items are consumed,
    after the items before it. Leaving the context ends each thread after the item that it is working on.
    """

    def __init__(
        self, depth: int = 2, watch: Callable[[str, int], None] | None = None, *, prompt: bool = False
    ) -> None:
        """`depth` of the queues, in items. `watch` is called with a queue's name and length at each change.

        `prompt`: sources may be slow, and each result is to come at once. Then queues hold one item, since what waits
        grows old.
        """
        self._depth = 1 if prompt else depth  # items that wait between two parts
        self._prompt = prompt
        self._watch = watch
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failures: list[list[BaseException]] = []  # of each thread: not yet raised by its consumer
        self._pool: ThreadPoolExecutor | None = None
        self._calls: WeakSet[Future[Any]] = WeakSet()  # of the pool

    def __enter__(self) -> "StageThreads":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closed.set()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + _PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        left = deadline - time.monotonic()
        if left > 0:  # a call that has begun holds its stages, and a second attempt needs their memory
            wait([call for call in self._calls if call.running()], left)
        for failures in self._failures:  # else a reference cycle with the thread's frame keeps its pictures
            failures.clear()

    def __call__(self, source: Iterable[T], name: str = "") -> Generator[T, None, None]:
        return self._queued(source, name, self._depth)

    def _queued(self, source: Iterable[T], name: str, depth: int) -> Generator[T, None, None]:
        items: queue.Queue[T | _End] = queue.Queue(depth)
        failures: list[BaseException] = []
        self._failures.append(failures)
        thread = threading.Thread(target=self._work, args=(source, name, items, failures), daemon=True)
        thread.start()
        self._threads.append(thread)
        return self._consume(name, items, failures)

    def map(self, function: Callable[[T], R], source: Iterable[T], workers: int) -> Generator[R, None, None]:
        """Yields `function` of each item, in order, calling it from up to `workers` threads at once.

        All mappings share the threads of the first mapping, so that its number of workers bounds them all. The source
        is read on the thread that consumes the mapping, which waits for more items while all results so far may be
        there. If they are to come promptly, the source is read on a thread of its own, or a single worker is the thread
        that consumes the mapping: with many streams, each change of threads takes longer than queueing work on a GPU.
        """
        if self._prompt and workers == 1:
            yield from map(function, source)
            return
        begun = self._begun(function, source, workers)
        if self._prompt:
            # One call is with the consumer and one with the thread that begins them.
            for call in self._queued(begun, "begun", max(1, workers - 2)):
                yield call.result()
            return
        pending: deque[Future[R]] = deque()
        for call in begun:
            pending.append(call)
            if len(pending) > workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    def _begun(self, function: Callable[[T], R], source: Iterable[T], workers: int) -> Iterator[Future[R]]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(workers)
        for item in source:
            call = self._pool.submit(function, item)
            self._calls.add(call)
            yield call

    def _work(
        self, source: Iterable[T], name: str, items: "queue.Queue[T | _End]", failures: list[BaseException]
    ) -> None:
        try:
            for item in source:
                if not self._put(item, name, items):
                    return
        except BaseException as exc:  # raised again by the consumer
            if not self._closed.is_set():
                failures.append(exc)
        self._put(_End(), name, items)

    def _put(self, item: T | _End, name: str, items: "queue.Queue[T | _End]") -> bool:
        """Waits until there is room in the queue. Returns whether there was before the context was left."""
        while not self._closed.is_set():
            try:
                items.put(item, timeout=_POLL)
            except queue.Full:
                continue
            if not isinstance(item, _End):
                self._report(name, items)
            return True
        return False

    def _consume(
        self, name: str, items: "queue.Queue[T | _End]", failures: list[BaseException]
    ) -> Generator[T, None, None]:
        while not self._closed.is_set():
            try:
                item = items.get(timeout=_POLL)
            except queue.Empty:
                continue
            if isinstance(item, _End):
                break
            self._report(name, items)
            yield item
        if failures:
            raise failures.pop()

    def _report(self, name: str, items: "queue.Queue[T | _End]") -> None:
        if self._watch is not None:
            self._watch(name, sum(not isinstance(item, _End) for item in tuple(items.queue)))


class _InMemory(Protocol):
    @property
    def memory(self) -> Memory: ...


class GpuTurn:
    """Lets one thread at a time queue the work of a batch on the GPU.

    A stage on the GPU has one set of buffers, so the work of two batches must not mix. All runs of a session share it,
    one for networks and one for composites: a run queues its composites while another one queues its network.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def of(self, stage: _InMemory) -> AbstractContextManager[object]:
        """Held while a stage on the GPU is called; stages on the host need none."""
        return self._lock if stage.memory == "cuda" else nullcontext()


def until(stop: threading.Event, source: Iterable[T]) -> Generator[T, None, None]:
    """The items of `source` until `stop` is set."""
    for item in source:
        if stop.is_set():
            return
        yield item


class _OpenCvThreads:
    """OpenCV's number of threads, a setting of the whole process, for all runs in it together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs = 0  # whose frames take one thread each
        self._before = 0

    @contextmanager
    def one_a_frame(self, *, busy: bool) -> Iterator[None]:
        """Where the cores are `busy` with other work, OpenCV uses the calling thread alone.

        Threads that share one frame would spin while they wait for each other, and take CPU time from other frames.
        """
        if busy:
            self._add(1)
        try:
            yield
        finally:
            if busy:
                self._add(-1)

    def _add(self, change: int) -> None:
        with self._lock:
            if not self._runs:
                self._before = cv2.getNumThreads()
            self._runs += change
            cv2.setNumThreads(1 if self._runs else self._before)


opencv_threads = _OpenCvThreads()


def switch_rarely() -> None:
    """Lets a thread of this process keep the GIL for up to 50 ms while others wait for it.

    By default a thread that has waited for 5 ms makes the one that has the GIL give it up. With many live sources one
    of hundreds of threads has always waited so long, and they change all the time. With few it is no gain.
    """
    sys.setswitchinterval(_SWITCH)


def interrupt(threads: Sequence[threading.Thread]) -> None:
    """Raises KeyboardInterrupt in the threads that still run, as a signal does in the main thread, and waits a bit."""
    for _ in range(2):  # one may be lost in a callback of a library
        for thread in threads:
            if thread.is_alive() and thread.ident is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt)
                )
        deadline = time.monotonic() + _INTERRUPTED / 2
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
