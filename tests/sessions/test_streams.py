"""Streams that come and go on one session: what is reported, and that one which fails harms no other."""

import os
import socket
import subprocess
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from barcode import numbers
from numpy.typing import NDArray
from rtsp_server import PASSWORD, USER, RtspServer

from segmentation import ConfigError, Report, SegmentationError, Streams


def keep(batch: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ones((len(batch), 32, 32), np.float32)


OPTIONS: dict[str, Any] = {"model": keep, "device": "cpu", "input_size": (64, 64), "smooth": 0.0, "stall": 0.6}


def accounted(report: Report) -> bool:
    return report.received == report.frames + sum(report.dropped.values())


def test_streams_come_and_go(camera: RtspServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with RtspServer() as other, Streams(**OPTIONS) as streams:
        streams.add("hall", camera.url())
        events = streams.events()
        assert next(events).kind == "started" and streams.names == ["hall"]
        streams.add("gate", other.url(), "{name}.mkv", max_frames=10)
        found = [next(events) for _ in range(2)]
        assert [(event.name, event.kind) for event in found] == [("gate", "started"), ("gate", "ended")]
        assert streams.report.keys() == {"gate"}
        streams.add("gate", other.url(), "again.mkv", max_frames=5)  # a name is free again
        assert [next(events).kind for _ in range(2)] == ["started", "ended"]
        streams.remove("hall")
        assert [(event.name, event.kind) for event in events] == [("hall", "ended")]
        assert streams.names == []
    for name, path in (("hall", "hall.segmented.mp4"), ("gate", "again.mkv")):
        report = streams.report[name]
        assert report.input == name and report.frames == len(numbers(tmp_path / path)) and accounted(report)
    assert len(numbers(tmp_path / "gate.mkv")) == 10


def test_streams_that_fail_leave_the_others(
    camera: RtspServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "taken.mp4").touch()
    before = threading.active_count()
    with RtspServer(auth="Basic") as locked, socket.create_server(("127.0.0.1", 0)) as mute, Streams(**OPTIONS) as s:
        s.add("hall", camera.url(), tmp_path / "hall.mkv", max_frames=60, max_delay=10.0)
        addresses = {
            "refused": ("rtsp://127.0.0.1:1/cam", "the connection is refused"),
            "mute": (f"rtsp://127.0.0.1:{mute.getsockname()[1]}/cam", "silent for 0.6 s (--stall)"),
            "locked": (locked.url(f"{USER}:{PASSWORD}x"), "user or password is missing or wrong (401)"),
            "taken": (locked.url(f"{USER}:{PASSWORD}"), "exists already"),
        }
        for name, (address, _) in addresses.items():
            s.add(name, address, tmp_path / ("taken.mp4" if name == "taken" else f"{name}.mkv"))
        ends = {event.name: event for event in s.events() if event.kind != "started"}
    for name, (_, reason) in addresses.items():
        assert ends[name].kind == "failed" and reason in str(ends[name].error) and "\n" not in str(ends[name].error)
    assert ends["hall"].kind == "ended" and accounted(s.report["hall"])
    found = numbers(tmp_path / "hall.mkv")
    assert found == [number for number in camera.sent if found[0] <= number <= found[-1]] and len(found) == 60
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == len(addresses)
    assert PASSWORD not in caplog.text and threading.active_count() <= before + 2


def _shown(streams: Streams, name: str) -> int:
    return next(one.shown for one in streams.status() if one.name == name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_disk_that_is_full_for_one_stream_is_one_line(
    camera: RtspServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    full = tmp_path / "full"
    full.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40k", "none", full], capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        with Streams(**OPTIONS) as streams:
            streams.add("full", camera.url(), full / "{name}.mkv", cut_every=60, codec="ffv1")
            streams.add("hall", camera.url(), tmp_path / "hall.mkv", max_delay=10.0)
            ends = {}
            for event in streams.events():
                if event.kind != "started":
                    ends[event.name] = event
                if event.name == "full" and event.kind == "failed":
                    before = _shown(streams, "hall")
                    while _shown(streams, "hall") < before + 10:  # the other one goes on
                        time.sleep(0.01)
                    threading.Thread(target=streams.remove, args=("hall",)).start()
    finally:
        subprocess.run(["umount", full], check=True)
    assert ends["full"].kind == "failed" and ends["hall"].kind == "ended"
    said = f"{full}/full.mkv: cannot be written (No space left on device)"
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [said]
    assert len(numbers(tmp_path / "hall.mkv")) == streams.report["hall"].frames and accounted(streams.report["hall"])


def test_leaving_ends_all_streams(camera: RtspServer, tmp_path: Path) -> None:
    with Streams(**OPTIONS) as streams:
        for name in ("a", "b"):
            streams.add(name, camera.url(), tmp_path / f"{name}.mkv")
        started = {event.name for event in islice(streams.events(), 2)}
    assert started == {"a", "b"} and streams.report.keys() == {"a", "b"} and not streams.names
    assert all(len(numbers(tmp_path / f"{name}.mkv")) == streams.report[name].frames for name in started)


def test_what_is_no_stream_is_refused(camera: RtspServer, tmp_path: Path) -> None:
    with Streams(**OPTIONS) as streams:
        for name, address in (("hall", "clip.mp4"), ("a/b", camera.url()), ("", camera.url())):
            with pytest.raises(ConfigError, match="is no live source with a name"):
                streams.add(name, address)
        with pytest.raises(ConfigError, match="hall: no such stream is under way"):
            streams.remove("hall")
        with pytest.raises(TypeError, match=r"progress: is no option of add\(\)"):
            streams.add("hall", camera.url(), progress=print)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match=r"model: belongs to the whole session, not to add\(\)"):
            streams.add("hall", camera.url(), model="person")  # type: ignore[call-arg]
        streams.add("hall", camera.url(), tmp_path / "hall.mkv")
        with pytest.raises(ConfigError, match="hall: is under way already"):
            streams.add("hall", camera.url())
        assert not list(tmp_path.glob("*.mp4"))


def test_a_thread_that_cant_start_takes_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with RtspServer() as camera, Streams(**OPTIONS) as streams:
        with monkeypatch.context() as scarce:
            scarce.setattr(threading, "_start_new_thread", no_thread)
            with pytest.raises(SegmentationError, match="hall: memory or threads are used up"):
                streams.add("hall", camera.url())
        assert streams.names == [] and [one.state for one in streams.status()] == ["failed"]
        assert list(streams.events()) == []
