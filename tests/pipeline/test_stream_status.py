"""Figures and small pictures of streams that are under way."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import av
import barcode
import numpy as np
import pytest
from marks import DEVICES
from numpy.typing import NDArray
from rtsp_server import PASSWORD, USER, RtspServer

from segmentation import Streams, StreamStatus
from segmentation.frames.source import Source
from segmentation.pipeline.stream_status import StreamBoard

TIMEOUT = 240.0  # seconds: far more than anything here takes


def keep(batch: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ones((len(batch), 32, 32), np.float32)


OPTIONS: dict[str, Any] = {"model": keep, "device": "cpu", "input_size": (64, 64), "smooth": 0.0, "stall": 0.6}


@pytest.fixture
def streams(request: pytest.FixtureRequest) -> Iterator[Streams]:
    device = getattr(request, "param", "cpu")
    with Streams(reconnect="0.1..0.2", **{**OPTIONS, "device": device}) as made:
        yield made


def until(streams: Streams, name: str, happened: Callable[[StreamStatus], bool]) -> StreamStatus:
    """Waits for what a stream tells of itself. Its figures add up all the time."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        one = next(status for status in streams.status() if status.name == name)
        assert one.received == one.shown + one.waiting + sum(one.dropped.values())
        if happened(one):
            return one
        assert time.monotonic() < deadline, one
        time.sleep(0.005)


def test_a_stream_tells_of_itself(streams: Streams, tmp_path: Any) -> None:
    assert streams.status() == []
    with RtspServer(size=(640, 360), auth="Basic") as camera:
        streams.add("hall", camera.url(f"{USER}:{PASSWORD}"), tmp_path / "a.mkv", max_delay=10.0)
        up = until(streams, "hall", lambda one: one.state == "up" and one.shown > 20)
        assert (up.width, up.height) == (640, 360) and 5 < up.fps < 60 and up.seconds > 0
        assert up.latency["p50"] <= up.latency["p95"] <= up.latency["max"]
        assert up.address == f"rtsp://***@127.0.0.1:{camera.port}/cam"
        camera.refuse()
        camera.reset()
        lost = until(streams, "hall", lambda one: one.state == "lost")
        assert lost.shown >= up.shown and lost.reconnects == 0
        camera.accept()
        back = until(streams, "hall", lambda one: one.state == "up" and one.shown > lost.shown)
        assert back.reconnects == 1
        streams.remove("hall")
    ended = until(streams, "hall", lambda one: one.state == "ended")
    report = streams.report["hall"]
    assert (ended.received, ended.shown, ended.dropped) == (report.received, report.frames, report.dropped)
    assert ended.waiting == ended.fps == 0


def test_a_stream_that_fails_says_why(streams: Streams, tmp_path: Any) -> None:
    with RtspServer(auth="Basic") as camera:
        streams.add("hall", camera.url(f"{USER}:wrong-word"), tmp_path / "a.mkv")
        failed = until(streams, "hall", lambda one: one.state == "failed")
        assert failed.error == "hall: user or password is missing or wrong (401)" and failed.received == 0
        streams.add("hall", camera.url(f"{USER}:{PASSWORD}"), tmp_path / "b.mkv")  # takes the place of the failed one
        until(streams, "hall", lambda one: one.state == "up")
        assert len(streams.status()) == 1


@pytest.mark.parametrize("streams", DEVICES, indirect=True)
@pytest.mark.parametrize(("size", "expected"), [((640, 360), (640, 360)), ((1280, 720), (640, 360))])
def test_small_pictures_are_those_of_the_output(
    size: tuple[int, int], expected: tuple[int, int], streams: Streams, tmp_path: Any
) -> None:
    with RtspServer(size=size, fps=15) as camera:
        streams.add("hall", camera.url(), tmp_path / "a.mkv", max_delay=10.0)
        until(streams, "hall", lambda one: one.state == "up")
        monitor = streams._segmenter.streams.get("hall")
        assert monitor is not None and not monitor.wants_picture, "none is made unless somebody looks"
        found: list[int] = []
        while len(set(found)) < 3:
            data = monitor.jpeg(10.0)
            assert data is not None
            picture = av.CodecContext.create("mjpeg", "r").decode(av.Packet(data))[0]  # type: ignore[attr-defined]
            assert (picture.width, picture.height) == expected
            found.append(barcode.read(picture.to_ndarray(format="gray"))[0])
        assert found == sorted(found) and len(found) < 1000, "none is older than the one before"
        assert all(number in camera.sent for number in found)
        camera.silent.set()
        until(streams, "hall", lambda one: one.waiting == 0)
        assert monitor.jpeg(0.5) is not None, "the last one stays while the source is silent"


def test_ended_streams_are_not_kept_for_ever() -> None:
    board = StreamBoard()
    running = board.begin(Source.parse("hall=rtsp://127.0.0.1/cam"))
    for number in range(300):
        board.begin(Source.parse(f"n{number}=rtsp://127.0.0.1/cam")).failed(OSError("gone"))
    names = [monitor.name for monitor in board.monitors]
    assert running.name in names and "n299" in names and "n0" not in names and len(names) < 150


def test_many_ask_at_once(streams: Streams, tmp_path: Any) -> None:
    with RtspServer(fps=15) as camera:
        streams.add("hall", camera.url(), tmp_path / "a.mkv")
        until(streams, "hall", lambda one: one.state == "up")
        monitor = streams._segmenter.streams.get("hall")
        assert monitor is not None
        found: list[bytes | None] = []
        threads = [threading.Thread(target=lambda: found.append(monitor.jpeg(10.0))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 8 and all(found)
