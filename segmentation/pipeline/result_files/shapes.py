"""Shapes of instances at the picture's full size: masks and outlines."""

from __future__ import annotations

from collections.abc import Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames.instances import Box, FrameInstances, Instance

Size = tuple[int, int]  # width, height of the upright picture

_TOLERANCE = 1.0  # pixels between an outline and the mask's edge


def masks_of(found: FrameInstances, size: Size) -> Iterator[tuple[Instance, NDArray[np.bool_]]]:
    """Yields the instances of a frame, each with its mask (height, width)."""
    label_map = found.label_map
    for number, one in enumerate(found.instances, 1):
        mask = (label_map == number).astype(np.float32)
        yield one, np.asarray(cv2.resize(mask, size, interpolation=cv2.INTER_LINEAR) > 0.5)


def outline(mask: NDArray[np.bool_], box: Box) -> NDArray[np.float64]:
    """Returns one polygon (n, 2) around all parts of a mask (h, w): x and y as shares of its width and height.

    A line of no width leads to each further part and to each hole, from the nearest point, and back. A mask that is too
    small for an outline has that of its `box`.
    """
    contours, _ = cv2.findContours(mask.view(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    simple = [cv2.approxPolyDP(contour, _TOLERANCE, True)[:, 0] for contour in contours]
    paths = [path for path in simple if len(path) >= 3]
    if not paths:
        left, top, right, bottom = box
        return np.array([(left, top), (right, top), (right, bottom), (left, bottom)])
    joined = paths[0]
    for path in paths[1:]:
        distances = np.square(joined[:, None] - path).sum(2)
        leave, arrive = np.unravel_index(distances.argmin(), distances.shape)
        detour = np.roll(path, -arrive, axis=0)
        joined = np.concatenate([joined[: leave + 1], detour, detour[:1], joined[leave:]])
    return (joined + 0.5) / mask.shape[::-1]  # contours lead through the centers of pixels
