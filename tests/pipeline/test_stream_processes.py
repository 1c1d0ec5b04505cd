"""Streams in several processes: what they write and report, and that one which dies harms no other."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from barcode import numbers
from child_processes import children
from paths import SAMPLE
from rtsp_server import PASSWORD, USER, RtspServer

from segmentation import ConfigError, Streams
from segmentation.pipeline.stream_processes import StreamProcesses

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
    return set(children(of, "stream_worker"))


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
        deadline = time.monotonic() + 30
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
        deadline = time.monotonic() + 20
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
    assert [record.name for record in caplog.records if "the run ends" in record.message] == ["segmentation.media.live"]
    assert PASSWORD not in caplog.text


def test_what_cannot_go_there_is_refused(camera: RtspServer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="processes 0: give 1 or more"):
        StreamProcesses(0)
    with pytest.raises(ConfigError, match="processes 2: an option can't be sent"):
        StreamProcesses(2, model=lambda batch: batch)
    with StreamProcesses(2, device="cpu") as session:
        with pytest.raises(ConfigError, match="is no live source; leave out --processes"):
            session.run(SAMPLE, tmp_path / "a.mp4")
        with open(tmp_path / "a.mkv", "wb") as file, pytest.raises(ConfigError, match="no pipe and no file object"):
            session.run(camera.url(), file)


def test_stopping_completes_the_files(camera: RtspServer, tmp_path: Path) -> None:
    stop = threading.Event()
    done: list[int] = []

    def advance(count: int, _: int) -> None:
        done.append(count)
        stop.set()

    with StreamProcesses(1, device="cpu", input_size=(64, 64)) as session:
        report = session.run(camera.url(), tmp_path / "a.mkv", stop=stop, progress=advance)
    assert done and report.frames == len(numbers(tmp_path / "a.mkv")) > 0


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
    deadline = time.monotonic() + 20
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
