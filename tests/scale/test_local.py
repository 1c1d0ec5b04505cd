"""A process that waits in advance takes the place of a worker that is lost."""

import os
import signal
import time
from collections.abc import Iterator

import pytest
from pieced import OPTIONS

from segmentation import Config
from segmentation.scale import local
from segmentation.scale.local import LocalWorkers, _share
from segmentation.scale.protocol import Done, Event, Lost, Ready

TIMEOUT = 240.0  # seconds: far more than anything here takes


@pytest.fixture
def workers() -> Iterator[LocalWorkers]:
    pool = LocalWorkers(2, Config(**OPTIONS))
    yield pool
    pool.close()


def until_ready(workers: LocalWorkers, name: str) -> list[Event]:
    """Returns what has happened until a worker is ready."""
    found: list[Event] = []
    deadline = time.monotonic() + TIMEOUT
    while not any(isinstance(event, Ready) and event.worker == name for event in found):
        assert time.monotonic() < deadline
        found += workers.events(0.1)
    return found


def test_a_spare_process_takes_the_place_of_a_worker_that_is_killed(workers: LocalWorkers) -> None:
    lost = workers._handles["worker 2"]
    workers._start_spare()
    assert workers._spare is not None
    spare = workers._spare
    os.kill(lost.pid, signal.SIGKILL)
    events = until_ready(workers, "worker 2")
    assert Lost("worker 2", "was ended by signal 9 (Killed), as happens where memory is full") in events
    assert workers._handles["worker 2"] is spare and workers._spare is None
    assert os.sched_getaffinity(spare.pid) == _share(1, 2), "the cores of the place"


def test_a_spare_begins_in_runs_on_gpus_that_are_not_over_soon(
    workers: LocalWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers._reported("worker 1", [Done("worker 1", "video", 0)])
    monkeypatch.setattr(local, "_LONG", 0.0)
    workers._reported("worker 1", [])
    assert workers._spare is None, "not on a CPU"
    workers._gpus = ["0"]
    monkeypatch.undo()
    workers._reported("worker 1", [])
    assert workers._spare is None
    monkeypatch.setattr(local, "_LONG", 0.0)
    workers._reported("worker 1", [])
    assert workers._spare is not None


def test_a_spare_that_has_died_is_not_needed(workers: LocalWorkers) -> None:
    workers._start_spare()
    assert workers._spare is not None
    spare = workers._spare
    spare.kill()
    spare.describe_death()
    os.kill(workers._handles["worker 1"].pid, signal.SIGKILL)
    until_ready(workers, "worker 1")
    assert workers._handles["worker 1"] is not spare


def test_a_spare_ends_with_the_workers(workers: LocalWorkers) -> None:
    workers._start_spare()
    assert workers._spare is not None
    spare = workers._spare
    workers.close()
    assert not spare.is_alive()
