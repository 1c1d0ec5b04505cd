"""The ring between a live source and the pipeline: what is dropped, and that all of it is counted."""

import threading
import time
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest

from segmentation.frames import live_frames
from segmentation.frames.live_frames import LiveFrame, LiveFrames
from segmentation.frames.packet_decoder import DevicePicture

GO_ON = threading.Event()


@pytest.fixture(autouse=True)
def all_is_counted(ring: LiveFrames) -> Iterator[None]:
    yield
    ring.released.set()
    ring.close()
    assert ring.received == ring.taken + sum(ring.dropped.values())
    assert ring.received == sum(ring.dropped_in(ring.taken - 1 if ring.taken else 0).values()) + max(0, ring.taken - 1)


@pytest.fixture
def ring(request: pytest.FixtureRequest) -> LiveFrames:
    return LiveFrames(max_delay=getattr(request, "param", 10.0))


def frame(number: int, age: float = 0.0) -> LiveFrame:
    return LiveFrame(av.VideoFrame(64, 64, "yuv420p"), time.monotonic() - age, float(number))


def on_device(number: int) -> LiveFrame:
    planes: Any = tuple(np.zeros((1, side, side), np.uint8) for side in (64, 32, 32))
    ready: Any = None
    picture = DevicePicture(
        planes=planes, ready=ready, width=64, height=64, pts=number, duration=1, time_base=Fraction(1, 30)
    )
    return LiveFrame(picture, time.monotonic(), float(number))


def shown(frames: list[LiveFrame]) -> list[float]:
    return [frame.shown for frame in frames]


def test_frames_come_in_order_as_many_as_there_are(ring: LiveFrames) -> None:
    for number in range(5):
        ring.put(frame(number))
    assert shown(ring.take(2, GO_ON, None)) == [0, 1]
    assert shown(ring.take(9, GO_ON, None)) == [2, 3, 4]


def test_late_frames_are_dropped(ring: LiveFrames) -> None:
    for number, age in enumerate((12, 11, 5, 0)):
        ring.put(frame(number, age))
    assert shown(ring.take(9, GO_ON, None)) == [2, 3] and ring.dropped == {"late": 2}


@pytest.mark.parametrize("ring", [1000.0], indirect=True)
def test_frames_wait_in_the_ring_while_the_stages_are_too_slow(
    ring: LiveFrames, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = time.monotonic
    for number in range(4):
        ring.put(frame(number, age=500.0))
    ring.put(frame(4))
    assert shown(ring.take(3, GO_ON, None, held=2)) == [0, 1, 2]
    monkeypatch.setattr(live_frames.time, "monotonic", lambda: clock() + 700)  # seconds: now number 3 is late
    ring.end()
    begin = time.monotonic()
    assert ring.take(1, GO_ON, begin + 0.1, held=2) == [] and ring.dropped == {"late": 1}
    threading.Timer(0.1, ring.written, [1]).start()
    assert shown(ring.take(1, GO_ON, None, held=2)) == [4]
    assert time.monotonic() - begin >= 0.2


def test_the_oldest_frames_make_room(ring: LiveFrames, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_frames, "_MEMORY", 3 * frame(0).size)
    for number in range(5):
        ring.put(frame(number))
    assert shown(ring.take(9, GO_ON, None)) == [2, 3, 4] and ring.dropped == {"full": 2}


def test_frames_in_a_gpus_memory_have_a_bound_of_their_own(ring: LiveFrames, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_frames, "_DEVICE_MEMORY", 3 * on_device(0).size)
    ring.put(frame(0))  # the CPU begins
    for number in range(1, 6):
        ring.put(on_device(number))
    assert shown(ring.take(9, GO_ON, None)) == [3, 4, 5] and ring.dropped == {"full": 3}


def test_waiting_ends(ring: LiveFrames) -> None:
    begin = time.monotonic()
    assert ring.take(1, GO_ON, begin + 0.1) == []
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    assert ring.take(1, stop, None) == []
    threading.Timer(0.1, ring.end).start()
    assert ring.take(1, GO_ON, None) == []
    assert time.monotonic() - begin >= 0.3


def test_frames_that_wait_at_the_end_are_given_out_or_counted(ring: LiveFrames) -> None:
    ring.put(frame(0))
    ring.put(frame(1))
    ring.lose(3)
    ring.lose(1, damaged=True)
    ring.end()
    assert shown(ring.take(1, GO_ON, None)) == [0]
    ring.released.set()
    ring.close()
    ring.put(frame(2))  # after the end it does not count
    assert ring.dropped == {"end": 1, "undecodable": 4} and (ring.received, ring.damaged) == (6, 1)
    assert ring.take(1, GO_ON, None) == []


def test_figures_add_up_at_any_moment(ring: LiveFrames) -> None:
    """While one thread puts frames in, and another takes and writes them."""
    ended = threading.Event()

    def put() -> None:
        number = 0
        while not ended.is_set():
            ring.put(frame(number, age=9.9995))  # some are late by the time they are taken
            ring.lose(number % 2)
            number += 1

    def take() -> None:
        while not ended.is_set():
            ring.written(len(ring.take(4, ended, None)))

    threads = [threading.Thread(target=work) for work in (put, take)]
    for thread in threads:
        thread.start()
    try:
        seen = []
        while len(seen) < 200 or not seen[-1].shown:
            seen.append(ring.counts())
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    for counts in seen:
        assert counts.received == counts.shown + counts.waiting + sum(counts.dropped.values())
        assert counts.shown == counts.late.number and min(counts.shown, counts.waiting) >= 0
    assert [counts.received for counts in seen] == sorted(counts.received for counts in seen)


def test_the_rate_is_that_of_the_last_seconds(ring: LiveFrames, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(live_frames.time, "monotonic", lambda: now)
    for _ in range(60):
        now += 0.1
        ring.put(frame(0))
        ring.written(len(ring.take(1, threading.Event(), None)))
    assert ring.counts().fps == pytest.approx(10, abs=0.3)
    now += 20
    assert ring.counts().fps == 0
