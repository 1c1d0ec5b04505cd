"""Threads of the command line: each input has one, so that the main thread can be interrupted whatever they do."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Generic, TypeVar

from segmentation.flow.threads import interrupt

T = TypeVar("T")
R = TypeVar("R")

_POLL = 0.1  # seconds: signals, and items that take too long, are seen this late
_NAME = "segmentation-run"


class _Task(Generic[T, R]):
    """One item on its thread."""

    def __init__(
        self,
        function: Callable[[T], R],
        item: T,
        failed: Callable[[T, Exception], R],
        ended: "queue.SimpleQueue[_Task[T, R]]",
    ) -> None:
        self.item, self.begin = item, time.monotonic()
        self.results: list[R] = []  # one, or none after an interrupt
        self.failure: BaseException | None = None

        def work() -> None:
            try:
                self.results.append(function(item))
            except Exception as exc:
                self.results.append(failed(item, exc))
            except BaseException as exc:  # raised again by the consumer
                self.failure = exc
            ended.put(self)

        # A daemon: one that is stuck in a library does not keep the process from its end.
        self.thread = threading.Thread(target=work, name=_NAME, daemon=True)
        self.thread.start()


def in_threads(
    function: Callable[[T], R],
    items: Iterable[T],
    count: Callable[[], int],
    stop: threading.Event,
    failed: Callable[[T, Exception], R],
    *,
    limit: float | None = None,
    late: Callable[[T], R] | None = None,
    tick: Callable[[], None] = lambda: None,
) -> Generator[R, None, None]:
    """Yields `function` of each item as it comes, on up to `count()` threads; begins no item once `stop` is set.

    If `items` is a deque, items are taken from it, and those that are added meanwhile are begun too.

    An exception of `function` yields `failed` of the item and the exception, and leaves the others as they are.

    An item that takes more than `limit` seconds is interrupted and yields `late` of it. If its thread is stuck in a
    library, no further item is begun. `tick` is called every tenth of a second, and before results are yielded.

    A KeyboardInterrupt in `function`, or any exception in the consuming thread, interrupts all threads. Close the
    iterator for the latter.
    """
    ended: queue.SimpleQueue[_Task[T, R]] = queue.SimpleQueue()
    waiting = items if isinstance(items, deque) else deque(items)
    running: list[_Task[T, R]] = []
    try:
        while running or waiting:
            while waiting and len(running) < count() and not stop.is_set():
                item = waiting.popleft()
                try:
                    running.append(_Task(function, item, failed, ended))
                except RuntimeError as exc:  # no thread can be started before another one has ended
                    if running:
                        waiting.appendleft(item)
                        break
                    yield failed(item, exc)
            if not running:
                return
            arrived = _arrived(ended)
            tick()  # before the results: what it says of a signal comes before the end that the signal brings
            for task in arrived:
                if task not in running:  # it was interrupted
                    continue
                running.remove(task)
                if task.failure is not None:
                    raise task.failure
                yield from task.results
            overdue = [task for task in running if limit is not None and time.monotonic() - task.begin > limit]
            for task in overdue:
                interrupt([task.thread])
                running.remove(task)
                if task.thread.is_alive():
                    waiting.clear()
                if late is not None:
                    yield late(task.item)
    finally:
        interrupt([task.thread for task in running])


def stuck() -> bool:
    """Returns whether a thread of `in_threads` still runs, though it was interrupted."""
    return any(thread.name == _NAME for thread in threading.enumerate())


def _arrived(ended: "queue.SimpleQueue[_Task[T, R]]") -> "list[_Task[T, R]]":
    """Returns the next task that has ended, or none after a while.

    Apart from the loop: a signal at a `continue` within `except` passes by the `finally` around it (Python 3.11).
    """
    try:
        return [ended.get(timeout=_POLL)]
    except queue.Empty:
        return []
