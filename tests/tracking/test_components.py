"""Components of masks."""

import numpy as np

from segmentation.tracking.components import SPECK, components, pixels_of


def test_parts_that_touch_at_a_corner_hang_together_and_specks_are_left_out() -> None:
    mask = np.zeros((100, 200), np.float32)
    mask[10:30, 20:40] = 0.8
    mask[30:50, 40:60] = 0.6  # at the first one's corner
    mask[60:99, 150:170] = 0.9
    mask[90, 5] = 1
    assert SPECK * mask.size > 1
    frame = components(mask, None, ["person"], 0.5)
    assert [one.box for one in frame.instances] == [(0.1, 0.1, 0.3, 0.5), (0.75, 0.6, 0.85, 0.99)]
    assert [round(one.score, 4) for one in frame.instances] == [0.7, 0.9]
    assert set(np.unique(frame.label_map)) == {0, 1, 2} and frame.label_map[90, 5] == 0


def test_classes_are_apart() -> None:
    mask, classes = np.full((20, 40), 0.9, np.float32), np.zeros((20, 40), np.uint8)
    classes[:, 30:] = 1
    frame = components(mask, classes, ["cat", "dog"], 0.5)
    assert [(one.label, one.box) for one in frame.instances] == [("cat", (0, 0, 0.75, 1)), ("dog", (0.75, 0, 1, 1))]
    assert (frame.label_map == classes + 1).all()


def test_a_box_of_whole_pixels_has_these_pixels() -> None:
    for width in (7, 448, 1000):
        for left in range(0, width, 3):
            assert pixels_of((left / width, 0, (left + 1) / width, 1), (9, width))[1] == slice(left, left + 1)


def test_an_empty_mask_has_no_instances() -> None:
    frame = components(np.zeros((9, 16), np.float32), None, ["person"], 0.5)
    assert frame.instances == () and not frame.label_map.any()
