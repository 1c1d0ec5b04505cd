"""The connected parts of a semantic mask, as instances without ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames.instances import MOST, Box, FrameInstances, Instance

SPECK = 0.0005  # share of the picture: smaller parts are noise of the network, or too far away to be followed


def components(
    mask: NDArray[np.float32], class_map: NDArray[np.uint8] | None, classes: Sequence[str], threshold: float
) -> FrameInstances:
    """Returns the parts of one mask (h, w) above `threshold` that hang together, the largest first.

    Pixels that touch at a corner hang together. With a `class_map` (h, w), index into `classes`, parts of different
    classes are apart; without one all have the first class. A part's score is the mean of its mask.
    """
    found = mask > threshold
    parts = []
    for label, place in _by_class(found, class_map, classes):
        pixels = place.view(np.uint8)
        x, y, wide, high = cv2.boundingRect(pixels)  # the statistics of the background would take longest
        if not wide:
            continue
        _, numbers, stats, _ = cv2.connectedComponentsWithStats(pixels[y : y + high, x : x + wide], connectivity=8)
        for number, (left, top, width, height, area) in enumerate(stats.tolist()):
            if number and area >= SPECK * mask.size:
                part = numbers[top : top + height, left : left + width] == number
                window = np.s_[y + top : y + top + height, x + left : x + left + width]
                parts.append((area, label, window, part))
    parts.sort(key=lambda part: -part[0])
    label_map = np.zeros(mask.shape, np.uint8)
    instances = []
    for n, (_, label, window, part) in enumerate(parts[:MOST], 1):
        label_map[window][part] = n
        score = float(mask[window][part].mean())
        instances.append(Instance(label=label, score=score, box=shares(window, mask.shape)))
    return FrameInstances(instances=tuple(instances), first_map=label_map, unknown=bool(np.isnan(mask.sum())))


def _by_class(
    found: NDArray[np.bool_], class_map: NDArray[np.uint8] | None, classes: Sequence[str]
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    if class_map is None:
        yield classes[0], found
        return
    for number in np.unique(class_map[found]):
        yield classes[number], found & (class_map == number)


def shares(window: tuple[slice, slice], shape: tuple[int, ...]) -> Box:
    """Returns a window of a picture (h, w) as a box."""
    rows, columns = window
    height, width = shape
    return columns.start / width, rows.start / height, columns.stop / width, rows.stop / height


def pixels_of(box: Box, shape: tuple[int, ...]) -> tuple[slice, slice]:
    """Returns the rows and columns of a picture (h, w) that a box touches."""
    height, width = shape
    left, top, right, bottom = box
    # A share of a whole pixel may come out a little beside it.
    rows = slice(max(0, int(top * height + 1e-6)), min(height, ceil(bottom * height - 1e-6)))
    return rows, slice(max(0, int(left * width + 1e-6)), min(width, ceil(right * width - 1e-6)))
