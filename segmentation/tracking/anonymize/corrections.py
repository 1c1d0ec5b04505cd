"""Decides which of the found things are covered: `--except`, `--only` and the lines of `--review`."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np

from segmentation.errors import ConfigError
from segmentation.frames import VideoInfo
from segmentation.frames.instances import Box, Instance
from segmentation.options.anonymize import Region
from segmentation.options.config import Config
from segmentation.options.instances import Point
from segmentation.options.review import Correction, named_ids, read_corrections


@dataclass(frozen=True, slots=True)
class _Left:
    """A place whose things are left for a while."""

    when: Correction
    corners: tuple[Point, ...]  # in shares of the picture

    def holds(self, box: Box) -> bool:
        """Returns whether the center of a box lies in the place."""
        center = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
        return cv2.pointPolygonTest(np.array(self.corners, np.float32), center, measureDist=False) >= 0


class Corrections:
    """The corrections of a run. Where two lines contradict each other, what is to be covered is covered."""

    def __init__(self, config: Config, info: VideoInfo) -> None:
        """Raises `ConfigError` for a file that can't be read, and for a place outside of the picture."""
        self._excepted, self._only = named_ids(config.except_), named_ids(config.only)
        self._all = not config.only
        lines = read_corrections(config.review)
        if not config.covers_boxes and any(line.region is None or not line.cover for line in lines):
            raise ConfigError(f"review {config.review}: anonymize {config.anonymize} has no boxes to choose from")
        self._by_id = [line for line in lines if line.ids]
        self.regions: list[Region] = [line.region for line in lines if line.region is not None and line.cover]
        self._left = [
            _Left(line, line.region.shares(info.upright_size))
            for line in lines
            if line.region is not None and not line.cover
        ]

    def covers(self, one: Instance, time: float) -> bool:
        """Returns whether a thing is covered at a time, in seconds from the video's beginning."""
        lines = {line.cover for line in self._by_id if one.id in line.ids and time in line}
        if True in lines:
            return True
        if False in lines or any(time in left.when and left.holds(one.box) for left in self._left):
            return False
        return (self._all or one.id in self._only) and one.id not in self._excepted

    def leaves(self, box: Box, begin: float, end: float) -> bool:
        """Returns whether a line leaves what is in a box from one time to another, in seconds likewise."""
        return any(begin in left.when and end in left.when and left.holds(box) for left in self._left)
