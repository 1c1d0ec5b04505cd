"""Workers in processes: the same output from any number of them, and whoever is killed."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import av
import pytest
from marks import first
from paths import ROOT
from pieced import FRAMES, OPTIONS, PIECES, Made, at_work, files, long_video, made, workers_of
from program import TIMEOUT, cli, file_limit, report, start
from prometheus_client.parser import text_string_to_metric_families
from videos import Synthetic, packets

from segmentation import Config, ConfigError, InputError, ModelError, OutputError, SegmentationError, Workers, segment
from segmentation.pipeline.report import Report
from segmentation.sessions.workers_status import metrics

WORK = ("--device", "cpu", "--model", str(OPTIONS["model"]))
LONGEST_RUN = 1.5  # seconds from the first piece on, within which somebody is killed


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return long_video(tmp_path_factory.mktemp("video") / "in.mp4")


@pytest.fixture(scope="module")
def two() -> Iterator[Workers]:
    with Workers("local:2", **OPTIONS) as workers:
        yield workers


@pytest.fixture(scope="module")
def expected(two: Workers, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("expected")
    two.run(source, folder / "out.mp4", **files(folder))  # type: ignore[arg-type]
    return made(folder)


def test_sound_gets_its_pitch_once(two: Workers, source: Path, tmp_path: Path) -> None:
    two.run(source, tmp_path / "two.mp4", pitch_shift=3)
    segment(source, tmp_path / "one.mp4", pitch_shift=3, **OPTIONS)
    made, expected, before = (packets(path, "audio") for path in (tmp_path / "two.mp4", tmp_path / "one.mp4", source))
    assert made == expected and made[9] != before[9]


def pieces_left(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
@pytest.mark.parametrize("number", first(1, [4, 1]))
def test_the_number_of_workers_does_not_show(number: int, source: Path, expected: Made, tmp_path: Path) -> None:
    arguments = ("--results", tmp_path / "out.jsonl", "--save-masks", tmp_path / "out.masks.mkv", "--json", "--verify")
    result = cli(source, "-o", tmp_path / "out.mp4", *WORK, *arguments, "--workers", f"local:{number}")
    told = report(result)
    assert made(tmp_path) == expected and not pieces_left(tmp_path)
    assert told["frames"] == FRAMES and told["verified"]["frames"] == FRAMES and told["redone"] == 0
    assert told["pieces"] == PIECES
    assert 1 <= len(told["workers"]) <= number and all(rate > 0 for rate in told["workers"].values())


def test_ids_go_on_from_frame_to_frame(
    two: Workers, source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output = os.path.relpath(tmp_path / "out.mp4")
    told = two.run(source, output, results=tmp_path / "out.jsonl", track="fast", max_frames=5)
    assert told.output == output  # as it was given
    assert told.frames == 5 and "ids go on from frame to frame; one worker does all" in caplog.text
    assert all("instances" in line for line in (tmp_path / "out.jsonl").read_text().splitlines())


def killed_once(workers: Workers, source: Path, folder: Path, dice: random.Random, others: set[int]) -> Report:
    """Kills a worker, none of `others`, with kill -9 at some moment of a run."""

    def kill() -> None:
        at_work(os.getpid())
        time.sleep(dice.random() * LONGEST_RUN)
        if found := [worker for worker in workers_of(os.getpid()) if worker not in others]:
            os.kill(dice.choice(found), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        return workers.run(source, folder / "out.mp4", **files(folder))  # type: ignore[arg-type]
    finally:
        killer.join()


def check_killed_workers(
    times: int, workers: Workers, source: Path, expected: Made, folder: Path, others: Sequence[int] = ()
) -> None:
    dice = random.Random(times)
    redone = 0
    for number in range(times):
        place = folder / str(number)
        place.mkdir()
        redone += killed_once(workers, source, place, dice, set(others)).redone
        assert made(place) == expected and not pieces_left(place)
    assert redone or times < 4  # else none was at work


def test_a_killed_worker_does_not_show(two: Workers, source: Path, expected: Made, tmp_path: Path) -> None:
    check_killed_workers(2, two, source, expected, tmp_path)


@pytest.mark.slow
def test_twenty_killed_workers_do_not_show(source: Path, expected: Made, tmp_path: Path) -> None:
    others = workers_of(os.getpid())  # of `two`, which other tests use
    with Workers("local:3", **OPTIONS) as workers:
        check_killed_workers(20, workers, source, expected, tmp_path, others)


def check_killed_driver(seed: int, source: Path, expected: Made, folder: Path, longest: float = LONGEST_RUN) -> bool:
    """Kills the driver, and gives the same command again. Returns whether pieces were there to go on with."""
    dice = random.Random(seed)
    written = ("--results", folder / "out.jsonl", "--save-masks", folder / "out.masks.mkv")
    arguments = (source, "-o", folder / "out.mp4", *WORK, *written, "--workers", "local:2")
    with start(*arguments) as driver:
        orphans = at_work(driver.pid)
        time.sleep(dice.random() * longest)
        driver.kill()
        driver.wait()
    deadline = time.monotonic() + 240
    while any(os.path.exists(f"/proc/{worker}") for worker in orphans):
        assert time.monotonic() < deadline, "workers outlive their driver"
        time.sleep(0.05)
    if (folder / "out.mp4").exists():  # it was too late for the driver
        return False
    result = cli(*arguments)
    assert result.returncode == 0, result.stderr
    assert made(folder) == expected and not pieces_left(folder)
    return f"of {PIECES} pieces that are there" in result.stderr


@pytest.mark.slow
def test_the_same_command_goes_on_after_the_drivers_death(source: Path, expected: Made, tmp_path: Path) -> None:
    check_killed_driver(2, source, expected, tmp_path)


@pytest.mark.slow
def test_twenty_killed_drivers_do_not_show(source: Path, expected: Made, tmp_path: Path) -> None:
    written = ("--results", tmp_path / "whole.jsonl", "--save-masks", tmp_path / "whole.masks.mkv")
    with start(source, "-o", tmp_path / "whole.mp4", *WORK, *written, "--workers", "local:2") as driver:
        at_work(driver.pid)
        begin = time.monotonic()
        driver.wait()
        longest = time.monotonic() - begin  # of a run that nobody disturbs
    went_on = 0
    for seed in range(20):
        folder = tmp_path / str(seed)
        folder.mkdir()
        went_on += check_killed_driver(seed, source, expected, folder, longest)
    assert went_on > 5


@pytest.mark.slow
def test_a_stopped_run_goes_on(two: Workers, source: Path, expected: Made, tmp_path: Path) -> None:
    stop = threading.Event()

    def progress(done: int, frames: int) -> None:
        assert frames == FRAMES and 0 <= done <= FRAMES
        if list(tmp_path.glob(".out.mp4.pieces/[0-9]*.piece")):  # frames may be of pieces that are not complete
            stop.set()

    with pytest.raises(SegmentationError, match=r"stopped; its complete pieces are in .* the same command goes on"):
        two.run(source, tmp_path / "out.mp4", stop=stop, progress=progress, **files(tmp_path))  # type: ignore[arg-type]
    assert not (tmp_path / "out.mp4").exists()
    two.run(source, tmp_path / "out.mp4", **files(tmp_path))  # type: ignore[arg-type]
    assert made(tmp_path) == expected


def test_a_run_stopped_before_its_first_piece_names_no_pieces(two: Workers, source: Path, tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(SegmentationError, match=r": stopped before a piece was complete$"):
        two.run(source, tmp_path / "out.mp4", stop=stop)
    assert not list(tmp_path.glob("*out*")) + list(tmp_path.glob(".*out*"))


def test_a_signal_within_the_first_pieces_leaves_nothing(source: Path, tmp_path: Path) -> None:
    pieces = tmp_path / ".out.mp4.pieces"
    arguments = ("--device", "cpu", "--workers", "local:2", "--json")
    with start(source, "-o", tmp_path / "out.mp4", *arguments) as driver:
        driver.until(lambda: any(path.stat().st_size for path in pieces.glob(".*.part.piece")))
        for worker in workers_of(driver.pid):  # so that no piece is complete before the signal
            os.kill(worker, signal.SIGSTOP)
        driver.send_signal(signal.SIGTERM)
        stdout, stderr = driver.communicate(timeout=TIMEOUT)
    reason = f"{source}: stopped before a piece was complete"
    assert driver.returncode == 143 and json.loads(stdout) == {"input": str(source), "stopped": True, "reason": reason}
    assert reason in stderr and "error" not in stderr and not list(tmp_path.iterdir())


def test_damage_is_said(two: Workers, source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with av.open(str(source)) as container:
        packet = [packet for packet in container.demux(video=0) if packet.size][40]
        assert packet.pos is not None
        data = bytearray(source.read_bytes())
        data[packet.pos : packet.pos + packet.size] = bytes(packet.size)
    (tmp_path / "in.mp4").write_bytes(data)
    done = two.run(tmp_path / "in.mp4", tmp_path / "out.mp4")
    assert done.damaged > 0
    found = re.search(r"in\.mp4: (\d+) frames? (?:is|are) damaged or missing, (\d+) were written", caplog.text)
    assert found is not None and (int(found[1]), int(found[2])) == (done.damaged, done.frames)


def check_one_error(result: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert result.returncode == 1 and not result.stdout and "Traceback" not in result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("segmentation: error: ")]
    assert len(errors) == 1 and all(part in errors[0] for part in parts), result.stderr


def test_figures_of_workers_are_those_of_their_runs(two: Workers, source: Path, expected: Made, tmp_path: Path) -> None:
    before, seen = two.status(), []
    two.run(source, tmp_path / "out.mp4", progress=lambda done, frames: seen.append(two.status()))
    after = two.status()
    assert after.done == before.done + PIECES and after.left == 0 and not after.videos
    assert after.frames >= before.frames + FRAMES and after.frames == sum(one.frames for one in after.workers)
    for one in seen:
        (video,) = one.videos
        assert (video.input, video.output) == (str(source), str(tmp_path / "out.mp4"))
        assert one.done - before.done == PIECES - video.left and video.expected == FRAMES
    assert any(worker.state == "at work" and worker.fps > 0 for one in seen for worker in one.workers)
    families = {
        family.name: family
        for family in text_string_to_metric_families("".join(f"{line}\n" for line in metrics(after)))
    }
    assert all(family.documentation and family.type != "unknown" for family in families.values())
    made = {sample.labels["worker"]: sample.value for sample in families["segmentation_worker_frames"].samples}
    assert made == {worker.name: worker.frames for worker in after.workers}
    assert families["segmentation_pieces_done"].samples[0].value == after.done


@pytest.mark.slow
def test_a_piece_that_always_fails_is_one_error(source: Path, tmp_path: Path) -> None:
    """The encoders' memory, a file for the system, can't be as long as they need."""
    with start(source, "-o", tmp_path / "out.mp4", *WORK, "--workers", "local:2", before=file_limit(50_000)) as driver:
        stdout, stderr = driver.communicate(timeout=240)
    result = subprocess.CompletedProcess("", driver.returncode, stdout, stderr)
    check_one_error(result, "in.mp4: piece ", " times: ", "File too large")
    assert not (tmp_path / "out.mp4").exists()


@pytest.mark.slow
def test_a_full_disk_is_one_error(source: Path, tmp_path: Path) -> None:
    full = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=400k none "$0" && exec "$@"', tmp_path]
    if shutil.which("unshare") is None or subprocess.run([*full, "true"], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    command = [*full, sys.executable, "-m", "segmentation", source, "-o", tmp_path / "out.mp4", *WORK]
    result = subprocess.run([*command, "--workers", "local:2"], capture_output=True, text=True, cwd=ROOT, timeout=240)
    check_one_error(result, "No space left on device")  # of a worker, or of the joiner


def test_workers_without_their_network_are_one_error(source: Path, tmp_path: Path) -> None:
    with Workers("local:2", device="cpu", model=tmp_path / "none.onnx") as workers, pytest.raises(ModelError):
        workers.run(source, tmp_path / "out.mp4")
    assert not list(tmp_path.iterdir())


def test_a_video_without_frames_in_its_stretch_is_one_error(two: Workers, source: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no frame was found in the wanted stretch"):
        two.run(source, tmp_path / "out.mp4", start=100)
    assert not (tmp_path / "out.mp4").exists()


def test_an_output_that_exists_is_refused_before_any_work(two: Workers, source: Path, tmp_path: Path) -> None:
    (tmp_path / "out.mp4").write_bytes(b"kept")
    with pytest.raises(OutputError, match="exists already"):
        two.run(source, tmp_path / "out.mp4")
    assert (tmp_path / "out.mp4").read_bytes() == b"kept" and not pieces_left(tmp_path)


def test_results_that_exist_are_refused_before_any_work(two: Workers, source: Path, tmp_path: Path) -> None:
    written = files(tmp_path)
    written["results"].write_text("kept")
    with pytest.raises(OutputError, match="exists already"):
        two.run(source, tmp_path / "out.mp4", **written)  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


@pytest.mark.parametrize("suffix", [".gif", ".mov"])
def test_what_has_no_pieces_is_an_ordinary_run_of_one_worker(two: Workers, suffix: str, tmp_path: Path) -> None:
    source = Synthetic(codec="libx264", size=(64, 48)).write(tmp_path / "in.mp4")
    effect = "cutout" if suffix == ".mov" else "blur"
    told = two.run(source, tmp_path / f"out{suffix}", effect=effect)
    assert told.frames == 25 and (tmp_path / f"out{suffix}").exists() and told.complete


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("two", {}, "write local:N"),
        ("local:0", {}, "write local:N"),
        ("local:2", {"model": lambda pictures: pictures}, "can't be sent to workers"),
        ("local:2", {"trace": "a.json"}, "leave out --trace"),
    ],
)
def test_what_workers_can_not_do_is_said_at_once(spec: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Workers(spec, Config(**options))


def test_idle_workers_end_though_nobody_waits_for_them() -> None:
    others = workers_of(os.getpid())  # of `two`, which other tests use
    deadline = time.monotonic() + TIMEOUT
    with Workers("local:2", **OPTIONS) as workers:
        while workers.status().alive < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        own = [worker for worker in workers_of(os.getpid()) if worker not in others]
    assert len(own) == 2
    while any(os.path.exists(f"/proc/{worker}") for worker in own):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_many_videos_share_the_workers(source: Path, tmp_path: Path) -> None:
    """Short ones are one piece each, one is no video, one is there already."""
    folder = tmp_path / "videos"
    folder.mkdir()
    for number in range(4):
        Synthetic(codec="libx264", size=(64, 48), pts=range(10 + number)).write(folder / f"{number}.mp4")
    (folder / "long.mp4").symlink_to(source)
    (folder / "bad.mp4").write_bytes(b"no video")
    out = tmp_path / "out"
    out.mkdir()
    (out / "3.segmented.mp4").touch()
    result = cli(folder, "-o", out, *WORK, "--workers", "local:2", "--skip-existing", "--json")
    assert result.returncode == 1
    assert "4 done, 1 skipped, 1 failed" in result.stderr
    assert len(result.stdout.splitlines()) == 6
    assert sorted(path.name for path in out.iterdir()) == [f"{n}.segmented.mp4" for n in (0, 1, 2, 3)] + [
        "long.segmented.mp4"
    ]
