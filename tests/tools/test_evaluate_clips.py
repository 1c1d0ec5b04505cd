"""The masks that were drawn frame by frame, and the measures of tools/lab/training/evaluate_clips.py on them."""

import sys

import numpy as np
import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "tools" / "lab" / "training"))  # the tools are programs, not a package

import evaluate_clips
from split import RESERVE_CLIPS


def test_the_clips_are_of_the_reserve_and_their_frames_successive() -> None:
    assert set(evaluate_clips.CLIPS) <= RESERVE_CLIPS
    for clip in evaluate_clips.CLIPS:
        truths = evaluate_clips.truths(clip)
        first = min(truths)
        assert list(truths) == list(range(first, first + 20))
        assert all(set(np.unique(truth)) == {0, 255} for truth in truths.values())


def test_a_fault_that_stays_does_not_flicker_and_one_that_comes_and_goes_does() -> None:
    truth = np.zeros((100, 200), np.uint8)
    truth[20:80, 50:150] = 255
    moved = [np.roll(truth, shift, axis=1) for shift in range(4)]
    right = [each > 0 for each in moved]
    assert evaluate_clips.figures(right, moved) == {"iou": 1, "boundary_f": 1, "error_flicker": 0}
    for mask in right:
        mask[90:] = True  # 2000 pixels of background in each frame
    stays = evaluate_clips.figures(right, moved)
    assert stays["iou"] == pytest.approx(6000 / 8000) and stays["error_flicker"] == 0
    for mask in right[::2]:
        mask[90:] = False
    assert evaluate_clips.figures(right, moved)["error_flicker"] == pytest.approx(100 * (2000 / 20000) ** 0.5, abs=1e-4)
