"""The pixels of one thing, cut to their box."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames.instances import BoxMap, LabelMap, Window

Edges = NDArray[np.float64]  # (4,): left, top, right, bottom in pixels; the last two are behind the last pixel


@dataclass(frozen=True, slots=True, eq=False)
class Silhouette:
    """A thing's shape and place in a mask. It may reach beyond the picture, as does one that walks out of it."""

    left: int
    top: int
    pixels: NDArray[np.bool_]  # (h, w)
    area: int  # pixels that are set

    @staticmethod
    def of(found: NDArray[np.bool_], left: int = 0, top: int = 0) -> Silhouette | None:
        """Returns the set pixels of `found` (h, w), whose corner lies at `left`, `top`; `None` if there are none."""
        column, row, width, height = cv2.boundingRect(found.view(np.uint8)) if found.size else (0, 0, 0, 0)
        if not width:
            return None
        part = found[row : row + height, column : column + width]
        return Silhouette(left + column, top + row, part, int(np.count_nonzero(part)))

    @staticmethod
    def box(window: Window) -> Silhouette | None:
        """Returns all pixels of a window; `None` if there are none."""
        rows, columns = window
        size = rows.stop - rows.start, columns.stop - columns.start
        if min(size) <= 0:
            return None
        pixels = np.broadcast_to(np.True_, size)  # no memory, so that a large box takes no longer than a small one
        return Silhouette(columns.start, rows.start, pixels, size[0] * size[1])

    @property
    def edges(self) -> Edges:
        height, width = self.pixels.shape
        return np.array([self.left, self.top, self.left + width, self.top + height], np.float64)

    def moved(self, right: float, down: float) -> Silhouette:
        """Returns the same shape, so many whole pixels farther."""
        return Silhouette(self.left + round(right), self.top + round(down), self.pixels, self.area)

    def counts(self, label_map: LabelMap, most: int) -> NDArray[np.int64]:
        """Returns how many pixels it shares with each thing of a label map whose highest number is `most`: (most + 1,).

        The first is the number of its pixels within the picture that belong to nothing.
        """
        there, here = self.within(label_map.shape)
        pixels = self.pixels[here]
        if not pixels.size:
            return np.zeros(most + 1, np.int64)
        if isinstance(label_map, BoxMap):  # a box among boxes: two of them may hold the same pixel
            known = label_map.counts(there)
            return np.array([max(0, pixels.size - sum(known)), *known] + [0] * (most - len(known)), np.int64)
        # Exact: a float has each whole number up to 2^24, more than a mask has pixels.
        counts = cv2.calcHist([label_map[there]], [0], pixels.view(np.uint8), [most + 1], [0, most + 1])
        return counts.ravel().astype(np.int64)

    def within(self, shape: tuple[int, ...]) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
        """Returns the part of a picture (h, w) that its box covers, and the part of its pixels that lies in there."""
        height, width = self.pixels.shape
        top, left = max(0, self.top), max(0, self.left)
        bottom, right = max(top, min(shape[0], self.top + height)), max(left, min(shape[1], self.left + width))
        there = (slice(top, bottom), slice(left, right))
        here = (slice(top - self.top, bottom - self.top), slice(left - self.left, right - self.left))
        return there, here
