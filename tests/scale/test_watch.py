"""Workers that don't die but stand still are noticed, and the output is the same; a driver that was stopped goes on."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import Self

import pytest
from child_processes import children
from paths import ROOT
from pieced import OPTIONS, Made, at_work, files, long_video, made, workers_of
from program import Program

from segmentation import Config, Workers
from segmentation.pipeline.report import Report
from segmentation.scale import local, watch
from segmentation.scale.local import LocalWorkers
from segmentation.scale.protocol import Event, Lost, Ready, RunTask

SILENCE = 3.0  # seconds, in the place of a minute and of 15
RUN = 1.5  # seconds from the first piece on, within which somebody is stopped
TIMEOUT = 240.0  # seconds: far more than anything here takes
SILENT = f"has given no sign of life for {SILENCE:g} s"


@pytest.fixture(scope="module", autouse=True)
def short_silence() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "SILENCE", SILENCE)
        patch.setattr(watch, "SILENCE_AT_WORK", SILENCE)
        yield


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return long_video(tmp_path_factory.mktemp("video") / "in.mp4")


@pytest.fixture(scope="module")
def two(short_silence: None) -> Iterator[Workers]:
    with Workers("local:2", **OPTIONS) as workers:
        yield workers


@pytest.fixture(scope="module")
def expected(two: Workers, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("expected")
    run(two, source, folder)
    return made(folder)


def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_there(process: int) -> bool:
    return os.path.exists(f"/proc/{process}")


def run(workers: Workers, source: Path, folder: Path) -> Report:
    """Runs, and fails if the run waits for ever."""
    stop = threading.Event()
    limit = threading.Timer(TIMEOUT, stop.set)
    limit.start()
    try:
        return workers.run(source, folder / "out.mp4", stop=stop, **files(folder))  # type: ignore[arg-type]
    finally:
        limit.cancel()


def stopped_once(
    workers: Workers,
    source: Path,
    folder: Path,
    dice: random.Random,
    others: Sequence[int] = (),
    longest: float = RUN,
) -> int:
    """Stops a worker, none of `others`, at some moment of a run. Returns how many pieces were begun again."""
    stopped = []

    def there() -> list[int]:
        return [worker for worker in workers_of(os.getpid()) if worker not in others]

    def stop() -> None:
        until(there)  # the process that forks them takes seconds to be there itself, where others use the cores
        time.sleep(dice.random() * longest)
        stopped.append(dice.choice(there()))
        os.kill(stopped[0], signal.SIGSTOP)

    stopper = threading.Thread(target=stop)
    stopper.start()
    try:
        report = run(workers, source, folder)
    finally:
        stopper.join()
    until(lambda: not is_there(stopped[0]))  # though it may have stopped when it had nothing more to do
    return report.redone


@pytest.mark.slow
def test_a_worker_that_is_stopped_does_not_show(
    two: Workers, source: Path, expected: Made, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stopped_once(two, source, tmp_path, random.Random(1))
    assert made(tmp_path) == expected and not list(tmp_path.glob(".*"))
    assert SILENT in caplog.text


@pytest.mark.slow
def test_twenty_stopped_workers_do_not_show(
    source: Path, expected: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "START", 10.0)  # some are stopped before their first sign of life
    dice = random.Random(2)
    redone = 0
    others = workers_of(os.getpid())  # of `two`, which other tests use
    with Workers("local:3", **OPTIONS) as workers:
        for name in ("first", "second"):  # a run that nobody disturbs, once the workers are there
            begin = time.monotonic()
            run(workers, source, tmp_path / name)
            longest = time.monotonic() - begin
        for number in range(20):
            redone += stopped_once(workers, source, tmp_path / str(number), dice, others, longest)
            assert made(tmp_path / str(number)) == expected
    assert redone > 5


@pytest.mark.slow
def test_workers_that_stand_still_before_they_get_work_do_not_show(
    two: Workers, source: Path, expected: Made, tmp_path: Path
) -> None:
    until(lambda: two.status().alive == 2)
    stopped = workers_of(os.getpid())
    for worker in stopped:
        os.kill(worker, signal.SIGSTOP)
    report = run(two, source, tmp_path)
    assert made(tmp_path) == expected and report.redone == 2
    assert len(stopped) == 2 and not any(map(is_there, stopped))


@pytest.mark.slow
def test_a_worker_whose_work_stands_still_does_not_show(
    two: Workers,
    source: Path,
    expected: Made,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its signs of life go on, since its encoders' process alone is stopped."""
    monkeypatch.setattr(watch, "NO_FRAME", 12.0)
    with ThreadPoolExecutor(1) as pool:
        report = pool.submit(run, two, source, tmp_path)
        worker = at_work(os.getpid())[0]
        encoder = children(worker)[0]
        os.kill(encoder, signal.SIGSTOP)
        try:
            assert report.result().redone
        finally:
            with suppress(ProcessLookupError):  # the system has ended it: SIGHUP when the worker was gone
                os.kill(encoder, signal.SIGKILL)
    assert made(tmp_path) == expected and not is_there(worker)
    assert "has given no frame for 12 s" in caplog.text and SILENT not in caplog.text


DRIVER = """
import sys
from segmentation import Workers
from segmentation.scale import watch
watch.SILENCE = watch.SILENCE_AT_WORK = float(sys.argv[1])
with Workers("local:2", device="cpu", model=sys.argv[2]) as workers:
    options = dict(results=sys.argv[5], save_masks=sys.argv[6])
    print(workers.run(sys.argv[3], sys.argv[4], **options).redone)
"""


@pytest.mark.slow
@pytest.mark.parametrize("also_workers", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_driver_that_was_stopped_takes_no_worker_for_lost(
    also_workers: bool, source: Path, expected: Made, tmp_path: Path
) -> None:
    """With the workers it is as if a container had been frozen. They wake later than the driver."""
    arguments = [SILENCE, OPTIONS["model"], source, tmp_path / "out.mp4", *files(tmp_path).values()]
    command = [sys.executable, "-c", DRIVER, *map(str, arguments)]
    with Program(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as driver:
        at_work(driver.pid)
        others = workers_of(driver.pid) if also_workers else []
        for process in (driver.pid, *others):
            os.kill(process, signal.SIGSTOP)
        time.sleep(1.5 * SILENCE)
        os.kill(driver.pid, signal.SIGCONT)
        time.sleep(SILENCE / 5)
        for process in others:
            os.kill(process, signal.SIGCONT)
        stdout, stderr = driver.communicate(timeout=TIMEOUT)
    assert (driver.returncode, stdout) == (0, "0\n") and "sign of life" not in stderr, stderr
    assert made(tmp_path) == expected


class One(LocalWorkers):
    """One worker."""

    def __init__(self) -> None:
        super().__init__(1, Config(**OPTIONS))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def process(self) -> int:
        return self._handles["worker 1"].pid

    @property
    def server(self) -> int:
        return self._server.pid

    def next(self, kind: type[Event]) -> Event:
        """Returns the next event of a kind."""
        found: list[Event] = []
        until(lambda: any(isinstance(event, kind) for event in found) or found.extend(self.events(0.1)))
        return next(event for event in found if isinstance(event, kind))


def test_a_worker_that_has_made_frames_may_be_silent_for_less_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SILENCE_AT_WORK", 0.5)
    found = watch.Watch()
    for worker in ("new", "at work"):
        found.start(worker)
        found.sign(worker)
        found.begin(worker)
    found.frame("at work")
    found.sign("at work")
    until(found.overdue)
    assert found.overdue() == {"at work": "has given no sign of life for 0.5 s"}
    found.forget("at work")  # one of this name is started again
    found.sign("at work")
    found.frame("other")
    found.sign("other")
    until(found.overdue)
    assert found.overdue().keys() == {"other"}


def test_a_worker_without_a_first_sign_of_life_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "START", 1.0)
    with One() as pool:
        os.kill(pool.server, signal.SIGSTOP)  # while it imports: the worker is never forked
        monkeypatch.undo()
        assert pool.next(Lost) == Lost("worker 1", "has given no sign of life for 1 s")
        pool.next(Ready)


@pytest.mark.slow
def test_an_idle_worker_is_not_lost() -> None:
    with One() as pool:
        pool.next(Ready)
        end = time.monotonic() + 1.5 * SILENCE
        while time.monotonic() < end:
            assert pool.events(0.1) == []


def test_a_long_message_to_a_worker_that_stands_still_does_not_keep_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_GRACE", 0.5)
    long = RunTask(video="long", run={"input": "x" * 10_000_000})
    with One() as pool, ThreadPoolExecutor(1) as threads:
        pool.next(Ready)
        stopped = pool.process
        os.kill(stopped, signal.SIGSTOP)
        try:
            threads.submit(pool.start, "worker 1", long).result(TIMEOUT)
        finally:
            with suppress(ProcessLookupError):  # the driver has killed it
                os.kill(stopped, signal.SIGKILL)
        assert pool.next(Lost) == Lost("worker 1", "was ended by signal 9 (Killed), as happens where memory is full")
        pool.next(Ready)
        assert stopped != pool.process


def test_half_a_message_of_a_worker_does_not_keep_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_GRACE", 0.5)
    with One() as pool, ThreadPoolExecutor(1) as threads:
        pool.next(Ready)
        os.kill(pool.process, signal.SIGSTOP)
        handle = pool._handles["worker 1"]
        handle.link.close()
        handle.link, theirs = Pipe()
        local._limit_waits(handle.link)
        os.write(theirs.fileno(), b"\0\0\0\x64half")  # of 100 bytes
        try:
            lost = threads.submit(pool.next, Lost).result(TIMEOUT)
        finally:
            theirs.close()
        assert lost == Lost("worker 1", "stands still amid a message")


TRACER = """
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
print(libc.ptrace(0x4206, int(sys.argv[1]), 0, 0), flush=True)  # PTRACE_SEIZE
time.sleep(1000)
"""


def test_a_worker_that_the_system_does_not_end_does_not_keep_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is traced stays, even after SIGKILL, until its tracer has seen its end."""
    monkeypatch.setattr(local, "_GRACE", 0.5)
    with One() as pool, ThreadPoolExecutor(1) as threads:
        pool.next(Ready)
        kept = pool.process
        tracer = subprocess.Popen([sys.executable, "-c", TRACER, str(kept)], stdout=subprocess.PIPE, text=True)
        try:
            assert tracer.stdout is not None
            if tracer.stdout.readline() != "0\n":
                pytest.skip("may trace no process")
            threads.submit(pool.dismiss, "worker 1").result(TIMEOUT)
            assert is_there(kept)
        finally:
            tracer.kill()
            tracer.communicate()
