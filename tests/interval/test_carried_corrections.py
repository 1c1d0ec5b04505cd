"""Corrections follow what moves, in both directions, up to the next one or a cut."""

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.interval.carried_corrections import CorrectedFrame, PackedMap, carried, corrected
from segmentation.interval.propagation import host_luma

SIDE = 256
Map = NDArray[np.float32]


def _texture(seed: int) -> Map:
    noise = np.random.default_rng(seed).random((SIDE, 2 * SIDE)).astype(np.float32) - 0.5
    details = [cv2.GaussianBlur(noise, (0, 0), sigma) for sigma in (3, 12)]
    return np.clip(sum((np.float32(0.1) * each / each.std() for each in details), np.float32(0.5)), 0, 1)


GROUND, OBJECT, OTHER = _texture(1), _texture(2), _texture(3)
LENGTH = 30


def picture(x: int, ground: Map = GROUND) -> Map:
    """Returns a textured square at column `x` on a ground."""
    made = ground[:, :SIDE].copy()
    made[80:160, x : x + 80] = OBJECT[80:160, 100:180]
    return made


def place(x: int) -> Map:
    """Returns the square's mask."""
    mask = np.zeros((SIDE, SIDE), np.float32)
    mask[80:160, x : x + 80] = 1
    return mask


def run(corrections: dict[int, Map], cut: int = LENGTH) -> dict[int, Map]:
    """Returns what the frames of a square that moves by 3 pixels a frame get; from `cut` on the ground is another."""
    grounds = [GROUND if number < cut else 1 - OTHER for number in range(LENGTH)]
    frames = (
        CorrectedFrame(number, host_luma(picture(20 + 3 * number, ground)), corrections.get(number))
        for number, ground in enumerate(grounds)
    )
    return {pts: found.values for pts, found in carried(frames, len(corrections))}


def iou(a: Map, b: Map) -> float:
    return float(np.minimum(a, b).sum() / np.maximum(a, b).sum())


def test_a_correction_goes_along_in_both_directions_up_to_a_cut() -> None:
    found = run({12: place(20 + 36)}, cut=25)
    assert list(found) == list(range(25))
    for number, correction in found.items():
        assert iou(np.maximum(correction, 0), place(20 + 3 * number)) > 0.8, number
    assert not any((correction < 0).any() for correction in found.values())


def test_between_two_corrections_the_nearer_counts_more() -> None:
    found = run({5: place(35), 20: -place(80)})
    centers = {number: found[number][120, 20 + 3 * number + 40] for number in range(LENGTH)}
    assert all(centers[number] > 0.9 for number in range(6)) and all(centers[number] < -0.9 for number in range(20, 30))
    assert all(centers[number] >= centers[number + 1] - 0.1 for number in range(5, 20))
    assert centers[7] > 0.5 and centers[18] < -0.5


def test_a_correction_is_left_out_where_something_else_is_seen() -> None:
    frames = []
    for number in range(3):
        shown = GROUND[:, :SIDE].copy()
        if number == 2:
            shown[100:180, 100:180] = np.where(shown[100:180, 100:180] > 0.5, 0, 1)
        frames.append(CorrectedFrame(number, host_luma(shown), np.ones((64, 64), np.float32) if number == 0 else None))
    found = {pts: packed.values for pts, packed in carried(frames, 1)}
    assert found[1].min() > 0.99
    assert found[2][120:160, 120:160].mean() < 0.2 and found[2][:60].min() > 0.99


def test_a_mask_is_corrected_where_something_was_drawn_alone() -> None:
    mask = np.random.default_rng(0).random((64, 64)).astype(np.float32)
    drawn = np.zeros((128, 128), np.float32)
    drawn[:40, :40], drawn[80:, 80:] = 1, -1
    made = corrected(mask, PackedMap.of(drawn))
    assert (made[:19, :19] == 1).all() and (made[41:, 41:] == 0).all()
    assert np.array_equal(made[:32, 32:], mask[:32, 32:])
    assert np.isnan(corrected(np.full((8, 8), np.nan, np.float32), PackedMap.of(drawn))).all()
