"""Refines masks between inference and postprocess: draws the edges of a small mask along the edges of the picture.

A guided filter (He, Sun and Tang, "Guided Image Filtering", ECCV 2010) in its fast form (He and Sun, "Fast Guided
Filter", arXiv:1505.00996). Around each place of the mask, at the mask's size, a straight line `a * Y + b` from luma to
the mask is fitted. The line is then read with the luma of a larger picture.

Lines that fit badly count less in the mean (the idea of Chen and Wu, "Weighted Aggregation for Guided Image Filtering",
SIViP 2020), so that edges of the picture which are not the mask's leave the mask alone. Where the network is in doubt
over much of the picture, there is no edge to draw, and people who are small are hardly larger than a box: the mask is
only enlarged.

Each step is elementwise, bilinear, or a mean over a box (the border repeated) or over the whole mask, so that `cuda.py`
gets the same result on a GPU.
"""

from collections.abc import Iterable, Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames import FORMATS, Frame, FrameBatch, VideoInfo
from segmentation.stages.masks.color_edge import draw_by_color
from segmentation.stages.preprocess.opencv import shrink

LONGER_SIDE = 480  # pixels of the refined mask, a quarter of 1080p's; the postprocessor enlarges it further
BOX = 7  # side of the box over which a line is fitted, in pixels of the small mask
EPSILON = 2e-3  # of luma's variance (luma in 0..1): where the contrast is below its root, the mask stays
MISFIT = 1e-3  # of the mask's variance around a line: with so much, a line counts half as much as one that fits
DOUBT = (0.2, 0.35)  # mean doubt of a mask (1: all 0.5): fully refined up to the first, not at all from the second
SMALL = (0.01, 0.02)  # mean of a mask: not refined up to the first, fully from the second

_SHARES = np.full(BOX, 1 / BOX, np.float32)

Map = NDArray[np.float32]  # (h, w), or (N, h, w) of a batch


class Refiner:
    """Calling it with frames and their masks (N, h, w), upright, in 0..1, returns larger masks that follow the frames.

    Masks that are larger than the frame in either direction stay as they are.
    """

    def __init__(self, info: VideoInfo, pix_fmt: str) -> None:
        self._orientation = info.orientation
        self._scale = np.float32(1 / ((1 << FORMATS[pix_fmt].bits) - 1))
        self._picture = info.upright_size

    def __call__(self, batch: FrameBatch, masks: Iterable[Map]) -> Map:
        return _stacked([self._refine_one(frame, mask) for frame, mask in zip(batch.frames, masks, strict=True)])

    def by_color(self, batch: FrameBatch, masks: Iterable[Map], refined: Iterable[Map]) -> Map:
        """Returns what a call has made of `masks` with its edges drawn by color, see `color_edge.py`."""
        every = zip(batch.frames, masks, refined, strict=True)
        return _stacked([self._draw_one(frame, mask, drawn) for frame, mask, drawn in every])

    def _refine_one(self, frame: Frame, mask: Map) -> Map:
        size = refined_size(mask.shape, self._picture)
        return mask if size is None else refine(mask, *self._guides(frame, size, 1))

    def _draw_one(self, frame: Frame, mask: Map, refined: Map) -> Map:
        size, share = refined_size(mask.shape, self._picture), share_of(mask)
        return refined if size is None or not share else draw_by_color(refined, self._guides(frame, size, 3), share)

    def _guides(self, frame: Frame, size: tuple[int, int], planes: int) -> list[Map]:
        """Returns the first planes of a frame upright, in `size` (width, height) and in 0..1."""
        stored = self._orientation.size(*size)
        return [
            np.ascontiguousarray(self._orientation.upright(shrink(plane, stored, known))) * self._scale
            for plane, known in zip(frame.planes[:planes], frame.halvings, strict=False)
        ]


def _stacked(masks: Sequence[Map]) -> Map:
    return masks[0][None] if len(masks) == 1 else np.stack(masks)


def refined_size(mask: tuple[int, ...], picture: tuple[int, int]) -> tuple[int, int] | None:
    """Returns the width and height of a refined mask; `None` if the mask stays as it is.

    `mask` is its shape (h, w) before, `picture` the frame's width and height, both upright.
    """
    (height, width), (full_width, full_height) = mask, picture
    if height > full_height or width > full_width:
        return None
    scale = min(1.0, LONGER_SIDE / max(picture))
    return max(width, round(scale * full_width)), max(height, round(scale * full_height))


def refine(mask: Map, guide: Map) -> Map:
    """Returns a mask (h, w) at the size of `guide` (H, W), which is the luma of the same picture in 0..1, no smaller.

    With y the guide at the mask's size, E the mean over a box, and sizes changed bilinearly between the centers of
    pixels:

        c = E(y m) - E(y) E(m),  a = c / (E(y^2) - E(y)^2 + EPSILON),  b = E(m) - a E(y)
        u = 1 / (E(m^2) - E(m)^2 - a c + MISFIT)
        drawn = up(E(u a) / E(u)) * guide + up(E(u b) / E(u))
        result = clip(up(m) + share_of(m) * (drawn - up(m)), 0, 1)
    """
    share = share_of(mask)
    if share == 0:
        return _resized(mask, guide.shape)
    a, b = _lines(mask, _resized(guide, mask.shape))
    drawn = _resized(a, guide.shape)
    drawn *= guide
    drawn += _resized(b, guide.shape)
    if share < 1:
        drawn = cv2.addWeighted(drawn, share, _resized(mask, guide.shape), 1 - share, 0, dst=drawn)  # type: ignore[assignment]
    return np.clip(drawn, 0, 1, out=drawn)


def share_of(mask: Map) -> float:
    """Returns how far a mask m (h, w) is refined, in 0..1: one in doubt, or of somebody small, less.

    share = clip((DOUBT[1] - mean(1 - 2 |m - 1/2|)) / (DOUBT[1] - DOUBT[0]), 0, 1)
            * clip((mean(m) - SMALL[0]) / (SMALL[1] - SMALL[0]), 0, 1)
    """
    doubt = 1 - 2 * float(np.abs(mask - np.float32(0.5)).mean())
    share = min(max((DOUBT[1] - doubt) / (DOUBT[1] - DOUBT[0]), 0.0), 1.0)
    return share * min(max((float(mask.mean()) - SMALL[0]) / (SMALL[1] - SMALL[0]), 0.0), 1.0)


def _lines(mask: Map, luma: Map) -> tuple[Map, Map]:
    """Returns slope and offset (h, w) of the line that is read at each place, see `refine`."""
    mean, mean_mask = _mean(luma), _mean(mask)  # in place from here on: new memory takes as long as the arithmetic
    shared = _mean(luma * mask)
    shared -= mean * mean_mask
    a = _mean(luma * luma)
    a -= mean * mean
    a += np.float32(EPSILON)
    np.divide(shared, a, out=a)
    weight = _mean(mask * mask)  # the misfit first
    weight -= mean_mask * mean_mask
    shared *= a
    weight -= shared
    np.maximum(weight, 0, out=weight)
    weight += np.float32(MISFIT)
    np.reciprocal(weight, out=weight)
    mean *= a
    mean_mask -= mean  # b
    a *= weight
    mean_mask *= weight
    total = _mean(weight)
    a, b = _mean(a), _mean(mean_mask)
    a /= total
    b /= total
    return a, b


def _resized(layer: Map, shape: tuple[int, ...]) -> Map:
    """Returns the layer at the size `shape` (h, w), bilinear."""
    return np.asarray(cv2.resize(layer, (shape[1], shape[0]), interpolation=cv2.INTER_LINEAR), np.float32)


def _mean(layer: Map) -> Map:
    """Returns the mean over the box around each place. `cv2.blur` is slower: it adds up in double precision."""
    return np.asarray(cv2.sepFilter2D(layer, -1, _SHARES, _SHARES, borderType=cv2.BORDER_REPLICATE), np.float32)
