"""Propagates masks to frames on which the network did not run, from the nearest frames on which it did: their keys.

A block search on small lumas finds where each place of a frame lies in its two keys. Their masks are warped along, and
averaged: the nearer key counts more, and so does the key in which the place looks the same. A search from the frame to
both keys, instead of one from key to key, leaves no holes and assumes nothing about the motion in between.

Each step is elementwise, a mean or a sum over a box (the border repeated), bilinear, or a search in whole numbers, so
that `cuda_propagation.py` gets the same result on a GPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames import Array
from segmentation.models.model import Model
from segmentation.stages.masks.smoothing import LUMA, Map, as_map, blurred, luma_shares

RADII = (4, 1, 1)  # places to either side that are searched, at an eighth, a quarter and half of the network's input
BOX = 5  # side of the box whose differences are added up
STEP = 13  # what a place costs for each place that it is away from where the search begins: half a level a pixel
FLOW_BOX = 5  # side of the box over which the flow is averaged: fractions of a pixel come from there
RESIDUAL_BOX = 5  # the same for the residual: the difference that remains along the flow
RESIDUAL = 0.02  # of luma (0..1), added to that residual: the noise that an exact match has
UNLIKE = 0.08  # of luma: a place with a larger difference is not seen in that key
SMALLEST = 1e-3  # share of the picture: less is noise, and no area to compare a disagreement with

Levels = NDArray[np.uint8]
Whole = NDArray[np.int32]
Flow = tuple[Map, Map]  # (h, w) each: how far to the right and down of each place something is
Luma = TypeVar("Luma")  # what a backend keeps of a frame
Sample = TypeVar("Sample", bound=np.generic)
T = TypeVar("T")
Later: TypeAlias = Callable[[], list[T]]  # waits for numbers that a GPU may still compute, and returns them


class FrameMask(NamedTuple):
    """A frame's mask (h, w) float32 in 0..1 and, where it is asked for, its class map (h, w) uint8."""

    mask: Array
    class_map: Array | None


class Doubt(NamedTuple):
    """How little the two keys say about a frame between them."""

    disagreement: float  # mean difference between the two warped masks, over the mean of the larger one
    unseen: float  # share of the frame's places that neither key shows


@dataclass(frozen=True, slots=True)
class FrameBetween(Generic[Luma]):
    """A frame between two keys, and the keys, the earlier first."""

    luma: Luma
    lumas: tuple[Luma, Luma]  # of the keys
    found: tuple[FrameMask, FrameMask]
    share: float  # of the earlier key: 1 minus its distance over that of the keys


class Propagation(ABC, Generic[Luma]):
    """The computation behind intervals between inferences, on the host or on a GPU."""

    @abstractmethod
    def keep(self, tensor: Array, count: int) -> tuple[Array, list[Luma]]:
        """Returns the first `count` rows of the network's input (N, 3, H, W), and what is kept of each row's luma.

        Both stay valid when a stage overwrites `tensor`.
        """

    @abstractmethod
    def changes(self, lumas: Sequence[Luma]) -> Later[float]:
        """Begins to compute the mean difference, in 0..1, between each luma but the first and the one before."""

    @abstractmethod
    def gather(self, rows: Sequence[Array]) -> Array:
        """Returns an array of these rows, for the network."""

    @abstractmethod
    def split(self, masks: Array, class_map: Array | None, count: int) -> list[FrameMask]:
        """Returns the first `count` rows of what a network returned, valid when it overwrites both arrays."""

    @abstractmethod
    def propagate(self, frames: Sequence[FrameBetween[Luma]], *, doubt: bool) -> tuple[list[FrameMask], Later[Doubt]]:
        """Returns what is found in each frame, and begins to compute the doubt about each if asked for."""

    @abstractmethod
    def join(self, found: Sequence[FrameMask]) -> tuple[Array, Array | None]:
        """Returns masks (N, h, w) and class maps (N, h, w)."""


@dataclass(frozen=True, slots=True)
class HostLuma:
    """A frame's luma at half the size of the network's input, in 0..1, and its pyramid in 256 levels for the search."""

    values: Map
    pyramid: tuple[Levels, ...]  # an eighth, a quarter and half of the input's size, rounded up at each halving


class HostPropagation(Propagation[HostLuma]):
    """A `Propagation` with NumPy arrays, whose results belong to the caller already."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def keep(self, tensor: NDArray[Any], count: int) -> tuple[Array, list[HostLuma]]:
        return tensor[:count], [small_luma(picture, self._model) for picture in tensor[:count]]

    def changes(self, lumas: Sequence[HostLuma]) -> Later[float]:
        found = [change(before.pyramid[0], luma.pyramid[0]) for before, luma in pairwise(lumas)]
        return lambda: found

    def gather(self, rows: Sequence[NDArray[Any]]) -> Array:
        return rows[0][None] if len(rows) == 1 else np.stack(rows)

    def split(self, masks: Map, class_map: NDArray[np.uint8] | None, count: int) -> list[FrameMask]:
        maps = [None] * count if class_map is None else list(class_map[:count])
        return [FrameMask(mask, one) for mask, one in zip(masks[:count], maps, strict=True)]

    def propagate(
        self, frames: Sequence[FrameBetween[HostLuma]], *, doubt: bool
    ) -> tuple[list[FrameMask], Later[Doubt]]:
        made = [propagate(frame) for frame in frames]
        return [found for found, _ in made], lambda: [doubt for _, doubt in made]

    def join(self, found: Sequence[FrameMask]) -> tuple[Array, Array | None]:
        masks, maps = zip(*found, strict=True)
        return np.stack(masks), None if maps[0] is None else np.stack(maps)


def small_luma(picture: NDArray[Any], model: Model) -> HostLuma:
    """Returns what is kept of one frame of the network's input (3, H, W)."""
    shares = luma_shares(model)
    luma: Map = (shares[0] * picture[0] + shares[1] * picture[1] + shares[2] * picture[2]).astype(np.float32)
    return host_luma(luma + np.float32(sum(share * mean for share, mean in zip(LUMA, model.mean, strict=True))))


def host_luma(luma: Map) -> HostLuma:
    """Returns what is kept of a frame's luma (H, W) in 0..1, at the size of the network's input."""
    sizes = []
    for _ in RADII:
        luma = _halved(luma)
        sizes.append(luma)
    levels = tuple((np.clip(size, 0, 1) * 255 + np.float32(0.5)).astype(np.uint8) for size in reversed(sizes))
    return HostLuma(sizes[0], levels)


def change(levels: Levels, others: Levels) -> float:
    """Returns the mean difference between two lumas in 256 levels, in 0..1."""
    return cv2.norm(levels, others, cv2.NORM_L1) / (255 * levels.size)


def propagate(frame: FrameBetween[HostLuma]) -> tuple[FrameMask, Doubt]:
    """Returns what is found in a frame between two keys, and the doubt about it.

    With Y the frame's luma, Y_k the key's, warped along the flow, and share_k the frame's nearness to the key, the
    key's warped mask has the weight

        w_k = share_k / (blurred|Y - Y_k| + RESIDUAL)^2
    """
    shares = (frame.share, 1 - frame.share)
    first, second = (
        _warped(frame.luma, luma, found, share)
        for luma, found, share in zip(frame.lumas, frame.found, shares, strict=True)
    )
    mask = (first.weight * first.mask + second.weight * second.mask) / (first.weight + second.weight)
    class_map = None
    if first.class_map is not None and second.class_map is not None:
        class_map = np.where(first.weight >= second.weight, first.class_map, second.class_map)
    larger = max(float(first.mask.mean()), float(second.mask.mean()), SMALLEST)
    difference = cv2.norm(first.mask, second.mask, cv2.NORM_L1) / first.mask.size
    unseen = float(np.mean(np.minimum(first.residual, second.residual) > UNLIKE))
    return FrameMask(mask, class_map), Doubt(difference / larger, unseen)


class _Warped(NamedTuple):
    """A key's finding in the places of another frame, and its weight, (h, w) each; the residual at the luma's size."""

    mask: Map
    class_map: NDArray[np.uint8] | None
    weight: Map
    residual: Map


def _warped(luma: HostLuma, key: HostLuma, found: FrameMask, share: float) -> _Warped:
    flow = flow_to(luma, key)
    residual = residual_along(luma, key, flow)
    mask = along(np.asarray(found.mask), flow)
    class_map = None
    if found.class_map is not None:
        class_map = along(np.asarray(found.class_map), flow, cv2.INTER_NEAREST)
    return _Warped(mask, class_map, resized(weight_of(residual, share), mask.shape), residual)


def residual_along(luma: HostLuma, key: HostLuma, flow: Flow) -> Map:
    """Returns the difference (h, w) that remains between a frame and its key along the flow, in 0..1, blurred."""
    return blurred(as_map(cv2.absdiff(luma.values, _sampled(key.values, flow))), RESIDUAL_BOX)


def weight_of(residual: Map, share: float) -> Map:
    """Returns the weight of each place of a key, see `propagate`."""
    return as_map(np.float32(share) / np.square(residual + np.float32(RESIDUAL)))


def along(layer: NDArray[Sample], flow: Flow, interpolation: int = cv2.INTER_LINEAR) -> NDArray[Sample]:
    """Returns a layer of a key, of any size, in the places of the frame from which `flow` leads to the key."""
    height, width = shape = layer.shape
    right, down = (resized(part, shape) for part in flow)
    right *= np.float32(width / flow[0].shape[1])
    down *= np.float32(height / flow[0].shape[0])
    return _sampled(layer, (right, down), interpolation)


def joined(first: Flow, second: Flow) -> Flow:
    """Returns the flow that leads along `first` and from there along `second`."""
    right, down = (part + _sampled(behind, first) for part, behind in zip(first, second, strict=True))
    return right, down


def flow_to(luma: HostLuma, key: HostLuma) -> Flow:
    """Returns how far to the right and down of each place the key has it, (h, w) each, in places of `HostLuma.values`.

    At each size, coarse to fine, the search begins where twice the flow of the size before points. A place costs the
    sum of |Y - Y_k| over the box around it, plus STEP for each place that it is away. Of equal places the first counts,
    row by row.
    """
    flow: tuple[Whole, Whole] = (still := np.zeros(luma.pyramid[0].shape, np.int32), still)
    for here, there, radius in zip(luma.pyramid, key.pyramid, RADII, strict=True):
        flow = _searched(here, there, flow, radius)
    right, down = (blurred(part.astype(np.float32), FLOW_BOX) for part in flow)
    return right, down


def _searched(here: Levels, there: Levels, coarse: tuple[Whole, Whole], radius: int) -> tuple[Whole, Whole]:
    """Returns the flow to the right and down at one size."""
    height, width = here.shape
    right, down = (np.repeat(np.repeat(2 * part, 2, 0), 2, 1)[:height, :width] for part in coarse)
    reach = radius + max(int(np.abs(right).max()), int(np.abs(down).max()))
    padded = cv2.copyMakeBorder(there, reach, reach, reach, reach, cv2.BORDER_REPLICATE)
    begin, side = reach - radius, 2 * radius + 1
    rows, columns = np.ogrid[begin : begin + height, begin : begin + width]
    places = (rows + down) * padded.shape[1] + (columns + right)  # of the candidate at the upper left
    flat, sampled = padded.ravel(), np.empty_like(here)
    best = np.full(here.shape, np.iinfo(np.int32).max, np.int32)
    for number, (j, i) in enumerate(product(range(side), repeat=2)):
        np.take(flat[j * padded.shape[1] + i :], places, out=sampled, mode="clip")  # all lie inside; "raise" is slower
        differences = cv2.absdiff(here, sampled)
        cost = cv2.boxFilter(differences, cv2.CV_32S, (BOX, BOX), normalize=False, borderType=cv2.BORDER_REPLICATE)
        cost *= side * side  # the candidate's number travels along with its cost
        cost += STEP * (abs(i - radius) + abs(j - radius)) * side * side + number
        np.minimum(best, cost, out=best)
    chosen = best % (side * side)
    return right + (chosen % side - radius), down + (chosen // side - radius)


def _sampled(layer: NDArray[Any], flow: Flow, interpolation: int = cv2.INTER_LINEAR) -> NDArray[Any]:
    """Returns the layer (h, w) at the places to which the flow points, the border repeated."""
    height, width = layer.shape
    columns = flow[0] + np.arange(width, dtype=np.float32)
    rows = flow[1] + np.arange(height, dtype=np.float32)[:, None]
    return cv2.remap(layer, columns, rows, interpolation, borderMode=cv2.BORDER_REPLICATE)


def _halved(layer: Map) -> Map:
    """Returns the layer at half its size, rounded up: means of areas."""
    height, width = layer.shape
    return as_map(cv2.resize(layer, (-(-width // 2), -(-height // 2)), interpolation=cv2.INTER_AREA))


def resized(layer: Map, shape: tuple[int, ...]) -> Map:
    """Returns the layer at the size `shape` (h, w), bilinear."""
    return as_map(cv2.resize(layer, (shape[1], shape[0]), interpolation=cv2.INTER_LINEAR))
