"""Between inference and postprocess: masks that don't flicker, and don't lag.

A network that sees one frame at a time changes its mind from frame to frame. A running average of past masks calms
that, but drags its edges behind whatever moves. Here a mask is averaged with those of `REACH` frames before and after
it, and only where the picture has not changed between them; where the network is in doubt over a whole area, more
change is let pass.

Whatever is computed is elementwise, a mean over a box, bilinear, or a mean over all, so that it comes out the same with
other libraries: `down` is the mean of blocks, `blurred` that of a square around each place (the border repeated), `up`
bilinear between the centres of the blocks.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames import FrameBatch
from segmentation.model import Model

REACH = 2  # frames before and after; as many are waited for
BLOCK = 4  # places of a mask, a side, over which change and doubt are averaged
CHANGE = 0.03  # of luma (0..1): a neighbour that differs so much counts nothing where the network is sure
DOUBT = 12.0  # how much more change is let pass where the network is in doubt, at 1 (all 0.5) 13 times as much
CHANGE_BOX, DOUBT_BOX = 3, 9  # blocks a side; the second is wider than an outline, so that it finds areas, not edges
CUT = 0.1  # mean change of the whole picture, above which the neighbour belongs to another scene
_LUMA = (0.2126, 0.7152, 0.0722)  # of R, G and B: BT.709

Map = NDArray[np.float32]


def steady(masks: Sequence[Map], lumas: Sequence[Map], strength: float) -> Map:
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
    limit = CHANGE * (1 + DOUBT * (1 - 2 * sure))
    total, weights = mask.copy(), np.ones_like(mask)
    for k in range(len(masks)):
        if k == middle:
            continue
        change = _down(np.abs(lumas[k] - luma), BLOCK // 2)
        if change.mean() > CUT:
            continue
        weight = _up(strength * np.maximum(1 - _blurred(change, CHANGE_BOX) / limit, 0))[:height, :width]
        weights += weight
        total += weight * masks[k]
    total /= weights
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
    back = -1 if model.channel_order == "bgr" else 1
    scale = [np.float32(share * deviation) for share, deviation in zip(_LUMA, model.std, strict=True)][::back]
    lumas = scale[0] * tensor[:, 0] + scale[1] * tensor[:, 1] + scale[2] * tensor[:, 2]
    size = (-(-shape[1] // 2), -(-shape[0] // 2))
    return np.stack([cv2.resize(luma.astype(np.float32), size, interpolation=cv2.INTER_AREA) for luma in lumas])


class Steadier:
    """Holds batches back until the masks of the next `REACH` frames are there; puts out every one, in order.

    Before the first frame comes the first again, and after the last the last.
    """

    def __init__(self, strength: float) -> None:
        self._strength = strength
        self._waiting: deque[FrameBatch] = deque()
        self._known: deque[tuple[Map, Map]] = deque()  # mask and luma, of the frames from number `_first` on
        self._first = 0
        self._next = 0  # number of the first frame that is still to be put out

    def push(self, batch: FrameBatch, masks: Map, lumas: Map) -> list[tuple[FrameBatch, Map]]:
        """Takes the next batch with its masks and small lumas; returns those that need wait no longer."""
        self._waiting.append(batch)
        self._known.extend(zip(masks, lumas, strict=True))
        return self._ready(REACH)

    def flush(self) -> list[tuple[FrameBatch, Map]]:
        """After the last batch: what is left."""
        return self._ready(0)

    def _ready(self, ahead: int) -> list[tuple[FrameBatch, Map]]:
        ready = []
        while self._waiting and self._next + len(self._waiting[0]) + ahead <= self._first + len(self._known):
            batch = self._waiting.popleft()
            ready.append((batch, np.stack([self._steadied(self._next + i) for i in range(len(batch))])))
            self._next += len(batch)
            while self._first < self._next - REACH:
                self._known.popleft()
                self._first += 1
        return ready

    def _steadied(self, number: int) -> Map:
        last = len(self._known) - 1
        at = (number - self._first + k for k in range(-REACH, REACH + 1))
        masks, lumas = zip(*(self._known[min(max(i, 0), last)] for i in at), strict=True)
        return steady(masks, lumas, self._strength)


def steadied(found: Iterable[tuple[FrameBatch, Any, Any]], strength: float) -> Iterator[tuple[FrameBatch, Any]]:
    """Batches with their masks made steady, from batches with masks and lumas; at strength 0 with those they had."""
    steadier = Steadier(strength)
    for batch, masks, lumas in found:
        if strength:
            yield from steadier.push(batch, masks, lumas)
        else:
            yield batch, masks
    yield from steadier.flush()
