"""Reads the options that name instances: `--keep`, `--pick` and `--count`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from segmentation.errors import ConfigError, did_you_mean
from segmentation.options.effect import number
from segmentation.options.times import seconds

CRITERIA = ("largest", "nearest", "first")
_FARTHEST = 100_000  # of a coordinate, in pixels or percent: fixed-point coordinates of a mask would overflow
_PLACES = {"line": "line:X1,Y1,X2,Y2", "zone": "zone:X1,Y1,X2,Y2,X3,Y3,..."}

Point = tuple[float, float]  # x, y in pixels of the upright picture


@dataclass(frozen=True, slots=True)
class Keep:
    """The instances to keep: some ids, or the one that a criterion chooses."""

    ids: frozenset[int] = frozenset()
    criterion: str = ""

    @staticmethod
    def parse(text: str) -> Keep:
        """Reads `id:3,7` or a criterion. Raises `ConfigError`."""
        if text in CRITERIA:
            return Keep(criterion=text)
        kind, colon, listed = text.partition(":")
        if kind != "id" or not colon:
            raise ConfigError(f"keep {text!r}: write id:N,N,... or {', '.join(CRITERIA)}{did_you_mean(text, CRITERIA)}")
        return Keep(ids_of(listed, f"keep {text!r}"))


@dataclass(frozen=True, slots=True)
class Pick:
    """A point at a time."""

    point: Point
    time: float  # seconds from the video's beginning
    percent: bool = False  # whether the point is in percent of the picture's sides, else in pixels

    @staticmethod
    def parse(text: str, option: str = "pick") -> Pick:
        """Reads `X,Y@TIME`, of an option's value. Raises `ConfigError`."""
        what = f"{option} {text!r}"
        place, at, time = text.partition("@")
        points, percent = corners_of(place, what) if at else ((), False)
        if len(points) != 1:
            raise ConfigError(f"{what}: write X,Y@TIME, such as 640,360@2.5 or 50%,50%@2.5")
        return Pick(points[0], seconds(time), percent)

    def place(self, size: tuple[int, int]) -> Point:
        """Returns the point in pixels of an upright picture of `size` (width, height)."""
        return in_pixels([self.point], size)[0] if self.percent else self.point

    def __str__(self) -> str:
        unit = "%" if self.percent else ""
        return f"{self.point[0]:g}{unit},{self.point[1]:g}{unit} at {self.time:g} s"


@dataclass(frozen=True, slots=True)
class CountPlace:
    """A line or a zone where instances are counted."""

    name: str  # the option's text
    points: tuple[Point, ...]  # two of a line, the corners of a zone
    percent: bool = False  # whether the points are in percent of the picture's sides, else in pixels

    @staticmethod
    def parse(text: str) -> CountPlace:
        """Reads `line:...` or `zone:...`, in pixels or as `50%`. Raises `ConfigError`."""
        kind, _, listed = text.partition(":")
        if kind not in _PLACES:
            raise ConfigError(f"count {text!r}: write {' or '.join(_PLACES.values())}{did_you_mean(kind, _PLACES)}")
        points, percent = corners_of(listed, f"count {text!r}")
        if kind == "line" and (len(points) != 2 or points[0] == points[1]):
            raise ConfigError(f"count {text!r}: a line has two ends that differ, {_PLACES[kind]}")
        if kind == "zone" and len(points) < 3:
            raise ConfigError(f"count {text!r}: a zone has three corners or more, {_PLACES[kind]}")
        return CountPlace(text, points, percent)

    def corners(self, size: tuple[int, int]) -> tuple[Point, ...]:
        """Returns the points in pixels of an upright picture of `size` (width, height)."""
        return in_pixels(self.points, size) if self.percent else self.points


def ids_of(text: str, what: str) -> frozenset[int]:
    """Returns the ids of `N,N,...`. Raises `ConfigError`, whose message begins with `what`."""
    ids = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in ids):
        raise ConfigError(f"{what}: ids are whole numbers from 1 on, such as id:3,7")
    return frozenset(map(int, ids))


def corners_of(text: str, what: str) -> tuple[tuple[Point, ...], bool]:
    """Returns points, and whether they are in percent: `X,Y,X,Y,...`, in pixels or all as `50%`. Zero is both.

    Raises `ConfigError`, whose message begins with `what`.
    """
    parts = [part.strip() for part in text.split(",")]
    percent = "%" in text
    if percent and not all(part.endswith("%") or part == "0" for part in parts):
        raise ConfigError(f"{what}: some numbers are percent and some are pixels; write all as one of them")
    return tuple(_points(",".join(part.rstrip("%") for part in parts), what)), percent


def in_pixels(points: Sequence[Point], size: tuple[int, int]) -> tuple[Point, ...]:
    """Returns points in percent as pixels of a picture of `size` (width, height)."""
    return tuple((x * size[0] / 100, y * size[1] / 100) for x, y in points)


def _points(text: str, what: str) -> list[Point]:
    """Returns the points of `X,Y,X,Y,...`. Raises `ConfigError`, whose message begins with `what`."""
    values = [number(part, what) for part in text.split(",")]
    if not all(abs(value) <= _FARTHEST for value in values):  # nor is NaN
        raise ConfigError(f"{what}: write numbers from -{_FARTHEST:,} to {_FARTHEST:,}")
    if len(values) % 2:
        raise ConfigError(f"{what}: {len(values)} numbers, where each point has two, X,Y")
    return list(zip(values[::2], values[1::2], strict=True))
