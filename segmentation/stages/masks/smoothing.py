"""Smooths masks over time, between inference and postprocess, so that they neither flicker nor lag.

A network that sees one frame at a time changes its masks from frame to frame. A running average of past masks calms
that, but drags edges behind everything that moves. Here a mask is averaged with the masks of `REACH` frames before and
after it, and only where the picture has not changed between them. Where the network is in doubt over a whole area,
more change is let pass.

Each step is elementwise, a mean over a box, bilinear, or a mean over the whole picture, so that `cuda.py` gets the same
result on a GPU: `down` is the mean of blocks, `blurred` the mean of a square around each place (the border repeated),
`up` bilinear between the centers of the blocks.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames import Array, MaskedBatch
from segmentation.models.model import Model

REACH = 2  # frames before and after: a mask waits for as many frames
BLOCK = 4  # side of the squares of a mask, in pixels, over which change and doubt are averaged
CHANGE = 0.03  # of luma (0..1): a neighbor that differs so much counts nothing where the network is sure
DOUBT = 12.0  # where the mask is 0.5 all over, 1 + DOUBT times as much change is let pass
CHANGE_BOX, DOUBT_BOX = 3, 9  # blocks a side; the second is wider than an outline, so that it finds areas, not edges
CUT = 0.1  # mean change of the whole picture, above which the neighbor belongs to another scene
LUMA = (0.2126, 0.7152, 0.0722)  # of R, G and B: BT.709

Map = NDArray[np.float32]  # (h, w), or (N, h, w) of a batch
HostHistory = list[tuple[Map, Map]]  # of each frame: its mask, and its luma at half the mask's size
CudaHistory = range  # numbers of frames, whose masks and lumas lie in a buffer of `cuda.CudaSmoothing`
History = TypeVar("History", HostHistory, CudaHistory)


def smooth(masks: Sequence[Map], lumas: Sequence[Map], strength: float) -> Map:
    """Returns the middle mask (h, w) of an odd number of masks, averaged with its neighbors.

    `masks` are float32 in 0..1. `lumas` belong to the same frames: float32 in 0..1, at half the size, rounded up. With
    m the middle mask and Y its luma, a neighbor k has the weight

        w_k = strength * up(max(0, 1 - blurred(down|Y_k - Y|) / limit)), or 0 if mean(down|Y_k - Y|) > CUT
        limit = CHANGE * (1 + DOUBT * (1 - 2 * blurred(down|m - 1/2|)))

    and the result is (m + sum(w_k m_k)) / (1 + sum(w_k)). As past and future weigh the same, an edge stays where it is.
    """
    middle = len(masks) // 2
    mask, luma = masks[middle], lumas[middle]
    height, width = mask.shape
    sure = blurred(_down(np.abs(mask - np.float32(0.5)), BLOCK), DOUBT_BOX)
    slope = strength / (CHANGE * (1 + DOUBT * (1 - 2 * sure)))
    total, weights = mask.copy(), np.ones_like(slope)
    for k in range(len(masks)):
        if k == middle:
            continue
        change = _down(as_map(cv2.absdiff(lumas[k], luma)), BLOCK // 2)
        if cv2.mean(change)[0] > CUT:
            continue
        weight = np.maximum(strength - slope * blurred(change, CHANGE_BOX), 0)
        weights += weight
        cv2.accumulateProduct(_up(weight)[:height, :width], masks[k], total)
    total /= _up(weights)[:height, :width]  # the enlarged sum equals the sum of enlarged weights
    return total


def _down(layer: Map, block: int) -> Map:
    """Returns the means of squares of `block` pixels a side; the last row and column are repeated to fill them."""
    height, width = layer.shape
    below, right = -height % block, -width % block
    if below or right:
        layer = as_map(cv2.copyMakeBorder(layer, 0, below, 0, right, cv2.BORDER_REPLICATE))
    return as_map(cv2.resize(layer, None, fx=1 / block, fy=1 / block, interpolation=cv2.INTER_AREA))


def _up(layer: Map) -> Map:
    """Returns the layer `BLOCK` times as large, bilinear."""
    return as_map(cv2.resize(layer, None, fx=BLOCK, fy=BLOCK, interpolation=cv2.INTER_LINEAR))


def blurred(layer: Map, size: int) -> Map:
    """Returns the means of squares of `size` places a side, with the border repeated."""
    return as_map(cv2.blur(layer, (size, size), borderType=cv2.BORDER_REPLICATE))


def as_map(layer: NDArray[Any]) -> Map:
    """Returns the layer as it is: OpenCV keeps float32, but its annotations don't say so."""
    return layer


def small_lumas(tensor: NDArray[Any], model: Model, shape: tuple[int, int]) -> NDArray[np.float32]:
    """Returns the luma of the network's input (N, 3, H, W), but for a constant: (N, h, w) float32.

    (h, w) is half of `shape`, the size of the masks, rounded up.
    """
    if model.picture is not None:  # masks don't cover the border
        tensor = tensor[:, :, *model.picture.pixels]
    shares = luma_shares(model)
    lumas = shares[0] * tensor[:, 0] + shares[1] * tensor[:, 1] + shares[2] * tensor[:, 2]
    size = (-(-shape[1] // 2), -(-shape[0] // 2))
    return np.stack([cv2.resize(luma.astype(np.float32), size, interpolation=cv2.INTER_AREA) for luma in lumas])


def luma_shares(model: Model) -> NDArray[np.float32]:
    """Returns the share of each channel of the network's input in luma, (3,) float32."""
    shares = np.array([share * deviation for share, deviation in zip(LUMA, model.std, strict=True)], np.float32)
    return shares[::-1] if model.channel_order == "bgr" else shares


class SmoothingBackend(ABC, Generic[History]):
    """The computation behind `TemporalSmoother`, on the host or on a GPU.

    A history is a sequence with an item for each frame: all that later averages need of that frame.
    """

    @abstractmethod
    def keep(self, tensor: Array, masks: Array, count: int) -> History:
        """Returns the history of a batch, from the network's input (N, 3, H, W) and masks (N, h, w).

        The first `count` rows belong to the batch. The history stays valid when a stage overwrites both arrays.
        """

    @abstractmethod
    def join(self, known: History, new: History) -> History:
        """Returns both histories in one, `known` first."""

    @abstractmethod
    def average(self, known: History, first: int, count: int) -> Array:
        """Returns the masks (count, h, w) of the frames from number `first` of `known` on, averaged with their
        neighbors. The first frame of `known` stands in for frames before it, and the last for frames after it.
        """


class HostSmoothing(SmoothingBackend[HostHistory]):
    """A `SmoothingBackend` with NumPy arrays."""

    def __init__(self, model: Model, strength: float) -> None:
        self._model = model
        self._strength = strength

    def keep(self, tensor: NDArray[Any], masks: Map, count: int) -> HostHistory:
        lumas = small_lumas(tensor[:count], self._model, (masks.shape[1], masks.shape[2]))
        return list(zip(masks[:count], lumas, strict=True))

    def join(self, known: HostHistory, new: HostHistory) -> HostHistory:
        return known + new

    def average(self, known: HostHistory, first: int, count: int) -> Map:
        averages = [self._average_one(known, number) for number in range(first, first + count)]
        return averages[0][None] if count == 1 else np.stack(averages)

    def _average_one(self, known: HostHistory, number: int) -> Map:
        at = (min(max(number + k, 0), len(known) - 1) for k in range(-REACH, REACH + 1))
        masks, lumas = zip(*(known[i] for i in at), strict=True)
        return smooth(masks, lumas, self._strength)


class TemporalSmoother(Generic[History]):
    """Holds batches back until the masks of the next `REACH` frames are there; returns each batch once, in order."""

    def __init__(self, backend: SmoothingBackend[History]) -> None:
        self._backend: SmoothingBackend[History] = backend
        self._waiting: deque[MaskedBatch] = deque()
        self._known: History | None = None  # of the frames from number `_first` on
        self._first = 0
        self._next = 0  # number of the first frame that has not been returned

    def push(self, batch: MaskedBatch, history: History) -> list[MaskedBatch]:
        """Takes the next batch with its history; returns the batches that are complete now, with averaged masks."""
        self._waiting.append(batch)
        self._known = history if self._known is None else self._backend.join(self._known, history)
        return self._take_ready(REACH)

    def flush(self) -> list[MaskedBatch]:
        """Returns the batches that are left: at the end, or at a pause, after which `push` goes on."""
        return self._take_ready(0)

    def _take_ready(self, ahead: int) -> list[MaskedBatch]:
        """Returns the batches behind whose last frame `ahead` more frames are known, and forgets old frames."""
        ready: list[MaskedBatch] = []
        if self._known is None:
            return ready
        while self._waiting and self._next + len(self._waiting[0]) + ahead <= self._first + len(self._known):
            batch = self._waiting.popleft()
            masks = self._backend.average(self._known, self._next - self._first, len(batch))
            ready.append(replace(batch, masks=masks))
            self._next += len(batch)
            past = max(0, self._next - REACH - self._first)
            self._known = self._known[past:]
            self._first += past
        return ready


def smooth_masks(
    found: Iterable[tuple[MaskedBatch, History] | None], backend: SmoothingBackend[History]
) -> Iterator[MaskedBatch]:
    """Yields each batch of `found` with its masks averaged over time; each comes with its history.

    At a pause, `None`, the batches before do not wait for later ones.
    """
    smoother = TemporalSmoother(backend)
    for one in found:
        yield from smoother.flush() if one is None else smoother.push(*one)
    yield from smoother.flush()
