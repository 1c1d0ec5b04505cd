"""Between inference and postprocess: the small mask's edge is drawn along the picture's own.

A guided filter (He, Sun and Tang, "Guided Image Filtering", ECCV 2010) in its fast form (He and Sun, "Fast Guided
Filter", arXiv:1505.00996): around each place of the mask, at its own size, the straight line `a * Y + b` is fitted that
leads from luma to the mask, and then read with the luma of a larger picture. Whatever is computed is elementwise, a
mean over a box (the border repeated) or bilinear, so that it comes out the same with other libraries.
"""

from collections.abc import Iterable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames import FORMATS, FrameBatch, Plane, VideoInfo
from segmentation.preprocess.opencv import shrink

LONGER_SIDE = 640  # pixels of the refined mask; the postprocessor enlarges it further
BOX = 5  # places of the small mask, a side
EPSILON = 1e-3  # of luma's variance (in 0..1): less contrast than its root leaves the mask as it is

Map = NDArray[np.float32]


class Refiner:
    """Makes masks (N, h, w), upright, in 0..1, into larger ones whose edges follow the frames'.

    Masks that are larger than the frame in either direction stay as they are.
    """

    def __init__(self, info: VideoInfo, pix_fmt: str) -> None:
        self._turns = info.rotation // 90
        self._peak = (1 << FORMATS[pix_fmt].bits) - 1
        self._width, self._height = (info.width, info.height) if self._turns % 2 == 0 else (info.height, info.width)

    def __call__(self, batch: FrameBatch, masks: Iterable[Map]) -> Map:
        return np.stack([self._refined(f.planes[0], m) for f, m in zip(batch.frames, masks, strict=True)])

    def _refined(self, luma: Plane, mask: Map) -> Map:
        height, width = mask.shape
        if height > self._height or width > self._width:
            return mask
        scale = min(1.0, LONGER_SIDE / max(self._width, self._height))
        size = (max(width, round(scale * self._width)), max(height, round(scale * self._height)))
        stored = shrink(luma, size if self._turns % 2 == 0 else size[::-1])
        guide = np.ascontiguousarray(np.rot90(stored, self._turns)).astype(np.float32) / np.float32(self._peak)
        return refined(mask, guide)


def refined(mask: Map, guide: NDArray[Any]) -> Map:
    """A mask (h, w) at the size of `guide` (H, W), at least as large: luma in 0..1 of the same picture.

    With y the guide at the mask's size, E the mean over a box, and sizes changed bilinearly between the centres of
    pixels:

        a = (E(y m) - E(y) E(m)) / (E(y^2) - E(y)^2 + EPSILON),  b = E(m) - a E(y)
        result = clip(up(E(a)) * guide + up(E(b)), 0, 1)
    """
    luma = _resized(guide, mask.shape)
    mean, mean_mask = _mean(luma), _mean(mask)
    a = (_mean(luma * mask) - mean * mean_mask) / (_mean(luma * luma) - mean * mean + np.float32(EPSILON))
    b = mean_mask - a * mean
    result = _resized(_mean(a), guide.shape)
    result *= guide
    result += _resized(_mean(b), guide.shape)
    return np.clip(result, 0, 1, out=result)


def _resized(layer: NDArray[Any], shape: tuple[int, ...]) -> Map:
    return np.asarray(cv2.resize(layer, (shape[1], shape[0]), interpolation=cv2.INTER_LINEAR), np.float32)


def _mean(layer: NDArray[Any]) -> Map:
    return np.asarray(cv2.blur(layer, (BOX, BOX), borderType=cv2.BORDER_REPLICATE), np.float32)
