"""Reads project files: the options of a video, and what was corrected by hand in some of its frames.

    {"segmentation_project": 1, "input": "a.mp4", "size": [1280, 720], "options": {"effect": "blur:40"},
     "corrections": [{"time": 0.667, "size": [360, 640], "add": [230400], "remove": [900, 40, 229460]}]}

`size` of the project is the width and height of the upright picture. A correction belongs to the frame that is shown at
its `time`, in seconds from the video's beginning. `add` and `remove` are masks as COCO's run lengths: `size` is their
height and width, and the lengths of the runs go column by column, first that of 0.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import cast

import numpy as np
from numpy.typing import NDArray

from segmentation.errors import ConfigError, InputError, one_line
from segmentation.options.config import OPTIONS, Config
from segmentation.options.keywords import Options
from segmentation.options.outside import checked

LONGEST = 64 << 20  # bytes of a file
_VERSION = 1
_LONGEST_SIDE = 2048  # of a correction
_MOST = 10_000  # corrections


@dataclass(frozen=True, slots=True)
class MaskCorrection:
    """One frame's correction. Its masks stay run lengths until they are used."""

    time: float  # seconds from the video's beginning
    size: tuple[int, int]  # height and width of both masks
    add: tuple[int, ...]  # run lengths
    remove: tuple[int, ...]

    @property
    def signed(self) -> NDArray[np.float32]:
        """Returns both in one map (h, w): 1 where the mask is to be 1, -1 where it is to be 0, 0 where it stays."""
        added, removed = (np.repeat(np.arange(len(runs)) % 2, runs) for runs in (self.add, self.remove))
        return (added - removed).reshape(self.size, order="F").astype(np.float32)


@dataclass(frozen=True, slots=True)
class Project:
    """A project file's content."""

    name: str  # of the file, for messages
    input: str  # name of the video
    size: tuple[int, int]  # width and height of its upright picture
    options: Options
    corrections: tuple[MaskCorrection, ...]  # their times rise

    def check(self, size: tuple[int, int]) -> None:
        """Raises `InputError` for a video whose upright picture has another size (width, height)."""
        if size != self.size:
            (width, height), (other, others) = self.size, size
            raise InputError(f"{self.name}: is for {self.input}, {width}x{height}; this video is {other}x{others}")


def with_project(config: Config) -> Config:
    """Returns the options with those of the project file where they have their defaults. Raises as `read_project`."""
    if config.project is None:
        return config
    of_file = read_project(str(config.project)).options
    missing = {name: value for name, value in of_file.items() if getattr(config, name) == OPTIONS[name].default}
    return replace(config, **cast(Options, missing))


def read_project(path: str) -> Project:
    """Reads a project file. Raises `InputError`, and `ConfigError` where there is none that can be read."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size > LONGEST:
                raise InputError(f"{path}: is longer than {LONGEST} bytes, which no project file is")
            data = file.read(LONGEST)
    except OSError as exc:
        raise ConfigError(f"project {path}: {exc.strerror}") from exc
    return parse_project(data, path)


def parse_project(data: bytes | str, name: str) -> Project:
    """Returns the project in a file's bytes. `name` begins the messages. Raises `InputError`."""
    try:
        content = json.loads(data)
        fields = _fields(content, "it", ("segmentation_project", "input", "size", "options", "corrections"))
        if fields["segmentation_project"] != _VERSION:
            raise ValueError(f"its version is {fields['segmentation_project']!r}; this program reads {_VERSION}")
        if not isinstance(fields["input"], str) or not isinstance(fields["corrections"], list):
            raise ValueError("input must be text, and corrections a list")
        if len(fields["corrections"]) > _MOST:
            raise ValueError(f"it has more than {_MOST} corrections")
        corrections = tuple(map(_correction, fields["corrections"]))
        for before, after in pairwise(corrections):
            if before.time >= after.time:
                raise ValueError(f"times of corrections must rise, and {after.time:g} s comes after {before.time:g} s")
        size = _size(fields["size"], 1 << 16)
        return Project(name, fields["input"], size, checked(fields["options"]), corrections)
    except RecursionError:  # of `json`
        raise InputError(f"{name}: is no project file that can be used (it is nested too deeply)") from None
    except (ValueError, ConfigError) as exc:
        raise InputError(f"{name}: is no project file that can be used ({one_line(exc)})") from exc


def _correction(given: object) -> MaskCorrection:
    fields = _fields(given, "a correction", ("time", "size", "add", "remove"))
    time = fields["time"]
    if isinstance(time, bool) or not isinstance(time, int | float) or not 0 <= time < math.inf:
        raise ValueError(f"time {time!r}: must be seconds, 0 or more")
    size = _size(fields["size"], _LONGEST_SIDE)
    add, remove = (_runs(fields[name], size, f"{name} of {time:g} s") for name in ("add", "remove"))
    return MaskCorrection(float(time), size, add, remove)


def _fields(given: object, what: str, names: Sequence[str]) -> dict[str, object]:
    if not isinstance(given, dict) or set(given) != set(names):
        raise ValueError(f"{what} must be an object with {', '.join(names)}")
    return given


def _size(given: object, most: int) -> tuple[int, int]:
    match given:
        case [int(one), int(other)] if 0 < one <= most and 0 < other <= most:
            return one, other
    raise ValueError(f"size must be two whole numbers, 1 to {most}")


def _runs(given: object, size: tuple[int, int], what: str) -> tuple[int, ...]:
    """Returns COCO's run lengths of a mask of `size` (h, w). Raises `ValueError`."""
    pixels = size[0] * size[1]
    if not isinstance(given, list) or not all(type(run) is int and 0 <= run <= pixels for run in given):
        raise ValueError(f"{what}: must be a list of lengths of runs")
    if len(given) > pixels + 1 or sum(given) != pixels:
        raise ValueError(f"{what}: the runs must have {size[0]}x{size[1]} pixels together")
    return tuple(given)
