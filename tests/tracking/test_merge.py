"""How a component is divided among the things that share it, on drawn shapes."""

import numpy as np
import pytest

from segmentation.tracking.color_histograms import clearly_own
from segmentation.tracking.merge import divide, fit
from segmentation.tracking.silhouette import Silhouette

SIZE = (60, 100)  # height, width of the mask


def shape(left: int, width: int = 20) -> Silhouette:
    return Silhouette(left, 10, np.ones((40, width), bool), 40 * width)


@pytest.mark.parametrize("first_is_left", [True, False])
def test_of_two_like_shapes_each_goes_to_where_its_colors_are(first_is_left: bool) -> None:
    """Both are expected in the middle of a component that is one and a half times as wide as they are."""
    component = np.zeros(SIZE, bool)
    component[10:50, 35:65] = True
    own = np.zeros((2, *SIZE), bool)
    own[0 if first_is_left else 1, :, :50] = own[1 if first_is_left else 0, :, 50:] = True
    first, second = fit(component, [shape(40), shape(40)], own)
    assert (first.left < second.left) == first_is_left
    assert {first.left, second.left} <= {35, 36, 37, 43, 44, 45}


def test_clear_colors_are_worth_more_than_a_shape_that_ends_beside_the_place() -> None:
    """The second thing has raised an arm, before the first; its shape has none."""
    component = Silhouette(20, 10, np.ones((40, 40), bool), 1600)
    for clear, owner in ((0.2, 0), (3.0, 1)):
        whose = np.zeros((2, 40, 40), np.float32)
        whose[1, :, 15:20] = clear  # beside the second's shape
        parts = divide(component, [shape(20), shape(40)], whose)
        owns = [part is not None and part.left <= 36 < part.left + part.pixels.shape[1] for part in parts]
        assert owns == [owner == 0, owner == 1], clear


def test_without_colors_a_place_beside_all_shapes_is_the_nearest_ones() -> None:
    component = Silhouette(20, 10, np.ones((40, 60), bool), 2400)
    first, second = divide(component, [shape(20), shape(60)])
    assert first is not None and second is not None
    assert (first.left, first.pixels.shape, second.left, second.pixels.shape) == (20, (40, 30), 50, (40, 30))


def test_colors_that_two_have_alike_are_nobodys_own() -> None:
    whose = np.array([[[-3.0, -3.0, -1.0]], [[-3.2, -1.0, -3.0]], [[-4.0, -4.0, -4.0]]], np.float32)
    assert clearly_own(whose).tolist() == [[[False, False, True]], [[False, True, False]], [[False, False, False]]]
    assert clearly_own(whose[:1]).all(), "there is nobody else"
