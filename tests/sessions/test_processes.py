"""Runs in several processes: what they write and report, and that one which dies harms no other."""

import io
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from barcode import numbers
from child_processes import children
from paths import SAMPLE
from program import cli
from quick import NETWORK
from rtsp_server import PASSWORD, USER, RtspServer
from videos import pictures

from segmentation import ConfigError, Processes, Report, Segmenter, Streams
from segmentation.sessions import processes

OPTIONS: dict[str, Any] = {
    "processes": 2,
    "device": "cpu",
    "input_size": (64, 64),
    "smooth": 0.0,
    "stall": 0.6,
    "max_delay": 10.0,
}


def workers(of: int | None = None) -> set[int]:
    """Returns the sessions' processes that a process, else this one, has started and that are not over."""
    return {process for server in children(of, "fork_server") for process in children(server)}


@pytest.mark.slow
def test_streams_are_shared_and_each_is_as_alone(camera: RtspServer, tmp_path: Path) -> None:
    with RtspServer() as other, Streams(**OPTIONS) as streams:
        for number, server in enumerate((camera, other, camera)):
            streams.add(f"s{number}", server.url(), tmp_path / "{name}.mkv", max_frames=30 + number)
        kinds = [(event.name, event.kind) for event in streams.events()]
        assert len(workers()) == 2
        assert sorted(kinds) == sorted((f"s{n}", kind) for n in range(3) for kind in ("started", "ended"))
        for number in range(3):
            report = streams.report[f"s{number}"]
            found = numbers(tmp_path / f"s{number}.mkv")
            assert len(found) == report.frames == 30 + number and found == sorted(set(found))
            assert report.received == report.frames + sum(report.dropped.values())
        status = {one.name: one for one in streams.status()}
        assert all(one.state == "ended" and one.shown >= 30 for one in status.values())
    assert not workers()


def test_figures_and_pictures_come_while_they_run(camera: RtspServer, tmp_path: Path) -> None:
    with Streams(**OPTIONS) as streams:
        url = streams.serve("127.0.0.1:0")
        streams.add("hall", camera.url(), tmp_path / "hall.mkv")
        deadline = time.monotonic() + 240
        while True:
            (one,) = json.loads(urllib.request.urlopen(f"{url}streams").read())
            if one["state"] == "up" and one["shown"] > 10:
                break
            assert time.monotonic() < deadline, one
            time.sleep(0.1)
        assert one["name"] == "hall" and (one["width"], one["height"]) == camera.size
        assert one["received"] == one["shown"] + one["waiting"] + sum(one["dropped"].values())
        assert urllib.request.urlopen(f"{url}streams/hall.jpg").read()[:2] == b"\xff\xd8"
        assert (
            'segmentation_frames_received_total{stream="hall"}'
            in urllib.request.urlopen(f"{url}metrics").read().decode()
        )
        streams.remove("hall")
    assert streams.report["hall"].frames == len(numbers(tmp_path / "hall.mkv"))


@pytest.mark.slow
def test_a_process_that_dies_takes_its_streams_alone(camera: RtspServer, tmp_path: Path) -> None:
    with RtspServer() as other, Streams(**OPTIONS) as streams:
        streams.add("a", camera.url(), tmp_path / "a.mkv")
        events = streams.events()
        assert next(events).kind == "started"
        (first,) = workers()
        streams.add("b", other.url(), tmp_path / "b.mkv", max_frames=60)
        assert next(events).kind == "started"
        (second,) = workers() - {first}
        os.kill(second, signal.SIGKILL)
        end = next(events)
        assert (end.name, end.kind) == ("b", "failed")
        assert str(end.error).startswith("b: the process that ran it was ended by")
        shown = next(one.shown for one in streams.status() if one.name == "a")
        deadline = time.monotonic() + 240
        while next(one.shown for one in streams.status() if one.name == "a") < shown + 10:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        streams.remove("a")
        end = next(events)
        assert (end.name, end.kind) == ("a", "ended")
        found = numbers(tmp_path / "a.mkv")
        assert len(found) == streams.report["a"].frames > shown and found == sorted(set(found))
        streams.add("b", other.url(), tmp_path / "again.mkv", max_frames=5)
        assert [event.kind for event in streams.events()] == ["started", "ended"]


def test_failures_and_the_log_come_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with RtspServer(auth="Basic") as locked, Streams(**OPTIONS) as streams:
        streams.add("locked", locked.url(f"{USER}:{PASSWORD}x"), tmp_path / "l.mkv")
        (event,) = streams.events()
    assert "user or password is missing or wrong" in str(event.error) and not list(tmp_path.iterdir())
    with RtspServer() as camera, Streams(**OPTIONS, reconnect="never") as streams, caplog.at_level(logging.WARNING):
        streams.add("hall", camera.url(), tmp_path / "hall.mkv")
        events = streams.events()
        assert next(events).kind == "started"
        camera.hang_up()
        assert next(events).kind == "ended"
    (said,) = [record for record in caplog.records if "the run ends" in record.message]
    assert said.name == "segmentation.live.reader" and said.message.startswith("hall: ")
    assert PASSWORD not in caplog.text


def test_what_cannot_go_there_is_refused(camera: RtspServer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="processes 0: give 1 or more"):
        Processes(0)
    with pytest.raises(ConfigError, match="processes 2: an option can't be sent"):
        Processes(2, model=lambda batch: batch)
    with Processes(2, device="cpu") as session:
        with open(SAMPLE, "rb") as source, pytest.raises(ConfigError, match="an input is a file or an address with"):
            session.run(source, tmp_path / "a.mp4")
        with open(tmp_path / "a.mkv", "wb") as file, pytest.raises(ConfigError, match="no pipe and no file object"):
            session.run(camera.url(), file)
        with open(tmp_path / "a.jsonl", "w") as lines:
            for given in (lines, io.StringIO()):  # the latter can be sent, and nothing would come back
                with pytest.raises(ConfigError, match="results go to a file or an address there, not to a file object"):
                    session.run(SAMPLE, tmp_path / "a.mp4", results=given)
    assert not (tmp_path / "a.mp4").exists()


@pytest.mark.slow
@pytest.mark.parametrize("where", [{"device": "cpu"}, pytest.param({"mode": "optimized"}, marks=pytest.mark.gpu)])
def test_files_are_the_same_bytes_as_from_one_process(where: dict[str, Any], people: Path, tmp_path: Path) -> None:
    inputs = [people, Path(SAMPLE), people, Path(SAMPLE)]

    def make(session: Segmenter, name: str) -> list[tuple[bytes, bytes, Report]]:
        def run(number: int) -> Report:
            results = tmp_path / f"{name}{number}.jsonl"
            return session.run(inputs[number], tmp_path / f"{name}{number}.mp4", results=results, max_frames=40)

        with ThreadPoolExecutor(len(inputs)) as pool:
            reports = list(pool.map(run, range(len(inputs))))
        read = [Path(report.output).read_bytes() for report in reports]
        lines = [(tmp_path / f"{name}{number}.jsonl").read_bytes() for number in range(len(inputs))]
        return list(zip(read, lines, reports, strict=True))

    with Segmenter(effect="blur:20", **where) as alone:
        expected = make(alone, "alone")
    with Processes(2, effect="blur:20", **where) as session:
        found = make(session, "shared")
        assert len(workers()) == 2
    assert not workers()
    for (video, lines, report), (other, others, alike) in zip(found, expected, strict=True):
        assert (video, lines) == (other, others)
        assert report.frames == alike.frames == 40 and report.plan == alike.plan and report.complete


def test_a_process_that_dies_takes_its_files_alone(tmp_path: Path) -> None:
    begun = threading.Barrier(3)
    first: dict[str, bool] = {}

    def run(name: str) -> Report:
        def advance(done: int, _: int) -> None:
            if not first.setdefault(name, False):
                first[name] = True
                begun.wait(240)
                begun.wait(240)

        return session.run(SAMPLE, tmp_path / f"{name}.mp4", progress=advance)

    with Processes(2, device="cpu", model=NETWORK) as session, ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(run, name) for name in ("a", "b")]
        begun.wait(240)
        os.kill(min(workers()), signal.SIGKILL)
        begun.wait(240)
        failures = [failure for future in runs if (failure := future.exception(240)) is not None]
        assert len(failures) == 1 and "the process that ran it was ended by signal 9" in str(failures[0])
        (left,) = tmp_path.iterdir()  # not the temporary file of the other
        assert [report.frames for report in reports(runs)] == [frames_of(left)]
        assert session.run(SAMPLE, tmp_path / "again.mp4", max_frames=20).frames == 20


def reports(runs: list[Future[Report]]) -> list[Report]:
    """Returns the reports of the runs that have one."""
    return [run.result() for run in runs if run.exception() is None]


def frames_of(path: Path) -> int:
    """Returns how many frames a video has."""
    return len(list(pictures(path)))


@pytest.mark.slow
def test_processes_take_the_gpus_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that begins in the place of another."""
    monkeypatch.setattr(processes, "visible_gpus", lambda config: ["7", "9"])  # numbers that no process finds

    with Processes(3) as session, ThreadPoolExecutor(3) as pool:

        def run(number: int) -> Report:
            return session.run(SAMPLE, tmp_path / f"{number}.mp4", max_frames=20, overwrite=True)

        list(pool.map(run, range(3)))
        assert sorted(str(process.gpu) for process in session._started) == ["7", "7", "9"]
        (lone,) = [process for process in session._started if process.gpu == "9"]
        lone._process.kill()
        lone._process.describe_death()
        list(pool.map(run, range(3)))
        assert sorted(str(process.gpu) for process in session._started if process.is_alive()) == ["7", "7", "9"]


def test_a_run_that_is_left_leaves_no_file(tmp_path: Path) -> None:
    def leave(done: int, _: int) -> None:
        raise ZeroDivisionError

    with Processes(1, device="cpu") as session:
        with pytest.raises(ZeroDivisionError):
            session.run(SAMPLE, tmp_path / "a.mp4", progress=leave)
        assert session.run(SAMPLE, tmp_path / "b.mp4", max_frames=20).frames == 20
    assert [path.name for path in tmp_path.iterdir()] == ["b.mp4"]


def test_a_stopped_file_is_playable(tmp_path: Path) -> None:
    stop = threading.Event()
    told: list[int] = []

    def advance(done: int, _: int) -> None:
        told.append(done)
        stop.set()

    with Processes(1, device="cpu") as session:
        report = session.run(SAMPLE, tmp_path / "a.mp4", stop=stop, progress=advance)
    assert told == sorted(told) and told[-1] == report.frames
    assert 0 < report.frames == frames_of(tmp_path / "a.mp4") < 130


@pytest.mark.slow
def test_the_command_shares_files_among_processes(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.mp4").write_bytes(Path(SAMPLE).read_bytes())
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    given = ["--processes", "2", "--jobs", "4", "--device", "cpu", "--max-frames", "20", "--json"]
    done = cli(tmp_path, "-o", tmp_path / "out", *given)
    assert done.returncode == 1, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(line["frames"] for line in lines if "frames" in line) == [20, 20, 20]
    assert len([line for line in lines if "error" in line]) == 1
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"{name}.segmented.mp4" for name in "abc"]
    refused = cli(tmp_path / "a.mp4", "--processes", "2", "--workers", "local:2")
    assert refused.returncode == 2 and "choose one of the two" in refused.stderr


def test_stopping_completes_the_files(camera: RtspServer, tmp_path: Path) -> None:
    stop = threading.Event()
    done: list[int] = []

    def advance(count: int, _: int) -> None:
        done.append(count)
        stop.set()

    with Processes(1, device="cpu", input_size=(64, 64)) as session:
        report = session.run(camera.url(), tmp_path / "a.mkv", stop=stop, progress=advance)
    assert done and report.frames == len(numbers(tmp_path / "a.mkv")) > 0


@pytest.mark.slow
def test_where_the_program_is_killed_its_processes_end_with_complete_files(camera: RtspServer, tmp_path: Path) -> None:
    path = tmp_path / "a.mkv"
    program = f"""
from segmentation import Streams
with Streams(processes=2, device="cpu", input_size=(64, 64)) as streams:
    streams.add("a", {camera.url()!r}, {str(path)!r})
    for event in streams.events():
        print(event.kind, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"started\n"
        (worker,) = workers(process.pid)
        process.kill()
    deadline = time.monotonic() + 240
    while Path(f"/proc/{worker}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    found = numbers(path)
    assert found and found == sorted(set(found))


@pytest.mark.gpu
def test_processes_share_a_gpu(camera: RtspServer, tmp_path: Path) -> None:
    with RtspServer() as other, Streams(processes=2, mode="optimized", track="balanced", max_delay=10.0) as streams:
        for name, server in (("a", camera), ("b", other)):
            streams.add(name, server.url(), tmp_path / "{name}.mkv", max_frames=60)
        assert {event.kind for event in streams.events()} == {"started", "ended"} and len(workers()) == 2
    for name in ("a", "b"):
        assert streams.report[name].plan["infer"] == "torch-fp16"
        found = numbers(tmp_path / f"{name}.mkv")
        assert len(found) == 60 and found == sorted(set(found))
