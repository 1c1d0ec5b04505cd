"""Carries corrections along the motion, from the frames they were made in to those before and behind.

A correction goes in both directions up to the next one or a cut. On its way the flow from frame to frame is joined, so
that its edges stay sharp, and where a frame does not show what the corrected one shows, the correction is left out.
Between two corrections both are averaged, as masks between two keys are.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames import FORMATS, Frame, VideoInfo
from segmentation.interval.propagation import (
    UNLIKE,
    Flow,
    HostLuma,
    along,
    change,
    flow_to,
    host_luma,
    joined,
    residual_along,
    resized,
    weight_of,
)
from segmentation.stages.masks.smoothing import CUT, Map
from segmentation.stages.preprocess.opencv import shrink

FARTHEST = 3000  # frames before a correction that it reaches: they wait in memory, 70 kB each
_SIDE = 448  # the longer side of the pictures in which motion is searched, as of the built-in network's input
_SHORTEST = 16  # pixels a side of such a picture
_LEVELS = 127
_DETAIL = 9  # places a side: smaller areas that differ, such as an eye that closes, don't count
_ASIDE = (4, 2)  # places of a luma, see `_settled`
_CLEARLY = 0.002  # of luma: so much better another flow has to be


class CorrectedFrame(NamedTuple):
    """A frame as it is seen here."""

    pts: int
    luma: HostLuma
    correction: Map | None  # (H, W) of any size: 1 where the mask is to be 1, -1 where it is to be 0, else 0


class PackedMap(NamedTuple):
    """A map in -1..1, in little memory."""

    shape: tuple[int, int]
    data: bytes

    @staticmethod
    def of(values: Map) -> PackedMap:
        """Returns a map (h, w) in 255 levels."""
        levels = np.rint(values * _LEVELS).astype(np.int8)
        return PackedMap((levels.shape[0], levels.shape[1]), zlib.compress(levels.tobytes(), 1))

    @property
    def values(self) -> Map:
        levels = np.frombuffer(zlib.decompress(self.data), np.int8).reshape(self.shape)
        return levels.astype(np.float32) / np.float32(_LEVELS)


class _Reached(NamedTuple):
    """A correction as it is in a frame on its way."""

    correction: PackedMap
    residual: NDArray[np.uint8]  # (h, w), of luma in 255 levels
    steps: int  # frames from the corrected one


@dataclass(frozen=True, slots=True)
class _Carried:
    """A correction on its way."""

    correction: Map
    key: HostLuma  # of the corrected frame
    luma: HostLuma  # of the frame that is reached
    flow: Flow  # from there to the corrected one
    steps: int = 0

    @staticmethod
    def begin(correction: Map, luma: HostLuma) -> _Carried:
        height, width = luma.values.shape
        still = np.zeros((height, width), np.float32)
        return _Carried(resized(correction, (2 * height, 2 * width)), luma, luma, (still, still))

    def to(self, luma: HostLuma) -> _Carried:
        """Returns it in the next frame of its way."""
        flow = _settled(luma, self.key, joined(flow_to(luma, self.luma), self.flow))
        return replace(self, luma=luma, flow=flow, steps=self.steps + 1)

    def reached(self) -> _Reached:
        residual = residual_along(self.luma, self.key, self.flow)
        levels = np.rint(np.clip(residual, 0, 1) * 255).astype(np.uint8)
        return _Reached(PackedMap.of(along(self.correction, self.flow)), levels, self.steps)


def _settled(luma: HostLuma, key: HostLuma, flow: Flow) -> Flow:
    """Returns the flow, at each place that of a place nearby if this one finds the key's picture better.

    The flow of whatever moves is averaged with that of the ground around. Without this step its outline would spread
    at each frame.
    """
    for step in _ASIDE:
        least, best = residual_along(luma, key, flow), flow
        for right, down in product((-step, 0, step), repeat=2):
            other = _shifted(flow[0], right, down), _shifted(flow[1], right, down)
            residual = residual_along(luma, key, other) + np.float32(_CLEARLY)
            better = residual < least
            least = np.where(better, residual, least)
            best = np.where(better, other[0], best[0]), np.where(better, other[1], best[1])
        flow = best
    return flow


def _shifted(layer: Map, right: int, down: int) -> Map:
    """Returns a layer that is moved by whole places, the border repeated."""
    by = np.array([[1, 0, right], [0, 1, down]], np.float32)
    size = (layer.shape[1], layer.shape[0])
    moved = cv2.warpAffine(layer, by, size, flags=cv2.INTER_NEAREST, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(moved, np.float32)


def carried(frames: Iterable[CorrectedFrame], count: int) -> Iterator[tuple[int, PackedMap]]:
    """Yields the corrections that successive frames get, with the frames' pts, in order.

    `count` of the frames are corrected. Behind the last of them the iteration ends at a cut.
    """
    waiting: deque[CorrectedFrame] = deque()  # behind the last correction or cut, while more may come
    key: _Carried | None = None
    last: HostLuma | None = None
    for frame in frames:
        if last is not None and change(last.pyramid[0], frame.luma.pyramid[0]) > CUT:
            yield from _between(waiting, key, None)
            waiting.clear()
            key = None
            if not count:
                return
        last = frame.luma
        if frame.correction is not None:
            count -= 1
            begun = _Carried.begin(frame.correction, frame.luma)
            yield from _between(waiting, key, begun)
            yield frame.pts, PackedMap.of(begun.correction)
            waiting.clear()
            key = begun
            continue
        waiting.append(frame)
        if not count or len(waiting) > FARTHEST:
            passed = waiting.popleft()
            if key is not None:
                key = key.to(passed.luma)
                yield passed.pts, _blended([key.reached()])
    yield from _between(waiting, key, None)


def _between(
    waiting: Sequence[CorrectedFrame] | deque[CorrectedFrame], before: _Carried | None, after: _Carried | None
) -> Iterator[tuple[int, PackedMap]]:
    """Yields the corrections of the frames between two that are corrected, of which either may be missing."""
    behind: list[_Reached] = []  # from the last frame to the first
    if after is not None:
        for frame in reversed(waiting):
            after = after.to(frame.luma)
            behind.append(after.reached())
    for frame in waiting:
        found = [behind.pop()] if behind else []
        if before is not None:
            before = before.to(frame.luma)
            found.append(before.reached())
        if found:
            yield frame.pts, _blended(found)


def _blended(found: Sequence[_Reached]) -> PackedMap:
    """Returns the mean of one correction or two, weighted as `propagate` weights keys, where they are seen."""
    shape = found[0].correction.shape
    total, weights = np.zeros((2, *shape), np.float32)
    steps = sum(one.steps for one in found)
    for one in found:
        residual = one.residual.astype(np.float32) / np.float32(255)
        share = 1.0 if len(found) == 1 else 1 - one.steps / steps
        weight = resized(weight_of(residual, share), shape)
        total += weight * resized(_seen(residual), shape) * one.correction.values
        weights += weight
    return PackedMap.of(total / weights)


def _seen(residual: Map) -> Map:
    """Returns 1 where a frame shows what the corrected one shows, else 0. Details that have changed don't count."""
    unlike = (residual > UNLIKE).astype(np.float32)
    areas = cv2.morphologyEx(unlike, cv2.MORPH_OPEN, np.ones((_DETAIL, _DETAIL), np.uint8))
    return np.asarray(1 - areas, np.float32)


def luma_of(frame: Frame, info: VideoInfo, pix_fmt: str) -> HostLuma:
    """Returns the luma of a decoded frame, upright, at the size in which motion is searched."""
    width, height = info.upright_size
    scale = min(1.0, _SIDE / max(width, height))
    size = info.orientation.size(*(max(_SHORTEST, round(side * scale)) for side in (width, height)))
    black, span, _, _ = info.color.levels(FORMATS[pix_fmt].bits)
    small = shrink(frame.planes[0], size, frame.halvings[0])
    upright = info.orientation.upright(small).astype(np.float32)
    return host_luma((upright - np.float32(black)) / np.float32(span))


def corrected(mask: Map, correction: PackedMap) -> Map:
    """Returns a mask (h, w) in 0..1 with a correction. A NaN stays one."""
    signed = cv2.resize(correction.values, (mask.shape[1], mask.shape[0]), interpolation=cv2.INTER_LINEAR)
    return np.asarray(mask + np.maximum(signed, 0) * (1 - mask) + np.minimum(signed, 0) * mask, np.float32)
