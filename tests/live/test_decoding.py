"""How a live source's packets go from the CPU to the pipeline's decoder, and back: no frame is lost or comes twice."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import barcode
import pytest
from host_packets import MARK, HostPackets
from marks import first
from numbered import numbered
from rtsp_server import RtspServer

from segmentation.frames import VideoInfo
from segmentation.frames.live_frames import LiveFrames
from segmentation.frames.packet_decoder import PictureOrder
from segmentation.frames.source import Source
from segmentation.live import decoding as live_decoding
from segmentation.live.reader import probe_any
from segmentation.system.access import Access

ACCESS: dict[str, Any] = {"stall": 60.0, "reconnect": (0.1, 0.2), "max_delay": 60.0}
GO_ON = threading.Event()


class Reading:
    """Reads a live source whose pipeline has a decoder of its own, and keeps number and maker of each frame."""

    def __init__(self, info: VideoInfo, frames: LiveFrames) -> None:
        self.frames, self.decoder = frames, HostPackets(info)
        self.numbers: list[int] = []
        self.handed_over: list[bool] = []  # whether the pipeline's decoder has made the frame

    def hand_over(self) -> None:
        self.frames.packet_decoder = self.decoder

    def read(self, until: Callable[[], bool]) -> None:
        """Takes frames until that is so, or the source has ended."""
        deadline = time.monotonic() + 240
        while not until():
            assert time.monotonic() < deadline, (self.numbers, self.handed_over)
            taken = self.frames.take(1, GO_ON, time.monotonic() + 0.1)
            for frame in taken:
                picture: Any = frame.picture
                self.numbers.append(barcode.read(picture.to_ndarray(format="gray"))[0])
                self.handed_over.append(bytes(picture.planes[1])[0] == MARK)
            self.frames.written(len(taken))
            if self.frames.ended and not taken:
                return

    @property
    def changes(self) -> list[bool]:
        """Who has made the frames, one after the other: `True` is the pipeline's decoder."""
        makers = self.handed_over
        return makers[:1] + [b for a, b in pairwise(makers) if a != b]


@contextmanager
def reading(address: str, **options: Any) -> Iterator[Reading]:
    info = probe_any(Source.parse(address), Access(**{**ACCESS, **options}))
    assert info.live is not None
    try:
        yield Reading(info, info.live)
    finally:
        info.live.close()
        counts = info.live.counts()
        assert counts.received == counts.shown + counts.waiting + sum(counts.dropped.values())


def test_the_change_is_at_a_keyframe_and_all_frames_come_once(camera: RtspServer) -> None:
    with reading(camera.url()) as source:
        source.read(lambda: len(source.numbers) > 5)
        source.hand_over()
        source.read(lambda: sum(source.handed_over) > 40)
        assert source.changes == [False, True] and source.numbers == _sent(camera, source)
        # Frames, not their numbers, of which the camera of a slow machine skips some.
        assert source.handed_over.index(True) % camera.fps == 0
        assert len(source.decoder.begun) == 1 and not source.frames.dropped
    deadline = time.monotonic() + 240
    while source.decoder.ended != 1:  # by the thread that reads, at its next packet
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _sent(camera: RtspServer, source: Reading) -> list[int]:
    """Returns the numbers that have come by now, as the camera has noted them, which it does once a frame is sent."""
    deadline = time.monotonic() + 240
    while source.numbers[-1] not in camera.sent:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return [number for number in camera.sent if source.numbers[0] <= number <= source.numbers[-1]]


def test_a_new_connection_begins_with_the_pipelines_decoder(camera: RtspServer) -> None:
    with reading(camera.url()) as source:
        source.hand_over()
        source.read(lambda: sum(source.handed_over) > 5)
        camera.hang_up()
        source.read(lambda: len(source.decoder.begun) == 2 and sum(source.handed_over) > 40)
        assert source.changes == [False, True] and source.decoder.ended == 1
        assert source.numbers == sorted(set(source.numbers)) and source.frames.reconnects == 1
        first, second = (info.extradata for info in source.decoder.begun)
        assert first == second and first


def test_a_connection_in_another_size_is_decoded_on_the_cpu(
    camera: RtspServer, caplog: pytest.LogCaptureFixture
) -> None:
    with reading(camera.url()) as source:
        source.hand_over()
        source.read(lambda: sum(source.handed_over) > 5)
        camera.size = (640, 480)
        camera.hang_up()
        source.read(lambda: sum(not made for made in source.handed_over[-20:]) == 20)
        camera.size = (320, 240)
        camera.hang_up()
        source.read(lambda: all(source.handed_over[-5:]))
        assert source.changes == [False, True, False, True] and len(source.decoder.begun) == 2
        assert source.numbers == sorted(set(source.numbers))
    lines = [record.getMessage() for record in caplog.records if "on the CPU" in record.getMessage()]
    assert len(lines) == 1 and lines[0].endswith("(it has become 640x480)")


@pytest.mark.slow
@pytest.mark.parametrize("at_keyframe", [False, True])
def test_after_an_early_error_the_cpu_goes_on_to_the_end_of_the_connection(
    at_keyframe: bool, camera: RtspServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_decoding, "_PAUSE", 0.0)
    with reading(camera.url()) as source:
        source.hand_over()
        source.read(lambda: sum(source.handed_over) > 5)
        (source.decoder.fail_at_keyframe if at_keyframe else source.decoder.fail).set()
        source.read(lambda: sum(not made for made in source.handed_over[-3 * camera.fps :]) == 3 * camera.fps)
        assert source.changes == [False, True, False] and source.decoder.ended == 1
        lost = len(_sent(camera, source)) - len(source.numbers)
        assert lost == 0 if at_keyframe else 0 <= lost < camera.fps
        assert source.frames.dropped["undecodable"] == source.frames.damaged == lost
        assert source.numbers == sorted(set(source.numbers))
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 1 and lines[0].endswith("from the next keyframe on (made to fail)")


@pytest.mark.slow
@pytest.mark.parametrize(("pause", "makers"), [(0.0, [False, True]), (4.0, [False, True, False, True])])
def test_after_damage_the_pipelines_decoder_begins_anew_at_a_keyframe(
    pause: float,
    makers: list[bool],
    camera: RtspServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_decoding, "_PAUSE", pause)
    with reading(camera.url()) as source:
        source.hand_over()
        source.read(lambda: sum(source.handed_over) > 2 * camera.fps)  # it has come to a second keyframe
        source.decoder.fail.set()
        source.read(lambda: len(source.decoder.begun) == 2 and all(source.handed_over[-10:]))
        assert source.changes == makers and source.decoder.ended == 1
        lost = len(_sent(camera, source)) - len(source.numbers)
        assert 0 <= lost < camera.fps
        assert source.frames.dropped["undecodable"] == source.frames.damaged == lost
        assert source.numbers == sorted(set(source.numbers))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_decoder_that_is_slow_to_begin_is_no_silence_of_the_source(camera: RtspServer) -> None:
    with reading(camera.url(), stall=0.6) as source:
        source.decoder.slow = 1.2
        source.hand_over()
        source.read(lambda: sum(source.handed_over) > 2 * camera.fps)
        assert source.frames.reconnects == 0 and len(source.decoder.begun) == 1
        assert source.numbers == _sent(camera, source)


def test_an_error_at_the_change_loses_nothing(camera: RtspServer) -> None:
    with reading(camera.url()) as source:
        source.decoder.fail.set()
        source.hand_over()
        source.read(lambda: len(source.numbers) > 2 * camera.fps)
        assert source.changes == [False] and source.numbers == _sent(camera, source)
        assert source.decoder.ended == 1 and not source.frames.dropped


@pytest.mark.parametrize(("codec", "suffix"), first(2, [("libx264", "ts"), ("libx265", "mp4"), ("libx264", "mp4")]))
def test_frames_stay_in_order_with_b_frames(codec: str, suffix: str, tmp_path: Path) -> None:
    options = {"x264-params": "keyint=20:scenecut=0:bframes=3"}
    if codec == "libx265":
        options = {"x265-params": "keyint=20:scenecut=0:bframes=3:open-gop=0:log-level=none"}
    path = numbered(tmp_path / f"b.{suffix}", 60, codec, options)
    with reading(f"file://{path}") as source:
        source.hand_over()
        source.read(lambda: False)
        assert source.numbers == list(range(60)) and source.changes in ([True], [False, True])
        assert not source.frames.dropped and source.decoder.ended == 1


def test_the_cpu_takes_over_where_the_parameter_sets_change(tmp_path: Path) -> None:
    """As where a camera is set to another size, without a new connection."""
    parts = []
    for number, size in enumerate([(160, 96), (192, 96)]):
        options = {"x264-params": "keyint=15:scenecut=0:bframes=2"}
        parts.append(numbered(tmp_path / f"{number}.h264", 45, options=options, size=size).read_bytes())
    path = tmp_path / "both.h264"
    path.write_bytes(b"".join(parts))
    with reading(f"file://{path}") as source:
        source.hand_over()
        source.read(lambda: False)
        assert source.numbers == [*range(45), *range(45)] and source.changes[-2:] == [True, False]
        assert not source.frames.dropped


def test_a_stream_with_fields_stays_on_the_cpu(tmp_path: Path) -> None:
    path = numbered(tmp_path / "fields.mp4", 30, options={"x264-params": "keyint=10:interlaced=1"})
    with reading(f"file://{path}") as source:
        seen = []
        begin = source.decoder.begin

        def note(info: VideoInfo, order: PictureOrder) -> None:
            seen.append(info.interlaced)
            begin(info, order)

        source.decoder.begin = note  # type: ignore[method-assign]
        source.hand_over()
        source.read(lambda: False)
        assert seen == [True] and len(source.numbers) == 30
