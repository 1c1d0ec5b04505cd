"""Running the parts of a chain of iterators at the same time."""

import queue
import threading
from collections.abc import Generator, Iterable
from typing import TypeVar

T = TypeVar("T")

_POLL = 0.05  # seconds between looks at whether the other side is gone


def prefetch(source: Iterable[T], depth: int = 2) -> Generator[T, None, None]:
    """Yields the items of `source`, which runs in a thread of its own, at most `depth` items ahead.

    An exception of `source` is raised here, after the items before it. Closing the generator stops the thread after the
    item that it is working on. Source and consumer overlap because FFmpeg, OpenCV and the inference libraries release
    the GIL while they work.
    """
    items: queue.Queue[T] = queue.Queue(depth)
    closed = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for item in source:
                while not closed.is_set():
                    try:
                        items.put(item, timeout=_POLL)
                        break
                    except queue.Full:
                        continue
                if closed.is_set():
                    break
        except BaseException as exc:  # handed to the consumer, which raises it
            failures.append(exc)

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        while thread.is_alive() or not items.empty():
            try:
                yield items.get(timeout=_POLL)
            except queue.Empty:
                continue
        if failures:
            raise failures[0]
    finally:
        closed.set()
        thread.join(timeout=1)  # a source that is stuck in a read must not hold up the error that is on its way
