"""Processes beside this one that stand still, and those that merely wait."""

import os
import signal
import time
from weakref import ref

import pytest

from segmentation import Config, SegmentationError
from segmentation.sessions.processes import _Process
from segmentation.stages.encode.worker_process import EncoderWorker
from segmentation.stages.encode.worker_protocol import EndOfFile
from segmentation.system import child_process
from segmentation.system.child_process import SharedProcesses
from segmentation.tracking.process.tracker_processes import _TrackerProcess
from segmentation.tracking.process.tracker_protocol import Forget

SAID = "stood still for 2 s and was ended"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "STILL", 2)


def test_an_encoders_process_that_stands_still_is_ended() -> None:
    worker = EncoderWorker("out.mp4: x264")
    try:
        os.kill(worker.pid, signal.SIGSTOP)
        with pytest.raises((EOFError, OSError)):
            worker.receive(wait=True)
        assert worker.describe_death() == SAID
    finally:
        worker.close()


def test_messages_for_a_process_that_stands_still_end_too() -> None:
    worker = EncoderWorker("out.mp4: x264")
    try:
        os.kill(worker.pid, signal.SIGSTOP)
        with pytest.raises(OSError):
            while True:  # until the socket's buffer is full
                worker.send(EndOfFile())
        assert worker.describe_death() == SAID
    finally:
        worker.close()


def test_a_trackers_process_that_stands_still_is_ended() -> None:
    tracker = _TrackerProcess()
    try:
        os.kill(tracker._process.pid, signal.SIGSTOP)
        with pytest.raises(SegmentationError, match=f"the process that follows instances {SAID}"):
            tracker.ask(Forget(1))  # type: ignore[arg-type]
    finally:
        tracker.close()


@pytest.mark.slow
def test_a_session_that_stands_still_is_ended_and_one_without_work_is_not() -> None:
    process = _Process(Config(), None)
    try:
        time.sleep(5)  # longer than a process may stand still
        assert process.is_alive()
        os.kill(process._process.pid, signal.SIGSTOP)
        process._reader.join()
        assert not process.is_alive() and process._process.describe_death() == SAID
    finally:
        process.close()


class Lent:
    """A process that dies when it is told to."""

    def __init__(self) -> None:
        self.alive, self.closed = True, False

    def is_alive(self) -> bool:
        return self.alive

    def end(self) -> None:
        self.alive = False

    def close(self) -> None:
        self.closed = True


def test_processes_that_have_died_are_forgotten() -> None:
    """They hold descriptors, and a session may go on for days."""
    shared: SharedProcesses[Lent] = SharedProcesses(Lent, 1)
    gone = []
    for amid in (True, False):
        with shared.lent() as process:
            gone.append(ref(process))
            process.alive = not amid
        process.alive = False
        with shared.lent() as other:
            assert process.closed and other is not process
        del process, other
    assert [one() for one in gone] == [None, None]
    shared.close()
