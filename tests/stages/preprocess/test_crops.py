"""Crops show what the box shows of the upright picture, in all layouts and rotations, without a copy."""

import numpy as np
import pytest
from numpy.typing import NDArray

from segmentation.frames import FORMATS, Frame
from segmentation.instances import Box
from segmentation.stages.preprocess.crops import crop, turned


@pytest.mark.parametrize("box", [(0.1, 0.2, 0.5, 0.4), (0.0, 0.0, 1.0, 1.0), (0.9, 0.05, 0.93, 0.99)])
def test_turning_is_undone_by_turning_back(box: Box) -> None:
    for turns in range(4):
        assert turned(turned(box, turns), -turns) == pytest.approx(box)
    assert turned((0.0, 0.0, 0.25, 0.5), 1) == (0.0, 0.75, 0.5, 1.0)  # the upper left corner goes to the lower left


def numbered(shape: tuple[int, int]) -> NDArray[np.int64]:
    """A plane in which each sample says where it is."""
    return np.arange(shape[0])[:, None] * 1000 + np.arange(shape[1])


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv422p10le", "yuv444p"])
@pytest.mark.parametrize("box", [(0.21, 0.3, 0.62, 0.71), (-0.2, 0.5, 0.33, 1.4), (0.5, 0.5, 0.5, 0.5)])
def test_a_crop_is_that_part_of_the_upright_picture(box: Box, pix_fmt: str, turns: int) -> None:
    layout = FORMATS[pix_fmt]
    planes = tuple(map(numbered, layout.shapes(101, 75)))
    part, shown = crop(Frame(planes=planes, pts=7, duration=1), box, layout, turns)
    assert part.pts == 7
    whole = np.rot90(planes[0], turns)
    size = np.array(whole.shape[::-1] * 2)
    left, top, right, bottom = np.rint(np.array(shown) * size).astype(int)
    assert (np.rot90(part.planes[0], turns) == whole[top:bottom, left:right]).all()
    asked = np.clip(np.array(box) * size, 0, size)
    assert np.abs(asked - [left, top, right, bottom]).max() <= 2, "to whole samples of chroma"
    assert left <= asked[0] and top <= asked[1] and right >= asked[2] and bottom >= asked[3]
    y, x = divmod(int(part.planes[0][0, 0]), 1000)
    assert y % (1 << layout.shift_y) == 0 and x % (1 << layout.shift_x) == 0
    shapes = layout.shapes(part.planes[0].shape[1], part.planes[0].shape[0])
    for plane, shape in zip(part.planes[1:], shapes[1:], strict=True):
        assert plane.shape == shape
        assert divmod(int(plane[0, 0]), 1000) == (y >> layout.shift_y, x >> layout.shift_x)
        assert np.shares_memory(plane, planes[1]) or np.shares_memory(plane, planes[2])
