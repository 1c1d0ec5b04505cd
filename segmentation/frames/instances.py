"""Instances: the single things that a frame shows, each with its place, its label and, once tracked, its id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

MOST = 255  # instances of a frame, the values that a label map has for them
EDGE = 0.5  # an instance's mask is above it at the instance's pixels

Box = tuple[float, float, float, float]  # left, top, right, bottom: shares of the upright picture, 0..1
Window = tuple[slice, slice]  # rows and columns of a picture


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One thing in one frame."""

    label: str  # one of the network's
    score: float  # 0..1
    box: Box
    id: int = 0  # of its track, from 1, never given twice in a run; 0 for one that is not tracked
    kept: bool = True  # whether it is one of those whom `--keep` and `--pick` keep; all are without these options
    within: int = 0  # number of that instance in the frame, from 1, also without an id; 0 for none
    parent: int = 0  # id of the instance within which another network has found this one; 0 for none


class Drawing(Protocol):
    """A label map (h, w) that is drawn where it is read: of a large one, most is read by nobody."""

    @property
    def shape(self) -> tuple[int, int]: ...
    def __getitem__(self, window: Window) -> NDArray[np.uint8]: ...


LabelMap = NDArray[np.uint8] | Drawing


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameInstances:
    """The instances of one frame, and which of them each pixel of the mask belongs to."""

    instances: tuple[Instance, ...]  # at most `MOST`
    first_map: LabelMap  # a `label_map` of the instances that lie within no other
    unknown: bool = False  # whether the network gave no mask in which instances could be found

    @property
    def drawing(self) -> LabelMap:
        """The `label_map` for who reads parts of it: it may be drawn there alone."""
        return self.label_map if any(one.within for one in self.instances) else self.first_map

    @property
    def label_map(self) -> NDArray[np.uint8]:
        """(h, w), upright, as large as the frame's mask: 0 for none, n for `instances[n - 1]`.

        Drawn at each call, as most runs need none. An instance within another has all pixels of its box, but for those
        of third ones. They hold the background too: a mask often lacks the edge of a face, and an effect on faces must
        not show that.
        """
        inner = [(number, one) for number, one in enumerate(self.instances, 1) if one.within]
        first = self.first_map
        whole = first if isinstance(first, np.ndarray) else first[: first.shape[0], : first.shape[1]]
        if not inner:
            return whole
        label_map = whole.copy()
        sides = np.array(label_map.shape[::-1] * 2)
        for number, one in inner:
            part = label_map[box_pixels(np.array(one.box) * sides, label_map.shape)]
            part[(part == one.within) | (part == 0)] = number
        return label_map


class BoxMap:
    """A `Drawing` that has at each place the number of the first box, from 1 on; 0 for none."""

    def __init__(self, boxes: NDArray[np.floating], shape: tuple[int, int]) -> None:
        """`boxes` (n, 4) are in pixels of a map (h, w) = `shape`."""
        self.shape = shape
        self.windows: Sequence[Window] = [  # the pixels of each box, also of those that lie under others
            (slice(top, bottom), slice(left, right)) for left, top, right, bottom in _pixel_edges(boxes, shape).tolist()
        ]

    def counts(self, window: Window) -> list[int]:
        """Returns how many pixels of a window lie in each box."""
        return [_common(one, window) for one in self.windows]

    def __getitem__(self, window: Window) -> NDArray[np.uint8]:
        """Returns the part of the map in a window, whose ends lie in the map."""
        rows, columns = ((part.start or 0, part.stop) for part in window)
        drawn = np.zeros((max(0, rows[1] - rows[0]), max(0, columns[1] - columns[0])), np.uint8)
        for number in range(len(self.windows), 0, -1):
            high, wide = self.windows[number - 1]
            if high.start < rows[1] and wide.start < columns[1]:
                down, right = max(0, high.start - rows[0]), max(0, wide.start - columns[0])
                drawn[down : max(0, high.stop - rows[0]), right : max(0, wide.stop - columns[0])] = number
        return drawn


def _common(one: Window, other: Window) -> int:
    """Returns how many pixels two windows share."""
    (rows, columns), (others_rows, others_columns) = one, other
    high = min(rows.stop, others_rows.stop) - max(rows.start, others_rows.start)
    wide = min(columns.stop, others_columns.stop) - max(columns.start, others_columns.start)
    return int(max(0, high) * max(0, wide))


def box_pixels(box: NDArray[np.floating], size: tuple[int, ...]) -> tuple[slice, slice]:
    """Returns the rows and columns of the pixels whose centers lie in a box (4,), in pixels of a picture (h, w)."""
    left, top, right, bottom = _pixel_edges(box, size)
    return slice(top, bottom), slice(left, right)


def _pixel_edges(boxes: NDArray[np.floating], size: tuple[int, ...]) -> NDArray[np.int_]:
    """Returns the first pixels and those behind the last ones, of boxes (..., 4) in a picture (h, w)."""
    edges: NDArray[np.int_] = np.clip(np.ceil(boxes - 0.5), 0, [size[1], size[0], size[1], size[0]]).astype(int)
    return edges
