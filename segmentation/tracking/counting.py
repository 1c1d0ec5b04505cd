"""Counts instances over lines and in zones: `--count`.

An instance is where its feet are, the middle of its box's lower edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.errors import ConfigError
from segmentation.frames.instances import FrameInstances, Instance
from segmentation.options.instances import CountPlace, Point

_CLEAR = 0.03  # share of an instance's height that its feet must be beyond a line: who stands on it crosses it once

Counts = dict[str, dict[str, int]]  # by the option's text


class Counter:
    """The counts of one run. Only instances with ids count, and none that was found within another."""

    def __init__(self, places: Sequence[CountPlace], size: tuple[int, int]) -> None:
        """`size` is (width, height) of the upright picture, in pixels. Raises `ConfigError` for a place outside."""
        corners = [place.corners(size) for place in places]
        for place, points in zip(places, corners, strict=True):
            xs, ys = zip(*points, strict=True)
            if max(xs) < 0 or min(xs) > size[0] or max(ys) < 0 or min(ys) > size[1]:
                raise ConfigError(f"count {place.name}: lies outside of the picture, which is {size[0]}x{size[1]}")
        self._size = size
        self._places = [
            (_Line if len(points) == 2 else _Zone)(place.name, points)
            for place, points in zip(places, corners, strict=True)
        ]

    def update(self, frame: FrameInstances) -> Counts:
        """Takes the next frame. Returns the counts up to it: of a line those who crossed it to its `left` and its
        `right`, as seen from its first end; of a zone those `inside` now and those who have `entered` so far.
        """
        width, height = self._size
        feet = {
            one.id: ((one.box[0] + one.box[2]) / 2 * width, one.box[3] * height, _CLEAR * _tall(one) * height)
            for one in frame.instances
            if one.id and not one.parent
        }
        return {place.name: place.update(feet) for place in self._places}


def _tall(one: Instance) -> float:
    return one.box[3] - one.box[1]


_Feet = dict[int, tuple[float, float, float]]  # by id: x, y, and how far from a line they must be


@dataclass(slots=True)
class _Line:
    name: str
    points: tuple[Point, ...]
    left: int = 0
    right: int = 0
    _before: dict[int, NDArray[np.float64]] = field(default_factory=dict)  # where feet were last clear of the line

    def update(self, feet: _Feet) -> dict[str, int]:
        first, second = np.array(self.points)
        for id, (x, y, clear) in feet.items():
            place = np.array([x, y])
            aside = _cross(second - first, place - first)
            if abs(aside) < clear * float(np.linalg.norm(second - first)):
                continue
            before = self._before.get(id, place)
            # Both ends of the way on either side of the line, and both ends of the line on either side of the way.
            if (_cross(second - first, before - first) > 0) != (aside > 0) and (
                _cross(place - before, first - before) > 0
            ) != (_cross(place - before, second - before) > 0):
                self.right += aside > 0  # rows count downwards
                self.left += aside <= 0
            self._before[id] = place
        return {"left": int(self.left), "right": int(self.right)}


def _cross(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(one[0] * other[1] - one[1] * other[0])


@dataclass(slots=True)
class _Zone:
    name: str
    points: tuple[Point, ...]
    _entered: set[int] = field(default_factory=set)

    def update(self, feet: _Feet) -> dict[str, int]:
        corners = np.array(self.points, np.float32)
        inside = {id for id, (x, y, _) in feet.items() if cv2.pointPolygonTest(corners, (x, y), False) >= 0}
        self._entered |= inside
        return {"inside": len(inside), "entered": len(self._entered)}
