"""Places, weights and numbers for the kernel of clips."""

import numpy as np
import pytest

pytest.importorskip("cuda.core", reason="cuda-core is not installed")

from segmentation.clips import Output
from segmentation.clips.output import Window
from segmentation.clips.sampling import corners, elements, lengths, levels, weights
from segmentation.frames import FORMATS, LIMITED, Color


@pytest.mark.parametrize("name", ["yuv420p", "yuv420p10le", "yuv444p"])
def test_corners_are_those_of_the_windows_first_samples(name: str) -> None:
    layout, window = FORMATS[name], Window(4, 6, 3, 5)
    assert corners(window, layout) == ((4, 6), (4 >> layout.shift_y, 6 >> layout.shift_x))
    assert lengths(window, layout) == ((5, 3, 3, 2) if layout.shift_x else (5, 3, 5, 3))


@pytest.mark.parametrize(("length", "after"), [(1080, 224), (224, 224), (93, 71), (7, 30), (5, 1)])
def test_weights_are_means_of_what_is_there(length: int, after: int) -> None:
    table = weights(length, after)
    assert len(table) == after and np.allclose(table[:, 1:].sum(1), 1, atol=1e-5)
    assert (table[:, 0] >= 0).all() and (table[:, 0] + table.shape[1] - 1 <= length).all()


def test_numbers_are_those_of_the_output() -> None:
    output = Output(dtype="float16", mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    table = elements(output)
    assert table.shape == (3, 256) and table.dtype == np.float16
    assert np.allclose(table[1], (np.arange(256) / 255 - 0.2) / 0.6, atol=2e-3)
    white = levels("rgb", Color(matrix=1, range=LIMITED), 10) @ [940, 512, 512, 1]
    assert np.allclose(white, 1, atol=1e-5)
    assert np.allclose(levels("ycbcr", Color(), 10) @ [1020, 512, 4, 1], [1, 512 / 1020, 4 / 1020])
