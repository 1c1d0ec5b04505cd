"""Covers places whatever is there: `--region`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames import Array, MaskedBatch, Memory, Transfer, VideoInfo
from segmentation.options.anonymize import REGIONS, Region
from segmentation.options.config import Config
from segmentation.options.instances import Point
from segmentation.tracking.anonymize.corrections import Corrections

_FINE = 4  # bits behind the point of coordinates in a mask


class Regions:
    """Calling it with a batch returns it with masks that hold the regions of their times too."""

    def __init__(self, config: Config, info: VideoInfo, transfer: Transfer) -> None:
        """Raises `ConfigError` for a region outside of the picture, and for a review that can't be read."""
        self._regions = [*map(Region.parse, config.region), *Corrections(config, info).regions]
        for region in self._regions:
            region.shares(info.upright_size)
        self._alone = config.anonymize == REGIONS
        self._info, self._transfer = info, transfer
        self._drawn: tuple[tuple[object, ...], NDArray[np.float32]] | None = None  # the last mask, and what it shows

    def __call__(self, batch: MaskedBatch) -> MaskedBatch:
        """`found` stays that of the network, but where there is none."""
        if not self._regions or batch.frames.repeated:  # of repeated frames everything is covered
            return batch
        count = len(batch)
        times = [float(frame.pts * self._info.time_base - self._info.start) for frame in batch.frames.frames]
        shape: tuple[int, int] = tuple(batch.masks.shape[1:])
        masks = [self._mask(time, shape) for time in times]
        same = all(mask is masks[0] for mask in masks)  # which one row stands for
        places = masks[0][None] if same else np.stack(masks)
        found = np.array([mask.any() for mask in masks]) if self._alone else batch.found
        return replace(batch, masks=self._highest(batch.masks, places, count), found=found)

    def _mask(self, time: float, shape: tuple[int, int]) -> NDArray[np.float32]:
        """Returns `drawn` of a time; the same array as before while the same regions are there."""
        there = shape, *(region for region in self._regions if region.begin <= time < region.end)
        kept = self._drawn  # another thread may replace it
        if kept is None or kept[0] != there:
            kept = self._drawn = there, drawn(self._regions, self._info.upright_size, time, shape)
        return kept[1]

    def _highest(self, masks: Array, places: NDArray[np.float32], count: int) -> Array:
        if isinstance(masks, np.ndarray):
            return np.maximum(masks[:count], places)
        memory: Memory = "cuda"
        there = self._transfer.rows(places, memory, len(places))
        with self._transfer.on_stream():
            return masks[:count].maximum(there)


def drawn(regions: Sequence[Region], size: tuple[int, int], time: float, shape: tuple[int, int]) -> NDArray[np.float32]:
    """Returns the regions at a time, in seconds from the beginning, in a mask (h, w) = `shape` of zeros and ones.

    `size` is the upright picture's width and height. Raises `ConfigError` for a region outside of the picture.
    """
    mask = np.zeros(shape, np.uint8)
    for region in regions:
        if region.begin <= time < region.end:
            cv2.fillPoly(mask, [_in_mask(region.shares(size), shape)], 1, shift=_FINE)
    # A pixel that is covered in part is covered, also at the size of the picture.
    return cv2.dilate(mask, np.ones((3, 3), np.uint8)).astype(np.float32) if mask.any() else mask.astype(np.float32)


def _in_mask(corners: Sequence[Point], shape: tuple[int, int]) -> NDArray[np.int32]:
    """Returns corners in shares of the picture as OpenCV's coordinates in a mask (h, w), whose pixels have centers."""
    sides = np.array([shape[1], shape[0]])
    return np.asarray(np.rint((np.array(corners) * sides - 0.5) * (1 << _FINE)), np.int32)
