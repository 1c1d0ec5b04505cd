"""Workers are forked from one process, and forked again when they are lost."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path

import pytest
from child_processes import children
from pieced import OPTIONS

from segmentation import Config
from segmentation.scale import local
from segmentation.scale.local import LocalWorkers, _share
from segmentation.scale.protocol import Event, Lost, Ready

TIMEOUT = 240.0  # seconds: far more than anything here takes
KILLED = "was ended by signal 9 (Killed), as happens where memory is full"


@pytest.fixture
def workers() -> Iterator[LocalWorkers]:
    pool = LocalWorkers(2, Config(**OPTIONS))
    yield pool
    pool.close()


def until_ready(workers: LocalWorkers, *names: str) -> list[Event]:
    """Returns what has happened until workers are ready."""
    found: list[Event] = []
    deadline = time.monotonic() + TIMEOUT
    while not {event.worker for event in found if isinstance(event, Ready)}.issuperset(names):
        assert time.monotonic() < deadline
        found += workers.events(0.1)
    return found


def test_workers_come_from_one_process_and_have_their_share_of_the_cores(workers: LocalWorkers) -> None:
    until_ready(workers, "worker 1", "worker 2")
    forked = [workers._handles[name].pid for name in workers.names]
    assert sorted(forked) == sorted(children(workers._server.pid))
    assert len(list(Path(f"/proc/{workers._server.pid}/task").iterdir())) == 1, "a fork has no other threads"
    for number, process in enumerate(forked):
        assert os.sched_getaffinity(process) == _share(number, 2)


def test_a_worker_that_is_killed_is_forked_again(workers: LocalWorkers) -> None:
    until_ready(workers, "worker 2")
    lost, server = workers._handles["worker 2"], workers._server.pid
    os.kill(lost.pid, signal.SIGKILL)
    assert Lost("worker 2", KILLED) in until_ready(workers, "worker 2")
    assert workers._handles["worker 2"] is not lost and workers._server.pid == server
    assert os.sched_getaffinity(workers._handles["worker 2"].pid) == _share(1, 2)


def test_all_are_started_again_when_the_server_is_killed(workers: LocalWorkers) -> None:
    until_ready(workers, "worker 1", "worker 2")
    server = workers._server.pid
    workers._server.kill()
    os.kill(workers._handles["worker 1"].pid, signal.SIGKILL)
    assert Lost("worker 1", KILLED) in until_ready(workers, "worker 1")
    assert workers._server.pid != server


def test_nothing_is_left_when_they_are_closed_before_they_are_there() -> None:
    pool = LocalWorkers(2, Config(**OPTIONS))
    handles = list(pool._handles.values())
    pool.close()
    assert not any(process.is_alive() for process in (*handles, pool._server._server))


def test_a_wait_for_events_can_be_ended(workers: LocalWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    until_ready(workers, "worker 1", "worker 2")
    links = [process.link for process in workers._handles.values()]
    for process in workers._handles.values():
        os.kill(process.pid, signal.SIGSTOP)  # a sign of life would end it too
    while wait(links, 0):
        workers.events(0)
    monkeypatch.setattr(local, "wait", lambda several, timeout: wait(several))
    waiting = threading.Thread(target=workers.events, args=(0.1,), daemon=True)
    waiting.start()
    workers.wake()
    waiting.join(TIMEOUT)
    assert not waiting.is_alive()
