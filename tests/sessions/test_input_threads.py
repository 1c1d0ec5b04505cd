"""Threads of inputs: what their work returns and raises, and what becomes of those that are interrupted."""

import threading

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
