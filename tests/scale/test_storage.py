"""A network share that vanishes while workers run: they go on when it is back, or one error names what is gone."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import which

import pytest
from pieced import FRAMES, OPTIONS, PIECES, Made, files, long_video, made, workers_of

from segmentation import SegmentationError, Workers
from segmentation.scale import storage as share

TIMEOUT = 240.0  # seconds: far more than anything here takes


@pytest.fixture(scope="module")
def two() -> Iterator[Workers]:
    with Workers("local:2", **OPTIONS) as workers:
        yield workers


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return long_video(tmp_path_factory.mktemp("video") / "in.mp4")


@pytest.fixture(scope="module")
def expected(two: Workers, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("expected")
    two.run(source, folder / "out.mp4", **files(folder))  # type: ignore[arg-type]
    return made(folder)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """An event that is set once a run waits for a share."""
    event = threading.Event()
    wait = share.SharedStorage.wait

    def told(self: share.SharedStorage, stop: threading.Event) -> None:
        if self.fault():
            event.set()
        wait(self, stop)

    monkeypatch.setattr(share.SharedStorage, "wait", told)
    return event


class Once:
    """The progress of a run, which takes the share away when few enough pieces are left to be made."""

    def __init__(self, workers: Workers, take_away: Callable[[], object], left: int = PIECES - 2) -> None:
        self._workers, self._left = workers, left
        self._take_away: Callable[[], object] | None = take_away

    def __call__(self, done: int, frames: int) -> None:
        take_away = self._take_away
        if take_away is not None and self._workers.status().left <= self._left:
            self._take_away = None
            take_away()


def away(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-away")


@pytest.mark.slow
def test_a_run_goes_on_when_the_outputs_folder_is_back(
    two: Workers, source: Path, expected: Made, tmp_path: Path, waits: threading.Event
) -> None:
    folder = tmp_path / "share"
    folder.mkdir()

    def bring_back() -> None:
        assert waits.wait(TIMEOUT)
        away(folder).rename(folder)

    back = threading.Thread(target=bring_back)
    back.start()
    told = two.run(
        source,
        folder / "out.mp4",
        progress=Once(two, lambda: folder.rename(away(folder))),
        **files(folder),  # type: ignore[arg-type]
    )
    back.join()
    assert waits.is_set() and made(folder) == expected and told.frames == FRAMES
    assert not list(folder.glob(".*")) and two.status().alive == 2


def test_a_run_goes_on_when_the_input_is_back(
    two: Workers, source: Path, expected: Made, tmp_path: Path, waits: threading.Event
) -> None:
    """Open files of a folder that was renamed can still be read, so new workers have to open the input."""
    folder = tmp_path / "share"
    folder.mkdir()
    (folder / "in.mp4").write_bytes(source.read_bytes())

    def take_away() -> None:
        folder.rename(away(folder))
        for worker in workers_of(os.getpid()):
            os.kill(worker, signal.SIGKILL)

    def bring_back() -> None:
        assert waits.wait(TIMEOUT)
        away(folder).rename(folder)

    back = threading.Thread(target=bring_back)
    back.start()
    out = tmp_path / "out"
    two.run(folder / "in.mp4", out / "out.mp4", progress=Once(two, take_away, PIECES), **files(out))  # type: ignore[arg-type]
    back.join()
    assert waits.is_set() and made(out) == expected and not list(out.glob(".*"))


@pytest.mark.slow
def test_a_folder_that_stays_away_is_one_error_and_the_same_command_goes_on(
    two: Workers,
    source: Path,
    expected: Made,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(share, "PATIENCE", 0.5)
    folder = tmp_path / "share"
    folder.mkdir()
    gone = Once(two, lambda: folder.rename(away(folder)))
    message = (
        r"share/.out.mp4.pieces: can't be reached any more \(No such file or directory\), for 0.5 s; when it is ba"
    )
    with pytest.raises(SegmentationError, match=message):
        two.run(source, folder / "out.mp4", progress=gone, **files(folder))  # type: ignore[arg-type]
    assert not folder.exists()
    assert {path.name for path in away(folder).iterdir() if not path.name.startswith(".")} == set()
    away(folder).rename(folder)
    two.run(source, folder / "out.mp4", **files(folder))  # type: ignore[arg-type]
    assert f"of {PIECES} pieces that are there" in caplog.text
    assert made(folder) == expected and not list(folder.glob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize(("side", "left"), [("input", PIECES - 2), ("input", 0), ("output", PIECES - 2), ("output", 0)])
def test_a_run_goes_on_when_a_lost_mount_is_back(
    side: str, left: int, two: Workers, source: Path, expected: Made, tmp_path: Path, waits: threading.Event
) -> None:
    """The server of a FUSE file system is killed, so that all open files fail with ENOTCONN, and is started again."""
    real, folder, other = tmp_path / "real", tmp_path / "share", tmp_path / "other"
    for one in (real, folder, other):
        one.mkdir()
    (real / "in.mp4").write_bytes(source.read_bytes())
    mount = ["bindfs", "-f", "-o", "direct_io", str(real), str(folder)]  # what was read is not kept
    if which("bindfs") is None or not os.access("/dev/fuse", os.W_OK):
        pytest.skip("needs bindfs, and may mount no file system")
    servers = [mounted(mount, folder)]

    def bring_back() -> None:
        assert waits.wait(TIMEOUT)
        unmount(folder)
        servers.append(mounted(mount, folder))

    back = threading.Thread(target=bring_back)
    back.start()
    out = folder if side == "output" else other
    try:
        told = two.run(
            (folder if side == "input" else real) / "in.mp4",
            out / "out.mp4",
            progress=Once(two, servers[0].kill, left),
            **files(out),  # type: ignore[arg-type]
        )
        assert waits.is_set() and told.complete and made(out) == expected and not list(out.glob(".*"))
    finally:
        back.join()
        unmount(folder)
        for server in servers:
            server.kill()
            server.wait()


def mounted(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """Starts the server of a file system, and waits for its folder."""
    server = subprocess.Popen(command)
    while not os.path.ismount(folder):
        assert server.poll() is None
    return server


def unmount(folder: Path) -> None:
    subprocess.run(["umount", "-l", folder], check=False)
