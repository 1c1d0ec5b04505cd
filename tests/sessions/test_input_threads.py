"""Threads of inputs: what their work returns and raises, and what becomes of those that are interrupted."""

import signal
import threading
import time

import pytest

from segmentation.errors import ConfigError
from segmentation.frames.source import Source, named
from segmentation.sessions.input_threads import InputThreads

HALL = named("hall", "rtsp://127.0.0.1/a")


def test_each_result_is_an_event_and_an_exception_is_raised_again() -> None:
    threads: InputThreads[int] = InputThreads()
    for number in (1, 2):
        threads.begin(Source.parse(f"{number}.mp4"), lambda stop, number=number: number)
    assert {threads.next(), threads.next()} == {1, 2}
    assert (len(threads), threads.next(0)) == (0, None)

    def fail(stop: threading.Event) -> int:
        raise KeyboardInterrupt

    threads.begin(HALL, fail)
    with pytest.raises(KeyboardInterrupt):
        threads.next()


def test_an_event_that_waits_still_counts() -> None:
    threads: InputThreads[str] = InputThreads()
    threads.put("started")
    threads.begin(HALL, lambda stop: "ended")
    for one in threads.under_way:
        one.thread.join()
    assert not threads.under_way and len(threads) == 2
    assert [threads.next(), threads.next(), len(threads)] == ["started", "ended", 0]


def test_inputs_are_stopped_together_and_live_ones_by_name() -> None:
    threads: InputThreads[bool] = InputThreads()
    for source in (HALL, Source.parse("hall")):
        threads.begin(source, lambda stop: stop.wait())
    (hall,) = threads.named("hall")
    hall.stop.set()
    hall.thread.join()
    with pytest.raises(ConfigError, match="hall: no such stream is under way"):
        threads.named("hall")
    (file,) = threads.stop()
    assert file.source.text == "hall" and threads.next() and threads.next() and not len(threads)


def test_interrupted_inputs_end_without_events() -> None:
    threads: InputThreads[bool] = InputThreads()
    over = threading.Event()

    def stuck(stop: threading.Event) -> bool:
        while not over.is_set():
            try:
                over.wait(0.01)
            except KeyboardInterrupt:
                continue
        return True

    def slow(stop: threading.Event) -> bool:
        while True:
            over.wait(0.01)

    threads.begin(HALL, slow)
    assert not threads.interrupt(limit=3600) and len(threads) == 1
    assert [one.source for one in threads.interrupt()] == [HALL] and not len(threads) and not threads.stuck
    threads.begin(HALL, stuck)
    (held,) = threads.interrupt()
    assert threads.stuck and not len(threads)
    over.set()
    held.thread.join()
    assert not threads.stuck and threads.next(0) is None


def test_a_signal_does_not_prolong_the_wait() -> None:
    """Python's `SimpleQueue` would wait for the event, and a command would see Ctrl-C at the end of its input."""
    threads: InputThreads[str] = InputThreads()
    over = time.monotonic() + 0.1
    late = threading.Timer(20, threads.put, ["late"])

    def handle(number: int, frame: object) -> None:
        while time.monotonic() < over:
            pass

    before = signal.signal(signal.SIGALRM, handle)
    try:
        late.start()
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        assert threads.next(over - time.monotonic()) is None
    finally:
        signal.signal(signal.SIGALRM, before)
        late.cancel()
