"""The driver with workers of this process, which die, fail, come late and report out of order when a test says so."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from marks import first
from pieced import OPTIONS, PIECES, Made, files, long_video, made
from program import TIMEOUT

from segmentation import BackendError, Config, ModelError, OutputError, SegmentationError, Workers
from segmentation.scale import coordinator as driver
from segmentation.scale.piece_folder import PieceFolder
from segmentation.scale.protocol import Done, Ended, Event, Lost, Ready, Task, Unable, WorkerPool
from segmentation.scale.span import Span
from segmentation.scale.worker import PieceSession

Change = Callable[[list[Event]], list[Event]]  # of what a worker reports of a task


class Fakes(WorkerPool):
    """Workers that make pieces when they are given work. `first` changes what the first worker reports."""

    def __init__(self, config: Config, names: str, first: Change) -> None:
        self.names, self.left_over = tuple(names), list(names)
        self._session = PieceSession(config)
        self._first = first
        self._events: list[Event] = [Ready(name, {"kind": "fake"}) for name in names]
        self.dismissed: list[str] = []

    @property
    def left(self) -> int:
        return len(self.left_over)

    def events(self, timeout: float) -> list[Event]:
        found, self._events = self._events, []
        for event in found:
            if isinstance(event, Unable):
                self.left_over.remove(event.worker)
        if not found:
            time.sleep(timeout / 10)
        return found

    def start(self, worker: str, task: Task) -> None:
        assert task.plan is not None and worker not in self.dismissed
        made: list[Event] = []
        span = Span(task.plan, task.begin, task.end, lambda number: made.append(Done(worker, task.video, number)))
        self._session.make(span, PieceFolder(Path(task.folder)), {}, stop=threading.Event())
        made.append(Ended(worker, task.video))
        self._events += self._first(made) if worker == "1" else made

    def shorten(self, worker: str, end: int) -> None:
        """Comes too late: both workers make the pieces."""

    def stop(self, worker: str) -> None: ...

    def dismiss(self, worker: str) -> None:
        self.dismissed.append(worker)
        self.left_over.remove(worker)

    def close(self) -> None:
        self._session.close()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return long_video(tmp_path_factory.mktemp("video") / "in.mp4")


@pytest.fixture
def with_fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Workers]]:
    """Returns a function that makes `Workers` of fakes."""

    def make(names: str = "12", first: Change = lambda events: events, *, exact: bool = False) -> Workers:
        monkeypatch.setattr(driver, "_pool", lambda spec, config: Fakes(config, names, first))
        return Workers("fakes", exact=exact, **OPTIONS)

    yield make


@pytest.fixture(scope="module")
def expected(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("expected")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "_pool", lambda spec, config: Fakes(config, "1", lambda events: events))
        with Workers("fakes", **OPTIONS) as workers:
            workers.run(source, folder / "out.mp4", **files(folder))  # type: ignore[arg-type]
    return made(folder)


def lost_after(count: int) -> Change:
    """The first worker dies after so many of its pieces, once, and is there again."""
    times = [0]

    def change(events: list[Event]) -> list[Event]:
        times[0] += 1
        done = [event for event in events if isinstance(event, Done)]
        return events if times[0] > 1 else [*done[:count], Lost("1", "died"), Ready("1", {"kind": "fake"})]

    return change


def failing_once() -> Change:
    """The first worker fails at its third piece, once."""
    times = [0]

    def change(events: list[Event]) -> list[Event]:
        times[0] += 1
        ended = events[-1]
        assert isinstance(ended, Ended)
        return events if times[0] > 1 else [*events[:2], Ended("1", ended.video, OutputError("no room"))]

    return change


STEPS: dict[str, Change] = {
    "lost after the first piece": lost_after(1),
    "lost after the last piece": lost_after(PIECES),
    "failing once": failing_once(),
    "nothing": lambda events: events,
    "lost at the start": lost_after(0),
    "reported twice": lambda events: [event for one in events for event in (one, one)],
    "in another order": lambda events: [*reversed(events[:-1]), events[-1]],
}


@pytest.mark.parametrize("step", first(1, STEPS))
def test_what_happens_to_a_worker_does_not_show(
    step: str, source: Path, expected: Made, tmp_path: Path, with_fakes: Callable[..., Workers]
) -> None:
    with with_fakes("12", STEPS[step]) as workers:
        report = workers.run(source, tmp_path / "out.mp4", **files(tmp_path))  # type: ignore[arg-type]
    assert made(tmp_path) == expected
    assert not list(tmp_path.glob(".*"))
    assert report.redone == (step.startswith("lost") or "failing" in step) - ("last piece" in step)
    assert report.pieces == PIECES and sum(report.workers.values()) > 0


def test_a_worker_that_can_not_serve_leaves_the_work_to_others(
    source: Path, expected: Made, tmp_path: Path, with_fakes: Callable[..., Workers], monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = Fakes.events
    monkeypatch.setattr(
        Fakes,
        "events",
        lambda self, timeout: [
            Unable("2", ModelError("no network")) if event == Ready("2", {"kind": "fake"}) else event
            for event in ready(self, timeout)
        ],
    )
    with with_fakes() as workers:
        report = workers.run(source, tmp_path / "out.mp4", **files(tmp_path))  # type: ignore[arg-type]
    assert made(tmp_path) == expected and list(report.workers) == ["1"]


def test_no_worker_left_is_one_error(source: Path, tmp_path: Path, with_fakes: Callable[..., Workers]) -> None:
    def gone(events: list[Event]) -> list[Event]:
        workers._dispatcher._pool.left_over.clear()  # type: ignore[attr-defined]
        return [events[0], Lost("1", "died of hunger")]

    with with_fakes("1", gone) as workers, pytest.raises(SegmentationError, match="1 died of hunger"):
        workers.run(source, tmp_path / "out.mp4")
    assert not (tmp_path / "out.mp4").exists()


def test_closing_ends_runs_of_other_threads(source: Path, tmp_path: Path, with_fakes: Callable[..., Workers]) -> None:
    begun, errors = threading.Event(), queue.Queue[Exception]()
    workers = with_fakes("1", lambda events: events[:1])  # stands still after a piece

    def run() -> None:
        try:
            workers.run(source, tmp_path / "out.mp4", progress=lambda done, _: begun.set() if done else None)
        except BackendError as exc:
            errors.put(exc)

    threading.Thread(target=run, daemon=True).start()
    assert begun.wait(TIMEOUT)
    workers.close()
    assert "workers: were closed" in str(errors.get(timeout=TIMEOUT))
    run()
    assert "workers: were closed" in str(errors.get_nowait()) and not (tmp_path / "out.mp4").exists()


@pytest.mark.slow
def test_exact_leaves_out_workers_that_differ(
    source: Path, tmp_path: Path, with_fakes: Callable[..., Workers], monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(events: list[Event]) -> list[Event]:
        return [*events, Lost("1", "died"), Ready("1", {"kind": "another"})]

    with with_fakes("1", other, exact=True) as workers:
        workers.run(source, tmp_path / "a.mp4")
        with pytest.raises(BackendError, match=r"1 differs from the first one \(kind: another, not fake\)"):
            workers.run(source, tmp_path / "b.mp4")
