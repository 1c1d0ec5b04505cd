"""Batches of a live source, from the frames in its ring."""

import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import av
import pytest
from drawn import make_info

from segmentation import Config
from segmentation.frames import Color, FrameBatch
from segmentation.frames.live_frames import LiveFrame, LiveFrames
from segmentation.live.decoder import LiveDecoder

TICKS = 90_000  # of a second


def ring(max_delay: float = 60.0) -> LiveFrames:
    frames = LiveFrames(max_delay)
    frames.up = True
    return frames


def put(frames: LiveFrames, shown: float) -> None:
    picture = av.VideoFrame(96, 64, "yuv420p")
    frames.put(LiveFrame(picture, time.monotonic(), shown))


def batches(frames: LiveFrames, **options: Any) -> Iterator[FrameBatch]:
    info = replace(make_info(96, 64, Color()), time_base=Fraction(1, TICKS), live=frames)
    return iter(LiveDecoder(info, "yuv420p", Config(**{"batch_size": 1, **options})))


def test_a_loss_is_a_pause_once_and_frames_go_on() -> None:
    frames = ring()
    put(frames, 100.0)
    found = batches(frames)
    assert [frame.pts for frame in next(found).frames] == [0]
    frames.up = False
    pause = next(found)
    assert len(pause) == 0 and (pause.index, pause.number) == (1, 1)
    put(frames, 103.0)
    batch = next(found)
    assert [frame.pts for frame in batch.frames] == [3 * TICKS] and (batch.index, batch.number) == (1, 1)
    frames.end()
    assert list(found) == []


def test_silence_is_a_pause_though_the_source_is_up() -> None:
    frames = ring(max_delay=0.2)
    put(frames, 100.0)
    begin = time.monotonic()
    found = batches(frames)
    assert len(next(found)) == 1
    assert len(next(found)) == 0 and time.monotonic() - begin >= 0.2


def test_a_slow_camera_does_not_pause_between_its_frames() -> None:
    frames = ring(max_delay=1.0)
    found = batches(frames)
    for number in range(3):
        put(frames, 100.0 + 0.5 * number)
        newest = time.monotonic()
        assert len(next(found)) == 1
    assert len(next(found)) == 0 and time.monotonic() - newest >= 1.5


def test_frames_follow_a_large_batch_that_is_late() -> None:
    """Smoothing holds all of its frames until two later ones are there."""
    frames = ring(max_delay=2.0)
    for number in range(16):
        put(frames, 100.0 + number)
    found = batches(frames, batch_size=16, max_interval=0)
    assert len(next(found)) == 16
    time.sleep(2.3)
    for number in (16, 17):
        put(frames, 100.0 + number)
        batch = next(found)
        assert len(batch) == 1 and batch.index == number


@pytest.mark.parametrize("late", [0.0, 0.0004])
def test_a_frame_behind_a_repeated_one_has_a_time_of_its_own_in_any_container(late: float) -> None:
    frames = ring()
    begin = time.monotonic()
    put(frames, begin)
    found = batches(frames, on_loss="freeze")
    next(found)
    frames.up = False
    repeated = next(batch for batch in found if batch.repeated).frames[0]
    put(frames, begin + repeated.pts / TICKS + late)
    assert next(found).frames[0].pts - repeated.pts >= TICKS / 1000
