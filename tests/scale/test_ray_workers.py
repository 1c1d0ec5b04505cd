"""Workers of Ray, on a cluster of several nodes in this machine: the same output, whoever is killed."""

import errno
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pieced import OPTIONS, Made, at_work, files, long_video, made, workers_of
from program import cli, start

from segmentation import BackendError, Workers
from segmentation.scale import watch

RUN = 2.0  # seconds from the first piece on, within which somebody is killed


def test_without_ray_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "segmentation.scale.ray_workers", raising=False)
    with pytest.raises(BackendError, match=r"workers ray: the package ray is not installed; pip install .*\[ray\]"):
        Workers("ray", **OPTIONS)


def test_workers_fit_into_the_smallest_node() -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    from segmentation import Config
    from segmentation.scale.ray_workers import _room

    gpus: list[dict[str, float]] = [{"CPU": 32, "GPU": 2}, {"CPU": 8, "GPU": 1}, {"CPU": 4}]
    assert _room(gpus, Config()) == (3, 8, 1)
    assert _room(gpus, Config(device="cpu")) == (11, 4, 0)
    assert _room([{"CPU": 2}, {"CPU": 5}, {"memory": 1}], Config()) == (3, 2, 0)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return long_video(tmp_path_factory.mktemp("video") / "in.mp4")


@pytest.fixture(scope="module")
def expected(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("expected")
    with Workers("local:1", **OPTIONS) as workers:
        workers.run(source, folder / "out.mp4", **files(folder))  # type: ignore[arg-type]
    return made(folder)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without room for workers, and two nodes with room for one each."""
    utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")
    made = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        made.add_node(num_cpus=1)
    made.wait_for_nodes()
    yield made
    made.shutdown()


def runs(times: int, workers: Workers, source: Path, expected: Made, folder: Path, kill: Callable[[], None]) -> int:
    """Runs several times, on another thread: Ray adds nodes on the main one. Returns how many pieces were redone."""
    redone = 0
    for number in range(times):
        place = folder / str(number)
        place.mkdir()
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(workers.run, source, place / "out.mp4", **files(place))  # type: ignore[arg-type]
            kill()
            redone += run.result().redone
        assert made(place) == expected
        assert not list(place.glob(".*"))
    return redone


@pytest.mark.slow
def test_twenty_killed_actors_do_not_show(cluster: Any, source: Path, expected: Made, tmp_path: Path) -> None:
    dice = random.Random(1)

    def kill() -> None:
        at_work(os.getpid())
        time.sleep(dice.random() * RUN)
        if found := workers_of(os.getpid()):
            os.kill(dice.choice(found), signal.SIGKILL)

    with Workers(f"ray:{cluster.address}", **OPTIONS) as workers:
        assert workers.size == 2
        assert runs(20, workers, source, expected, tmp_path, kill)


@pytest.mark.slow
def test_stopped_actors_do_not_show(
    cluster: Any,
    source: Path,
    expected: Made,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name in ("SILENCE", "SILENCE_AT_WORK"):
        monkeypatch.setattr(watch, name, 4.0)  # calls for events wait a second
    dice = random.Random(4)
    stopped: list[int] = []

    def stop() -> None:
        at_work(os.getpid())
        time.sleep(dice.random() * RUN)
        if found := workers_of(os.getpid()):
            stopped.append(dice.choice(found))
            os.kill(stopped[-1], signal.SIGSTOP)

    with Workers(f"ray:{cluster.address}", **OPTIONS) as workers:
        assert runs(5, workers, source, expected, tmp_path, stop)
    assert "has given no sign of life for 4 s" in caplog.text
    deadline = time.monotonic() + 240
    while any(os.path.exists(f"/proc/{actor}") for actor in stopped):  # Ray asks before it kills
        assert time.monotonic() < deadline, "actors that were stopped stay"
        time.sleep(0.1)


@pytest.mark.slow
def test_twenty_killed_nodes_do_not_show(cluster: Any, source: Path, expected: Made, tmp_path: Path) -> None:
    dice = random.Random(2)

    def kill() -> None:
        at_work(os.getpid())
        time.sleep(dice.random() * RUN)
        cluster.remove_node(dice.choice(sorted(cluster.worker_nodes, key=str)), allow_graceful=False)
        cluster.add_node(num_cpus=1)

    with Workers(f"ray:{cluster.address}", **OPTIONS) as workers:
        assert runs(20, workers, source, expected, tmp_path, kill)


@pytest.mark.slow
def test_an_outputs_folder_that_is_away_for_a_while_does_not_show(
    cluster: Any, source: Path, expected: Made, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, elsewhere = tmp_path / "share", tmp_path / "away"

    def take_away(done: int, frames: int) -> None:
        if done > frames // 3 and not elsewhere.exists() and "goes on when it is back" not in caplog.text:
            folder.rename(elsewhere)

    def bring_back() -> None:
        deadline = time.monotonic() + 240
        while "goes on when it is back" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.01)
        elsewhere.rename(folder)

    with Workers(f"ray:{cluster.address}", **OPTIONS) as workers, ThreadPoolExecutor(1) as pool:
        written = files(folder)
        back = pool.submit(bring_back)
        workers.run(source, folder / "out.mp4", progress=take_away, **written)  # type: ignore[arg-type]
        back.result()
    assert made(folder) == expected and not list(folder.glob(".*"))


@pytest.mark.slow
def test_names_lead_from_the_drivers_folder(
    cluster: Any, source: Path, expected: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(OPTIONS["model"], tmp_path)
    monkeypatch.chdir(tmp_path)
    with Workers(f"ray:{cluster.address}", **OPTIONS | {"model": OPTIONS["model"].name}) as workers:
        workers.run(source, "out.mp4", **files(Path()))  # type: ignore[arg-type]
    assert made(tmp_path) == expected


@pytest.mark.slow
def test_actors_leave_nothing(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    (folder := tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("RAY_TMPDIR", "/tmp")  # of Ray's sockets, whose names must be short
    result = cli(source, "-o", tmp_path / "out.mp4", "--model", OPTIONS["model"], "--workers", "ray", "--device", "cpu")
    assert result.returncode == 0, result.stderr
    assert not list(folder.glob("segmentation-*"))


@pytest.mark.slow
def test_killed_drivers_do_not_show(cluster: Any, source: Path, expected: Made, tmp_path: Path) -> None:
    dice = random.Random(3)
    went_on = 0
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        written = ("--results", folder / "out.jsonl", "--save-masks", folder / "out.masks.mkv", "--device", "cpu")
        arguments = (source, "-o", folder / "out.mp4", "--model", OPTIONS["model"], *written)
        arguments = (*arguments, "--workers", f"ray:{cluster.address}")
        with start(*arguments) as driver:
            driver.until(lambda folder=folder: any(folder.glob(".out.mp4.pieces/*.piece")))
            time.sleep(dice.random() * RUN / 2)
            driver.kill()
            driver.wait()
        if (folder / "out.mp4").exists():  # it was too late
            continue
        result = cli(*arguments)
        assert result.returncode == 0, result.stderr
        assert made(folder) == expected
        went_on += "pieces that are there" in result.stderr
    assert went_on


def test_a_cluster_that_is_not_there_is_one_line() -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    with pytest.raises(BackendError, match=r"^workers ray:.+: no cluster can be reached"):
        Workers("ray:127.0.0.1:1", **OPTIONS)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
def test_a_cluster_that_asks_for_a_token_says_so(source: Path, tmp_path: Path) -> None:
    """Ray clusters do, where a token was made on the head: `--workers ray` makes one."""
    pytest.importorskip("ray", reason="Ray is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    head = [*ray, "start", "--head", "--port", str(port), "--num-cpus=0", "--include-dashboard=false", "--block"]
    with subprocess.Popen(head, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 240
            while not listens(port):
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.1)
            result = cli(source, "-o", tmp_path / "out.mp4", "--workers", f"ray:127.0.0.1:{port}")
        finally:
            process.terminate()
    *_, last = result.stderr.splitlines()  # those before are Ray's, for each attempt
    assert result.returncode == 3 and last.startswith("segmentation: error: workers ray:127.0.0.1:")
    assert last.endswith("a cluster that asks for a token needs RAY_AUTH_MODE=token)")


def test_a_cluster_that_cannot_be_started_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed")

    def init(*_: object, **__: object) -> None:  # as where the package was unpacked without its files' modes
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(BackendError, match=r"^workers ray: no cluster can be started \(.*Permission denied\)$"):
        Workers("ray", **OPTIONS)
