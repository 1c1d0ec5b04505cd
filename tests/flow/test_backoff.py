"""Attempts to make a lost connection again."""

import threading
import time
from itertools import pairwise

import pytest

from segmentation.flow.backoff import Reconnection


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
