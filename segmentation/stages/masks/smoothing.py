"""Between inference and postprocess: masks that don't flicker, and don't lag.

A network that sees one frame at a time changes its mind from frame to frame. A running average of past masks calms
that, but drags its edges behind whatever moves. Here a mask is averaged with those of `REACH` frames before and after
it, and only where the picture has not changed between them; where the network is in doubt over a whole area, more
change is let pass.

Whatever is computed is elementwise, a mean over a box, bilinear, or a mean over all, so that it comes out the same
elsewhere, and `masks_cuda.py` does it on a GPU: `down` is the mean of blocks, `blurred` that of a square around each
place (the border repeated), `up` bilinear between the centres of the blocks.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames import FrameBatch
from segmentation.models.model import Model

REACH = 2  # frames before and after; as many are waited for
BLOCK = 4  # places of a mask, a side, over which change and doubt are averaged
CHANGE = 0.03  # of luma (0..1): a neighbour that differs so much counts nothing where the network is sure
DOUBT = 12.0  # how much more change is let pass where the network is in doubt, at 1 (all 0.5) 13 times as much
CHANGE_BOX, DOUBT_BOX = 3, 9  # blocks a side; the second is wider than an outline, so that it finds areas, not edges
CUT = 0.1  # mean change of the whole picture, above which the neighbour belongs to another scene
_LUMA = (0.2126, 0.7152, 0.0722)  # of R, G and B: BT.709

Map = NDArray[np.float32]


def smooth(masks: Sequence[Map], lumas: Sequence[Map], strength: float) -> Map:
    """The middle one of an odd number of masks (h, w) in 0..1, averaged with its neighbours.

    `lumas` are those of the same frames in 0..1, at half the size, rounded up. With m the middle mask and Y its luma, a
    neighbour k has the weight

        w_k = strength * up(max(0, 1 - blurred(down|Y_k - Y|) / limit)), or 0 if mean(down|Y_k - Y|) > CUT
        limit = CHANGE * (1 + DOUBT * (1 - 2 * blurred(down|m - 1/2|)))

    and the result is (m + sum(w_k m_k)) / (1 + sum(w_k)). As past and future weigh the same, an edge stays where it is.
    """
    middle = len(masks) // 2
    mask, luma = masks[middle], lumas[middle]
    height, width = mask.shape
    sure = _blurred(_down(np.abs(mask - np.float32(0.5)), BLOCK), DOUBT_BOX)
    slope = strength / (CHANGE * (1 + DOUBT * (1 - 2 * sure)))
    total, weights = mask.copy(), np.ones_like(slope)
    for k in range(len(masks)):
        if k == middle:
            continue
        change = _down(_map(cv2.absdiff(lumas[k], luma)), BLOCK // 2)
        if cv2.mean(change)[0] > CUT:
            continue
        weight = np.maximum(strength - slope * _blurred(change, CHANGE_BOX), 0)
        weights += weight
        cv2.accumulateProduct(_up(weight)[:height, :width], masks[k], total)
    total /= _up(weights)[:height, :width]  # enlarged once: the sum of what is enlarged is the same
    return total


def _down(layer: Map, block: int) -> Map:
    """Means of `block` x `block`; the last row and column are repeated where the size is no multiple of that."""
    height, width = layer.shape
    below, right = -height % block, -width % block
    if below or right:
        layer = _map(cv2.copyMakeBorder(layer, 0, below, 0, right, cv2.BORDER_REPLICATE))
    return _map(cv2.resize(layer, None, fx=1 / block, fy=1 / block, interpolation=cv2.INTER_AREA))


def _up(layer: Map) -> Map:
    return _map(cv2.resize(layer, None, fx=BLOCK, fy=BLOCK, interpolation=cv2.INTER_LINEAR))


def _blurred(layer: Map, size: int) -> Map:
    return _map(cv2.blur(layer, (size, size), borderType=cv2.BORDER_REPLICATE))


def _map(layer: NDArray[Any]) -> Map:
    return layer  # OpenCV keeps float32, but its types don't say so


def small_lumas(tensor: NDArray[Any], model: Model, shape: tuple[int, int]) -> NDArray[np.float32]:
    """Luma of the network's input (N, 3, H, W), but for a constant, at half the size of masks (*shape): (N, h, w)."""
    shares = luma_shares(model)
    lumas = shares[0] * tensor[:, 0] + shares[1] * tensor[:, 1] + shares[2] * tensor[:, 2]
    size = (-(-shape[1] // 2), -(-shape[0] // 2))
    return np.stack([cv2.resize(luma.astype(np.float32), size, interpolation=cv2.INTER_AREA) for luma in lumas])


def luma_shares(model: Model) -> NDArray[np.float32]:
    """What luma is made of: how much of each channel of the network's input."""
    shares = np.array([share * deviation for share, deviation in zip(_LUMA, model.std, strict=True)], np.float32)
    return shares[::-1] if model.channel_order == "bgr" else shares


class SmoothingBackend(Protocol):
    """What `TemporalSmoother` needs of the side on which masks are. What is kept of frames is a sequence with an item for each,
    of which slices can be taken."""

    def kept(self, tensor: Any, masks: Any, count: int) -> Any:
        """What the averages need of a batch, from the network's input and the `count` masks that it gave. It stays
        as it is when a stage writes to those again."""

    def joined(self, known: Any, kept: Any) -> Any:
        """Both, one after the other."""

    def averaged(self, known: Any, first: int, count: int) -> Any:
        """The masks (count, h, w) of the frames from number `first` of `known` on, averaged with their neighbours.
        Before the first frame that is known comes the first again, and after the last the last."""


class HostSmoothing:
    """See `SmoothingBackend`; with NumPy arrays. Of a frame its mask and its small luma are kept."""

    def __init__(self, model: Model, strength: float) -> None:
        self._model = model
        self._strength = strength

    def kept(self, tensor: NDArray[Any], masks: Map, count: int) -> list[tuple[Map, Map]]:
        lumas = small_lumas(tensor[:count], self._model, (masks.shape[1], masks.shape[2]))
        return list(zip(masks[:count], lumas, strict=True))

    def joined(self, known: list[tuple[Map, Map]], kept: list[tuple[Map, Map]]) -> list[tuple[Map, Map]]:
        return known + kept

    def averaged(self, known: list[tuple[Map, Map]], first: int, count: int) -> Map:
        found = [self._average(known, number) for number in range(first, first + count)]
        return found[0][None] if count == 1 else np.stack(found)

    def _average(self, known: list[tuple[Map, Map]], number: int) -> Map:
        at = (min(max(number + k, 0), len(known) - 1) for k in range(-REACH, REACH + 1))
        masks, lumas = zip(*(known[i] for i in at), strict=True)
        return smooth(masks, lumas, self._strength)


class TemporalSmoother:
    """Holds batches back until the masks of the next `REACH` frames are there; puts out every one, in order."""

    def __init__(self, backend: SmoothingBackend) -> None:
        self._averaging = backend
        self._waiting: deque[FrameBatch] = deque()
        self._known: Any = None  # what is kept of the frames from number `_first` on
        self._first = 0
        self._next = 0  # number of the first frame that is still to be put out

    def push(self, batch: FrameBatch, kept: Any) -> list[tuple[FrameBatch, Any]]:
        """Takes the next batch with what is kept of it; returns those that need wait no longer, with their masks."""
        self._waiting.append(batch)
        self._known = kept if self._known is None else self._averaging.joined(self._known, kept)
        return self._ready(REACH)

    def flush(self) -> list[tuple[FrameBatch, Any]]:
        """After the last batch: what is left."""
        return self._ready(0)

    def _ready(self, ahead: int) -> list[tuple[FrameBatch, Any]]:
        ready = []
        while self._waiting and self._next + len(self._waiting[0]) + ahead <= self._first + len(self._known):
            batch = self._waiting.popleft()
            ready.append((batch, self._averaging.averaged(self._known, self._next - self._first, len(batch))))
            self._next += len(batch)
            past = max(0, self._next - REACH - self._first)
            self._known = self._known[past:]
            self._first += past
        return ready


def smooth_masks(
    found: Iterable[tuple[FrameBatch, Any, Any]], backend: SmoothingBackend | None
) -> Iterator[tuple[FrameBatch, Any]]:
    """Batches with their masks made smooth, from batches with masks and what is kept; without `backend` with those
    that they had."""
    if backend is None:
        for batch, masks, _ in found:
            yield batch, masks
        return
    smoother = TemporalSmoother(backend)
    for batch, _, kept in found:
        yield from smoother.push(batch, kept)
    yield from smoother.flush()
