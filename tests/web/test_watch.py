"""A watched folder: which files become jobs, when, and how often. The clock is the test's."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from numbered import numbered
from program import cli
from served import Served

from segmentation.web.store import FAILED, QUEUED, Store
from segmentation.web.watch import STILL, WatchedFolder


@pytest.fixture
def start(tmp_path: Path) -> Callable[[], tuple[Store, WatchedFolder]]:
    """Starts the queue on the same folders, again and again."""
    stores: list[Store] = []
    for name in ("in", "out"):
        (tmp_path / name).mkdir()

    def start() -> tuple[Store, WatchedFolder]:
        for store in stores[-1:]:
            store.close()
        stores.append(Store(tmp_path / "work"))
        return stores[-1], WatchedFolder(stores[-1], tmp_path / "in", tmp_path / "out", {}, lambda: None)

    return start


def targets(store: Store) -> list[str]:
    return sorted(Path(job.target or "").name for job in store.jobs())


def test_files_are_taken_when_they_stand_still_and_once(
    start: Callable[[], tuple[Store, WatchedFolder]], tmp_path: Path
) -> None:
    store, watched = start()
    file = tmp_path / "in" / "a.mp4"
    file.write_bytes(b"begun")
    watched.look(0.0)
    file.write_bytes(b"begun, and longer")
    watched.look(STILL)
    watched.look(2 * STILL - 0.1)
    assert store.jobs() == []
    watched.look(2 * STILL)
    watched.look(9 * STILL)
    (job,) = store.jobs()
    assert (job.name, job.source, job.target) == ("a.mp4", str(file), str(tmp_path / "out" / "a.segmented.mp4"))
    store, watched = start()
    for now in (0.0, STILL, 2 * STILL):
        watched.look(now)
    assert len(store.jobs()) == 1
    file.write_bytes(b"another video")
    for now in (3 * STILL, 4 * STILL):
        watched.look(now)
    assert targets(store) == ["a.segmented.mp4", "a.segmented.mp4"]


def test_what_is_no_new_video_is_left_out(start: Callable[[], tuple[Store, WatchedFolder]], tmp_path: Path) -> None:
    store, watched = start()
    for name in ("a.segmented.mp4", ".a.mp4.part", ".b.mp4", "notes.txt", "folder/c.mp4"):
        (tmp_path / "in" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_bytes(b"x")
    (tmp_path / "in" / "empty.mp4").touch()
    (tmp_path / "in" / "link.mp4").symlink_to("/etc/hostname")
    os.mkfifo(tmp_path / "in" / "pipe.mp4")
    for now in (0.0, STILL):
        watched.look(now)
    assert store.jobs() == []


def test_outputs_have_the_names_of_the_commands(
    start: Callable[[], tuple[Store, WatchedFolder]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, watched = start()
    for name in ("a.mov", "a.mp4", "b.png", "theirs.mp4"):
        (tmp_path / "in" / name).write_bytes(name.encode())
    (tmp_path / "out" / "theirs.segmented.mp4").write_bytes(b"theirs")
    for now in (0.0, STILL, 2 * STILL):
        watched.look(now)
    queued = [job for job in store.jobs() if job.state == QUEUED]
    assert sorted(Path(job.target or "").name for job in queued) == [
        *("a.mp4.segmented.mp4", "a.segmented.mp4", "b.segmented.png"),
    ]
    (refused,) = (job for job in store.jobs() if job.state == FAILED)
    assert refused.name == "theirs.mp4" and "exists already" in (refused.error or "")
    assert [record.getMessage() for record in caplog.records] == [refused.error]


def test_outputs_go_to_another_folder(tmp_path: Path) -> None:
    done = cli("serve", "--port", "0", "--work", tmp_path / "work", "--watch", tmp_path, "--to", f"{tmp_path}/.")
    assert done.returncode == 2 and "is the folder of --watch itself" in done.stderr
    assert done.stderr.count("\n") == 1 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_the_usual_end(number: signal.Signals, tmp_path: Path) -> None:
    with Served(tmp_path / "work") as served:
        served.process.send_signal(number)
        assert served.process.communicate()[1] == "" and served.process.returncode == 0


@pytest.mark.slow
def test_a_server_renders_what_comes_into_a_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    numbered(tmp_path / "in" / "a.mp4", 5)
    (tmp_path / "in" / "broken.mp4").write_bytes(b"no video")
    options = ["--watch", tmp_path / "in", "--to", tmp_path / "out", "--options", '{"effect": "mask"}']
    with Served(tmp_path / "work", *options) as served:
        while len(jobs := served.json("api/jobs")) < 2:
            time.sleep(0.1)
        ended = {job["name"]: served.until(job["id"], "done", "failed") for job in jobs}
        assert ended["a.mp4"]["state"] == "done" and ended["broken.mp4"]["state"] == "failed"
        assert os.listdir(tmp_path / "out") == ["a.segmented.mp4"]
        output = served.ask(f"api/jobs/{ended['a.mp4']['id']}/output")[1]
        assert output == (tmp_path / "out" / "a.segmented.mp4").read_bytes()
        served.process.terminate()
        errors = served.process.communicate()[1]
        assert errors.count("broken.mp4") == 1
