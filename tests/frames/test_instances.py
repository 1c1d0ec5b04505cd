"""Label maps, and the pixels of boxes."""

import numpy as np
import pytest

from segmentation.frames.instances import Box, BoxMap, FrameInstances, Instance, box_pixels


def thing(box: Box, within: int = 0) -> Instance:
    return Instance(label="thing", score=1.0, box=box, within=within)


def test_an_instance_within_another_has_the_box_but_for_the_pixels_of_third_ones() -> None:
    first_map = np.uint8([[1, 1, 2, 2], [1, 1, 2, 2], [0, 0, 0, 0]])
    alone = (thing((0, 0, 0.5, 0.66)), thing((0.5, 0, 1, 0.66)))
    whole = FrameInstances(instances=alone, first_map=first_map)
    assert (whole.label_map == first_map).all()
    inner = (*alone, thing((0.25, 0.34, 0.75, 1), within=1), thing((0.25, 0.67, 0.5, 1), within=3))
    frame = FrameInstances(instances=inner, first_map=first_map)
    assert frame.label_map.tolist() == [[1, 1, 2, 2], [1, 3, 2, 2], [0, 4, 3, 0]]
    assert (frame.first_map == whole.first_map).all()


@pytest.mark.parametrize(
    ("box", "rows", "columns"),
    [
        ((1.4, 2.6, 3.4, 5.6), slice(3, 6), slice(1, 3)),
        ((-5, -5, 100, 0.4), slice(0, 0), slice(0, 8)),
        ((0, 0, 8, 8), slice(0, 8), slice(0, 8)),
    ],
)
def test_a_box_has_the_pixels_whose_centers_it_has(box: tuple[float, ...], rows: slice, columns: slice) -> None:
    assert box_pixels(np.float32(box), (8, 8)) == (rows, columns)


def test_a_part_of_a_map_of_boxes_is_that_of_the_whole_map() -> None:
    rng = np.random.default_rng(0)
    corners = rng.uniform(-8, (28, 20), (6, 2))
    boxes = np.hstack([corners, corners + rng.uniform(4, 24, (6, 2))])
    whole = np.zeros((24, 32), np.uint8)
    for number in range(len(boxes), 0, -1):
        whole[box_pixels(boxes[number - 1], whole.shape)] = number
    drawing = BoxMap(boxes, (24, 32))
    frame = FrameInstances(instances=(), first_map=drawing)
    assert len(np.unique(whole)) > 3 and np.array_equal(frame.label_map, whole)
    for top, left, bottom, right in rng.integers(0, (25, 33, 25, 33), (50, 4)):
        part = np.s_[top:bottom, left:right]
        assert np.array_equal(drawing[part], whole[part])


def test_pixels_of_boxes_are_counted_without_drawing() -> None:
    boxes = np.array([[2, 2, 8, 8], [8, 2, 30, 9], [-4, 20, 3, 40], [7, 7, 9, 9]], float)
    drawing = BoxMap(boxes, (24, 32))
    for window in (np.s_[0:24, 0:32], np.s_[5:22, 7:20], np.s_[0:2, 0:2]):
        alone = [int((BoxMap(box[None], (24, 32))[window] > 0).sum()) for box in boxes]
        assert drawing.counts(window) == alone
    assert [drawing.counts(window)[number] for number, window in enumerate(drawing.windows)] == [36, 154, 12, 4]
