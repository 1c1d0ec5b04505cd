"""Live runs that are too slow: the network sees fewer frames, and only then frames are dropped."""

import math
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from detectors import red_yolo
from numpy.typing import NDArray
from paths import SAMPLE
from rtsp_server import RtspServer, recording

from segmentation import ConfigError, Report, Segmenter
from segmentation.frames.live_frames import LiveFrames
from segmentation.interval import overload
from segmentation.interval.overload import IntervalGovernor

OPTIONS: dict[str, Any] = {"device": "cpu", "input_size": (64, 64), "smooth": 0.0}


class Ring(LiveFrames):
    """Whose oldest frame has waited as long as the test says."""

    waiting = 0.0

    @property
    def waits(self) -> float:
        return self.waiting


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def perf_counter(self) -> float:
        return time.perf_counter()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(overload, "time", made)
    yield made


def gaps(governor: IntervalGovernor, clock: Clock, seconds: float) -> list[int]:
    """The frames from key to key, asked for ten times a second; each once as long as it stays."""
    found: list[int] = []
    for _ in range(round(seconds * 10)):
        clock.now += 0.1
        gap = governor.gap()
        if not found or found[-1] != gap:
            found.append(gap)
    return found


def test_the_interval_rises_while_frames_wait_and_falls_when_they_do_not(clock: Clock) -> None:
    ring = Ring(max_delay=0.5)
    governor = IntervalGovernor(ring, 0, 7)
    assert gaps(governor, clock, 3) == [1]
    ring.waiting = 0.5
    assert gaps(governor, clock, 5) == [8]
    ring.waiting = 0.2  # neither one nor the other
    assert gaps(governor, clock, 30) == [8]
    ring.waiting = 0.0
    assert gaps(governor, clock, 30) == [8, 4, 2, 1]


def test_a_fall_that_fails_is_tried_ever_less_often(clock: Clock) -> None:
    ring = Ring(max_delay=0.5)
    governor = IntervalGovernor(ring, 0, 1)
    falls = []
    for _ in range(6000):  # an interval of 0 is always too little
        clock.now += 0.1
        ring.waiting = 0.6 if governor.interval == 0 else 0.0
        before = governor.interval
        if governor.gap() == 1 and before == 1:
            falls.append(clock.now)
    pauses = [b - a for a, b in pairwise(falls)]
    assert pauses == sorted(pauses) and pauses[0] > 9 and pauses[-1] == pytest.approx(61, abs=2)


def test_it_never_falls_below_what_was_asked_for(clock: Clock) -> None:
    ring = Ring(max_delay=0.5)
    governor = IntervalGovernor(ring, 2, 4)
    assert gaps(governor, clock, 2) == [3]
    ring.waiting = 0.9
    assert gaps(governor, clock, 5)[-1] == 5
    ring.waiting = 0.0
    assert gaps(governor, clock, 60)[-1] == 3


def heavy(batch: NDArray[np.float32]) -> NDArray[np.float32]:
    time.sleep(0.1 * len(batch))
    return np.ones((len(batch), 32, 32), np.float32)


def run(tmp_path: Path, **options: Any) -> Report:
    recorded = recording(str(SAMPLE), (160, 120), 20)  # bar codes would be a cut at each frame
    with (
        RtspServer(size=(160, 120), fps=20, recorded=recorded) as camera,
        Segmenter(model=heavy, **OPTIONS, **options) as segmenter,
    ):
        segmenter.masks(np.zeros((64, 64, 3), np.uint8))
        return segmenter.run(camera.url(), tmp_path / "out.mkv", duration=3.0)


@pytest.mark.slow
def test_a_heavy_network_sees_fewer_frames_before_any_is_dropped(tmp_path: Path) -> None:
    """Its network manages ten frames a second of twenty."""
    report = run(tmp_path, max_interval=3)
    without = run(tmp_path / "..", max_interval=0, overwrite=True)
    late, late_without = (one.dropped.get("late", 0) for one in (report, without))
    assert report.received == report.frames + sum(report.dropped.values())
    assert late_without > 10 and late < 0.7 * late_without
    assert without.inferred >= without.frames and report.inferred < 0.6 * report.frames
    assert report.frames > without.frames


@pytest.mark.slow
def test_who_is_to_be_hidden_is_looked_for_in_each_frame(tmp_path: Path) -> None:
    report = run(tmp_path, max_interval=3, invert=True)
    assert report.inferred >= report.frames and report.dropped["late"] > 0


def test_a_light_network_gains_nothing(tmp_path: Path) -> None:
    def light(batch: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.ones((len(batch), 32, 32), np.float32)

    with RtspServer() as camera, Segmenter(model=light, **OPTIONS) as segmenter:
        report = segmenter.run(camera.url(), tmp_path / "out.mkv", max_frames=10)
    assert report.inferred >= report.frames == 10 and report.plan["interval"] == "0"


def test_single_things_are_looked_for_in_each_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overload, "GAIN", math.inf)
    with RtspServer() as camera, Segmenter(model=red_yolo(tmp_path / "red.onnx"), device="cpu") as segmenter:
        report = segmenter.run(camera.url(), tmp_path / "out.mkv", max_frames=5)
    assert report.inferred >= report.frames == 5 and "interval" not in report.plan


def test_files_keep_their_interval(tmp_path: Path) -> None:
    with Segmenter(model=heavy, **OPTIONS) as segmenter:
        report = segmenter.run("samples/astronaut.mp4", tmp_path / "out.mkv", max_frames=6)
    assert report.inferred == report.frames == 6


def test_the_limit_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"max interval 31: must be 0 \(never\) to 30"):
        Segmenter(max_interval=31)
