"""Cuts end tracks: nothing is linked, filled or supposed across one. A flash and a pan are no cuts."""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from videos import video_info

from segmentation.frames import Frame, FrameBatch, HostTransfer, MaskedBatch
from segmentation.frames.instances import FrameInstances, Instance
from segmentation.tracking.anonymize.cover import CoverBoxes
from segmentation.tracking.anonymize.doubts import DoubtFinder
from segmentation.tracking.anonymize.shots import Shots
from segmentation.tracking.tracker import Tracker

SIZE = 90, 160  # height, width of masks
INFO = video_info()
RATE = float(1 / INFO.time_base)  # ticks a second
FACE = Instance(label="face", score=0.9, box=(0.4, 0.4, 0.5, 0.6), id=1)
Luma = NDArray[np.uint8]


def scene(seed: int, shift: int = 0) -> Luma:
    """A picture of large squares, which a pan moves."""
    squares = np.random.default_rng(seed).integers(16, 235, (9, 32), np.uint8)
    return np.ascontiguousarray(np.kron(squares, np.ones((20, 20), np.uint8))[:, shift : shift + 320])


def batches(lumas: list[Luma], length: int = 3) -> Iterator[MaskedBatch]:
    for first in range(0, len(lumas), length):
        part = lumas[first : first + length]
        gray = np.full((90, 160), 128, np.uint8)
        frames = tuple(
            Frame(planes=(luma, gray, gray), pts=round((first + i) * RATE / 25), duration=1)
            for i, luma in enumerate(part)
        )
        nothing = FrameInstances(instances=(FACE,), first_map=np.zeros(SIZE, np.uint8))
        yield MaskedBatch(
            frames=FrameBatch(frames=frames, index=first),
            masks=np.zeros((len(part), *SIZE), np.float32),
            instances=(nothing,) * len(part),
        )


def shots(lumas: list[Luma], length: int = 3) -> list[int]:
    step = Shots(INFO, "yuv420p", HostTransfer(), None)
    return [shot for batch in step(batches(lumas, length)) for shot in batch.shots or ()]


@pytest.mark.parametrize("length", [1, 3, 16])
def test_a_cut_begins_a_shot(length: int) -> None:
    assert shots([scene(1)] * 5 + [scene(2)] * 4 + [scene(3)], length) == [0] * 5 + [1] * 4 + [2]


def test_a_flash_and_a_fast_pan_are_no_cuts() -> None:
    white = np.full((180, 320), 235, np.uint8)
    assert shots([scene(1)] * 5 + [white] * 2 + [scene(1)] * 5) == [0] * 12
    assert shots([scene(1)] * 4 + [scene(1, shift) for shift in range(0, 320, 20)]) == [0] * 20


def test_nothing_is_supposed_across_a_cut() -> None:
    nobody = FrameInstances(instances=(), first_map=np.zeros(SIZE, np.uint8))
    (batch,) = Shots(INFO, "yuv420p", HostTransfer(), None)(batches([scene(1)] * 6 + [scene(2)] * 6, 12))
    found = [batch.instances[0] if batch.instances and i < 6 else nobody for i in range(12)]
    step = CoverBoxes(INFO, HostTransfer())
    (covered,) = step(iter([MaskedBatch(frames=batch.frames, masks=batch.masks, instances=found, shots=batch.shots)]))
    assert [bool(mask.any()) for mask in np.asarray(covered.masks)] == [True] * 6 + [False] * 6


def test_the_same_place_in_another_shot_is_another_track() -> None:
    tracker = Tracker(moving=True, split=False)
    label_map = np.zeros(SIZE, np.uint8)
    label_map[36:54, 64:80] = 1
    frame = FrameInstances(instances=(FACE,), first_map=label_map)
    ids = [tracker.update(frame, i / 25, shot=i // 5).instances[0].id for i in range(10)]
    assert ids == [1, 1, 1, 1, 1, 2, 2, 2, 2, 2]


def test_whoever_comes_and_goes_with_a_shot_is_not_doubtful() -> None:
    finder = DoubtFinder()
    for i in range(60):
        there = (FACE,) if 20 <= i < 40 else ()
        finder.add(i / 25, FrameInstances(instances=there, first_map=np.zeros(SIZE, np.uint8)), i // 20)
    assert finder.doubts() == []
