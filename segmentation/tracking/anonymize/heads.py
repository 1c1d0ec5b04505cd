"""Finds heads in the mask of people: also of those who are seen from behind, where no face is found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames.instances import Box

LABEL = "head"
_EDGE = 0.4  # of a mask's values, above which a person is there
_LEAST = 10  # rows of a person's mask, below which there is no shape to read
_LONG = 1.3  # a head's height to its width
_REACHED = 1.2  # times as deep as wide below its top, and the head is passed
_DEEPEST = 0.3  # of a person's visible height: nobody's head is higher
_FLATTEST = 0.05  # of a person's visible height: what rises less is a hand, or an edge of the mask
_APART = 1.1  # widths of a head from one top to the next
_RISE = 0.25  # of a head's height that a top rises above the valley beside it
_LARGER = 1.5  # times the height of the faces of the same frame, above which a head is too high
_GROWN = 1.5  # sides of a head's box in which the center of a cover means that both are of one person
NAPE = 0.75  # of a head's height below its top, where the center of a face lies at most: below is the nape

Pixels = NDArray[np.bool_]  # (h, w)


@dataclass(frozen=True, slots=True)
class _Shape:
    """A connected part of the mask in its own rows and columns."""

    left: int
    top: int
    pixels: Pixels


def heads_in(mask: NDArray[np.float32], faces: Sequence[Box], lowest: float = (1 + _GROWN) / 2) -> list[Box]:
    """Returns the boxes of the heads in a mask (h, w) of people that hold none of `faces`, which may size them.

    The center of a face lies at most `lowest` times the head's height below its top.
    """
    height, width = mask.shape
    heights = [(face[3] - face[1]) * height for face in faces]
    most = _LARGER * median(heights) if heights else float(height)
    found = []
    for shape in _shapes(mask):
        for left, top, right, bottom in _heads_of(shape, most):
            box = (left / width, top / height, right / width, bottom / height)
            if not any(_same(box, face, lowest) for face in faces):
                found.append(box)
    return found


def _shapes(mask: NDArray[np.float32]) -> Iterator[_Shape]:
    count, numbers, stats, _ = cv2.connectedComponentsWithStats((mask > _EDGE).astype(np.uint8))
    for number in range(1, count):
        left, top, width, height = (int(side) for side in stats[number][:4])
        if height >= _LEAST:
            yield _Shape(left, top, numbers[top : top + height, left : left + width] == number)


def _heads_of(shape: _Shape, most: float) -> Iterator[Box]:
    """Yields the heads of one shape in pixels of the mask, the highest first. None is higher than `most`."""
    height = len(shape.pixels)
    tops = np.where(shape.pixels.any(axis=0), shape.pixels.argmax(axis=0), height)
    taken: list[tuple[float, float]] = []  # columns of the tops, and the widths of the heads
    for column in np.argsort(tops, kind="stable"):
        top = int(tops[column])
        if any(abs(column - center) < _APART * wide for center, wide in taken):
            continue
        if not _rises(tops, int(column), taken, _FLATTEST * height):  # so it does not by more
            continue
        center, wide = _head_below(shape.pixels, top, int(column), min(_DEEPEST * height, most))
        tall = _LONG * wide
        if top + tall > height or tall < _FLATTEST * height or not _rises(tops, int(column), taken, tall):
            continue
        taken.append((center, wide))
        left, upper = shape.left + center - wide / 2, shape.top + top
        yield left, upper, left + wide, upper + tall


def _head_below(pixels: Pixels, top: int, column: int, deepest: float) -> tuple[float, float]:
    """Returns the center's column and the width of a head whose top is at a place.

    Rows are looked at downward until they are `_REACHED` times as deep as the head is wide, or too deep for a head.
    """
    centers, widths = [], []
    for depth, row in enumerate(pixels[top:], 1):
        if not row[column]:
            break
        left, right = _run(row, column)
        centers.append((left + right) / 2)
        widths.append(float(right - left))
        wide = median(widths[len(widths) // 4 :])
        if depth >= _REACHED * wide:
            return median(centers), wide
        if depth >= deepest:
            break
    return (median(centers[: len(centers) // 2 + 1]), deepest / _LONG) if widths else (float(column), 0.0)


def _run(row: Pixels, column: int) -> tuple[int, int]:
    """Returns where the pixels of a row begin and end that are connected with a column."""
    before, behind = np.flatnonzero(~row[:column]), np.flatnonzero(~row[column:])
    return int(before[-1]) + 1 if len(before) else 0, column + int(behind[0]) if len(behind) else len(row)


def _rises(tops: NDArray[np.intp], column: int, taken: Sequence[tuple[float, float]], tall: float) -> bool:
    """Returns whether a top stands out between the tops that are taken: a valley lies between it and each."""
    for center, _ in taken:
        first, last = sorted((column, round(center)))
        if tops[first : last + 1].max() - tops[column] < _RISE * tall:
            return False
    return True


def _same(head: Box, face: Box, lowest: float) -> bool:
    """Returns whether a face is of the person whose head it is."""
    x, y = (face[0] + face[2]) / 2, (face[1] + face[3]) / 2
    wide, tall = head[2] - head[0], head[3] - head[1]
    beside, below = abs(x - (head[0] + head[2]) / 2), y - head[1]
    return beside <= _GROWN * wide / 2 and (1 - _GROWN) / 2 * tall <= below <= lowest * tall
