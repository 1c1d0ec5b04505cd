"""Cuts boxes out of frames at full size: each crop is a frame of its own, for the preprocessor of any network."""

from __future__ import annotations

import math

from segmentation.frames import Frame, PixelFormat
from segmentation.instances import Box


def crop(frame: Frame, box: Box, layout: PixelFormat, turns: int) -> tuple[Frame, Box]:
    """Returns the part of a frame on the host that shows `box`, and the box that this part shows.

    Boxes are shares of the upright picture, the stored one after so many quarter turns counter-clockwise. What lies
    outside of the picture is left out. The part begins and ends with whole samples of chroma, and its planes are views.
    """
    height, width = frame.planes[0].shape
    left, top, right, bottom = turned(box, -turns)
    x0, x1 = _span(left, right, width, 1 << layout.shift_x)
    y0, y1 = _span(top, bottom, height, 1 << layout.shift_y)
    luma = frame.planes[0][y0:y1, x0:x1]
    u, v = (
        plane[y0 >> layout.shift_y : -(-y1 >> layout.shift_y), x0 >> layout.shift_x : -(-x1 >> layout.shift_x)]
        for plane in frame.planes[1:3]
    )
    part = Frame(planes=(luma, u, v), pts=frame.pts, duration=frame.duration)
    return part, turned((x0 / width, y0 / height, x1 / width, y1 / height), turns)


def turned(box: Box, turns: int) -> Box:
    """Returns where a box lies once the picture was turned by so many quarter turns counter-clockwise."""
    for _ in range(turns % 4):
        left, top, right, bottom = box
        box = (top, 1 - right, bottom, 1 - left)
    return box


def _span(begin: float, end: float, length: int, step: int) -> tuple[int, int]:
    """Returns the first sample of a part and the one behind its last, in whole steps; the part has at least one."""
    first = min(max(math.floor(begin * length), 0), length - 1) // step * step
    behind = -(-max(math.ceil(end * length), first + 1) // step) * step
    return first, min(behind, length)
