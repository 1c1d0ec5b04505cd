"""Reads the options `--anonymize` and `--region`: what is covered, so that nobody is recognized."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from segmentation.errors import ConfigError, did_you_mean
from segmentation.options.instances import Point, corners_of, in_pixels
from segmentation.options.keywords import Network
from segmentation.options.times import seconds

REGIONS = "regions"  # stands for regions alone, which need no network
KINDS = ("faces", "heads", "people", "plates")
BODIES = "bodies"  # people who are looked for beside faces: heads are theirs, and who has no face is doubtful
LOOK_AHEAD = 1.0  # seconds for which a frame waits at most for later ones, and the longest gap that is filled
LIVE_LOOK_AHEAD = 64  # frames of a live source that wait at most, whatever its rate
COVERS = ("color", "image", "video")  # effects of which nothing of the picture can be computed back
_BUILT_IN = {"faces": "face", "heads": "face", "people": "person"}


@dataclass(frozen=True, slots=True)
class Anonymize:
    """Things that are covered, and the network that finds them."""

    kind: str  # one of `KINDS`, `BODIES` or `REGIONS`
    model: str | Network  # the name of a built-in network, a file, or a function

    @staticmethod
    def parse(text: str) -> Anonymize:
        """Reads `faces`, `heads`, `people` or `plates=FILE.onnx`. Raises `ConfigError`."""
        kind, equals, file = text.partition("=")
        if text == REGIONS:
            return Anonymize(text, nothing)
        if kind not in KINDS:
            choices = f"faces, heads, people or plates=FILE.onnx{did_you_mean(kind, KINDS)}"
            raise ConfigError(f"anonymize {text!r} is unknown: choose {choices}")
        if equals:
            if not file:
                raise ConfigError(f"anonymize {text!r}: name the network's file, such as plates=plates.onnx")
            return Anonymize(kind, file)
        if kind not in _BUILT_IN:
            raise ConfigError(f"anonymize {text}: no network of {kind} is built in; name one, such as {kind}=FILE.onnx")
        return Anonymize(kind, _BUILT_IN[kind])

    @staticmethod
    def parse_all(text: str) -> tuple[Anonymize, ...]:
        """Reads one or several with commas between them. People, who have masks, come last. Raises `ConfigError`."""
        wanted = [Anonymize.parse(part.strip()) for part in text.split(",")]
        kinds = [one.kind for one in wanted]
        if "heads" in kinds and "faces" in kinds:
            raise ConfigError(f"anonymize {text}: heads have the faces with them; leave out faces")
        if len(set(kinds)) < len(kinds) or (REGIONS in kinds and len(kinds) > 1):
            raise ConfigError(f"anonymize {text}: name each kind once, and places by --region")
        return tuple(sorted(wanted, key=lambda one: one.kind == "people"))


def reversible(effect: str) -> ConfigError:
    """Returns the error of an effect that is no cover."""
    text = "something may be computed back; choose color, image:FILE or video:FILE"
    return ConfigError(f"anonymize: of {effect} {text}, or leave out --effect (black)")


@dataclass(frozen=True, slots=True)
class Region:
    """A place that is covered, all the time or for a while."""

    name: str  # the option's text
    points: tuple[Point, ...]  # the corners of a polygon
    percent: bool = False  # whether the points are in percent of the picture's sides, else in pixels
    begin: float = 0.0  # seconds from the video's beginning
    end: float = math.inf

    @staticmethod
    def parse(text: str) -> Region:
        """Reads `X,Y,WIDTH,HEIGHT` or a polygon's corners, with or without `@FROM-TO`. Raises `ConfigError`."""
        what = f"region {text!r}"
        place, at, times = text.partition("@")
        points, percent = corners_of(place, what)
        if len(points) == 2:
            (left, top), (width, height) = points
            if min(width, height) <= 0:
                raise ConfigError(f"{what}: width and height must be above 0")
            right, bottom = left + width, top + height
            points = ((left, top), (right, top), (right, bottom), (left, bottom))
        if len(points) < 3:
            raise ConfigError(f"{what}: write X,Y,WIDTH,HEIGHT, or the corners X,Y,X,Y,X,Y,... of a polygon")
        begin, end = span_of(times, what) if at else (0.0, math.inf)
        return Region(text, points, percent, begin, end)

    def shares(self, size: tuple[int, int]) -> tuple[Point, ...]:
        """Returns the corners in shares of an upright picture of `size` (width, height).

        Raises `ConfigError` for a region outside of the picture.
        """
        corners = in_pixels(self.points, size) if self.percent else self.points
        xs, ys = zip(*corners, strict=True)
        if max(xs) <= 0 or min(xs) >= size[0] or max(ys) <= 0 or min(ys) >= size[1]:
            raise ConfigError(f"region {self.name}: lies outside of the picture, which is {size[0]}x{size[1]}")
        return tuple((x / size[0], y / size[1]) for x, y in corners)


def span_of(text: str, what: str) -> tuple[float, float]:
    """Returns the times of `FROM-TO`, of which either may be missing. Raises `ConfigError`."""
    begin, dash, end = text.partition("-")
    span = seconds(begin) if begin else 0.0, seconds(end) if end else math.inf
    if not dash or span[0] >= span[1]:
        raise ConfigError(f"{what}: write the time as @FROM-TO, such as @1:30-1:45")
    return span


def nothing(pictures: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the scores (N, h, w) of pictures (N, 3, h, w) in which nothing is found."""
    return np.zeros((len(pictures), *pictures.shape[2:]), np.float32)
