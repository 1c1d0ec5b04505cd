"""Finds out which doubtful spans somebody has decided about, by `--review` or `--region`."""

from __future__ import annotations

import numpy as np

from segmentation.frames import VideoInfo
from segmentation.frames.instances import box_pixels
from segmentation.options.anonymize import Region
from segmentation.options.config import Config
from segmentation.tracking.anonymize.corrections import Corrections
from segmentation.tracking.anonymize.doubts import DoubtfulSpan
from segmentation.tracking.anonymize.regions import drawn

_SIDE = 512  # pixels of a mask's longer side; its regions have a pixel more, which holds the rounded percent of a line
_ROUNDED = 0.01  # seconds, as in the times of a report
_BARE_AT_FIRST, _BARE_AT_LAST = ("appears", "bare"), ("vanishes", "bare")  # kinds, by the frames that have no cover


class Reviewed:
    """The places of a run that are covered or left because somebody has asked for that."""

    def __init__(self, config: Config, info: VideoInfo) -> None:
        """Raises `ConfigError` for a review that can't be read, and for a place outside of the picture."""
        self._corrections, self._size = Corrections(config, info), info.upright_size
        self._regions = [*map(Region.parse, config.region), *self._corrections.regions]

    def decides(self, doubt: DoubtfulSpan, offset: float) -> bool:
        """Returns whether a doubtful span is covered whole by regions, or a head without a cover is to be left.

        `offset` is in seconds, from times of the output to those of the video.
        """
        first, last = doubt.begin + offset, doubt.end + offset
        begin, end = first + _ROUNDED, last - _ROUNDED
        if doubt.kind == "bare" and self._corrections.leaves(doubt.box, begin, end):
            return True
        there = [
            one
            for one in self._regions
            if one.begin <= (first if doubt.kind in _BARE_AT_FIRST else begin)
            and (last < one.end if doubt.kind in _BARE_AT_LAST else end <= one.end)
        ]
        if not there:
            return False
        width, height = (max(1, round(side * _SIDE / max(self._size))) for side in self._size)
        mask = drawn(there, self._size, (begin + end) / 2, (height, width))
        place = mask[box_pixels(np.array(doubt.box) * np.array([width, height] * 2), mask.shape)]
        return place.size > 0 and bool(place.all())
