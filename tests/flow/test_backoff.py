"""Attempts to make a lost connection again."""

import threading
import time
from itertools import pairwise

import pytest

from segmentation.flow.backoff import Backoff, Reconnection


def until(condition: threading.Event) -> None:
    assert condition.wait(240)


def test_it_tries_until_there_is_something_to_connect_to() -> None:
    attempts: list[float] = []
    done = threading.Event()

    def connect() -> str:
        attempts.append(time.monotonic())
        if len(attempts) < 4:
            raise ConnectionRefusedError
        done.set()
        return "a connection"

    again = Reconnection(connect, (0.02, 0.05))
    assert again.result() is None
    until(done)
    while (made := again.result()) is None:
        time.sleep(0.001)
    assert made == "a connection" and again.result() is None
    assert len(attempts) == 4
    pauses = [b - a for a, b in pairwise(attempts)]
    assert all(pause >= least for pause, least in zip(pauses, (0.04, 0.05, 0.05), strict=True))


def test_what_nobody_took_is_disposed_of() -> None:
    made = threading.Event()
    disposed: list[str] = []

    def connect() -> str:
        made.set()
        return "a connection"

    again = Reconnection(connect, (0.001, 0.001))
    until(made)
    again.close(disposed.append)
    assert disposed == ["a connection"]


def test_what_is_made_after_the_end_is_disposed_of() -> None:
    begun, closed, gone = threading.Event(), threading.Event(), threading.Event()

    def connect() -> str:
        begun.set()
        until(closed)
        return "a connection"

    again = Reconnection(connect, (0.001, 0.001))
    until(begun)
    again.close(lambda made: gone.set())
    closed.set()
    until(gone)
    assert again.result() is None


@pytest.mark.parametrize("pause", [0.001, 60.0])
def test_closing_ends_the_attempts(pause: float) -> None:
    tried = threading.Event()

    def connect() -> str:
        tried.set()
        raise OSError("nobody is there")

    again = Reconnection(connect, (pause, pause))
    if pause < 1:
        until(tried)
    again.close(lambda made: None)
    assert not again._thread.is_alive()


class Unhurried(threading.Event):
    """Notes the pauses and does not make them."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout)
        return self.is_set()


def test_each_pause_is_twice_the_one_before_up_to_the_longest() -> None:
    stop = Unhurried()
    backoff = Backoff((0.5, 3.0), stop)
    assert all(backoff.wait() for _ in range(5))
    backoff.restart()
    assert backoff.wait()
    assert stop.pauses == [0.5, 1.0, 2.0, 3.0, 3.0, 0.5]


def test_no_attempt_is_wanted_after_stop() -> None:
    stop = threading.Event()
    stop.set()
    assert not Backoff((60.0, 60.0), stop).wait()
