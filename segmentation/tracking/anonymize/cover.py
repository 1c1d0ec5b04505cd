"""Covers what `--anonymize` names, in frames in which the network has missed it too.

A box is found or not from one frame to the next: by blur, by a turned head, by a hand before the face. So the boxes of
one track are linked in both directions: gaps are filled, and a track is covered before its first and behind its last
box, but never across a cut. A track that was never found with `COVERED` or more may be nothing: of that only short
gaps are filled. A batch waits for the frames that this takes. That of a live source waits for `--max-delay`
at most, so a face may be seen before its first box where that is short.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames import Array, MaskedBatch, Memory, Transfer, VideoInfo
from segmentation.frames.instances import MOST, Box, FrameInstances, Instance, Window
from segmentation.options.anonymize import LIVE_LOOK_AHEAD, LOOK_AHEAD
from segmentation.tracking.motion import box_iou
from segmentation.tracking.tracker import COVERED, SURE

if TYPE_CHECKING:  # both import libraries that machines without a GPU lack
    from segmentation.gpu.context import Gpu
    from segmentation.tracking.anonymize.cuda_cover import CudaEllipses

_CLOSE = 0.5  # seconds from one box to the next but one, between which a box is expected on the way
BEYOND = 0.2  # seconds for which a track is covered before its first and behind its last box
_ROUNDED = 1e-3  # seconds: containers round times
MARGIN = 1.42  # of an ellipse's axes to the box's sides: it holds the corners from the root of 2 on
_UNSEEN_MARGIN = 1.8  # the same where the box is not found but supposed
_GROWTH = 0.012  # of a mask's height, by which masks of people grow on all sides
_AROUND = 2  # frames before and after whose masks a frame's mask holds too
_SAME = 0.2  # IoU of the boxes of a thing in two frames, of which the first has no id yet
_UNTRACKED = -1  # ids from there down are of boxes without a track

_HALF = 0.5  # pixels by which an ellipse is larger on all sides, so that it holds what it touches

# Center, and what the distance from it is multiplied by, which is 1 on the ellipse: across and down each, in pixels.
_Ellipse: TypeAlias = tuple[float, float, float, float]


class _Cover(NamedTuple):
    """A thing in a frame, and what is covered for it."""

    one: Instance
    box: Box
    margin: float  # of the ellipse's axes to the box's sides


@dataclass(slots=True)
class _Track:
    """The boxes of one thing, in the order of their times."""

    shot: int
    times: list[float] = field(default_factory=list)
    seen: list[Instance] = field(default_factory=list)
    best: float = 0.0  # score

    def add(self, time: float, one: Instance) -> None:
        """Adds the next box."""
        self.times.append(time)
        self.seen.append(one)
        self.best = max(self.best, one.score)

    def at(self, time: float) -> _Cover | None:
        """Returns the thing at a time; `None` where it is not supposed to be."""
        if time - self.times[-1] >= BEYOND + _ROUNDED or self.times[0] - time >= BEYOND + _ROUNDED:
            return None
        number = bisect_left(self.times, time)
        after = number if number < len(self.times) else None
        if after is not None and self.times[after] == time:
            return _Cover(self.seen[after], self._steady(after), MARGIN)
        before = number - 1 if number else None
        longest = LOOK_AHEAD if self.best >= COVERED else BEYOND + _ROUNDED
        if before is not None and after is not None and self.times[after] - self.times[before] <= longest:
            return _supposed(self.seen[before], self._between(before, after, time))
        if self.best < (COVERED if len(self.seen) > 1 else SURE):
            return None  # most of these are nothing
        near = [one for one in (before, after) if one is not None and abs(self.times[one] - time) < BEYOND + _ROUNDED]
        return _supposed(self.seen[near[0]], self.seen[near[0]].box) if near else None

    def _steady(self, number: int) -> Box:
        """Returns a box that holds a found one, and where its neighbors in time say that it is.

        Of faces that are half hidden or small, single boxes jump, and leave a part of the face. So a doubtful one holds
        all those of its track that are near.
        """
        boxes, before, after = [self.seen[number].box], number - 1, number + 1
        if before >= 0 and after < len(self.times) and self.times[after] - self.times[before] <= _CLOSE + _ROUNDED:
            boxes.append(self._between(before, after, self.times[number]))
        if self.seen[number].score < SURE:
            first = bisect_left(self.times, self.times[number] - BEYOND - _ROUNDED)
            last = bisect_left(self.times, self.times[number] + BEYOND + _ROUNDED)
            boxes += [one.box for one in self.seen[first:last]]
        left, top, right, bottom = zip(*boxes, strict=True)
        return min(left), min(top), max(right), max(bottom)

    def _between(self, before: int, after: int, time: float) -> Box:
        """Returns the box at a time on the way from one to another."""
        share = (time - self.times[before]) / (self.times[after] - self.times[before])
        one, other = self.seen[before].box, self.seen[after].box
        left, top, right, bottom = (a + share * (b - a) for a, b in zip(one, other, strict=True))
        return left, top, right, bottom


class CoverBoxes:
    """A step between tracking and composite: masks that hold all that the tracks show."""

    def __init__(
        self,
        info: VideoInfo,
        transfer: Transfer,
        covers: Callable[[Instance, float], bool] = lambda one, time: True,
        ahead: float = LOOK_AHEAD,
        gpu: Gpu | None = None,
    ) -> None:
        """`covers` says of a thing and a time, in seconds from the video's beginning, whether it is to be covered.

        A frame waits for those of `ahead` seconds. Batches may lie on `gpu`.
        """
        self._info, self._transfer, self._covers, self._gpu = info, transfer, covers, gpu
        self._there: CudaEllipses | None = None  # draws on the GPU, if the first batch lies there
        self._ahead = ahead
        self._most = 0 if info.live is None else LIVE_LOOK_AHEAD
        self._tracks: dict[int, _Track] = {}
        self._alone = count(_UNTRACKED, -1)
        self._loose: dict[int, _Track] = {}  # of boxes without an id in the last frame, by their keys

    def __call__(self, batches: Iterator[MaskedBatch]) -> Iterator[MaskedBatch]:
        self._transfer.enter()
        waiting: deque[tuple[MaskedBatch, list[float]]] = deque()
        for batch in batches:
            times = self._times(batch)
            self._note(batch, times)
            waiting.append((batch, times))
            while waiting and (times[-1] - waiting[0][1][-1] >= self._ahead or self._are_many(waiting)):
                yield self._covered(*waiting.popleft())
        for batch, times in waiting:
            yield self._covered(batch, times)

    def _are_many(self, waiting: Sequence[tuple[MaskedBatch, list[float]]]) -> bool:
        """Returns whether more frames wait than a live source hands out meanwhile."""
        return 0 < self._most < sum(len(times) for _, times in waiting)

    def _times(self, batch: MaskedBatch) -> list[float]:
        return [float(frame.pts * self._info.time_base) for frame in batch.frames.frames]

    def _note(self, batch: MaskedBatch, times: list[float]) -> None:
        """Adds a batch's boxes to the tracks."""
        if batch.frames.repeated:
            return
        for time, frame, shot in zip(times, batch.instances, _shots(batch), strict=True):
            loose: dict[int, _Track] = {}
            for one in frame.instances:
                key = one.id or next(self._alone)
                track = self._tracks.get(key) or self._begun(one, shot)
                self._tracks[key] = track
                track.add(time, one)
                if not one.id:
                    loose[key] = track
            self._loose = loose

    def _begun(self, one: Instance, shot: int) -> _Track:
        """Returns the track for a new thing. One with an id may have been there without one in the frame before."""
        earlier = {key: iou(track.seen[-1].box, one.box) for key, track in self._loose.items() if track.shot == shot}
        best = max(earlier, key=lambda key: earlier[key], default=None)
        if not one.id or best is None or earlier[best] < _SAME:
            return _Track(shot)
        self._tracks.pop(best, None)  # a frame that comes late may have ended it
        track = self._loose.pop(best)
        track.seen = [replace(track.seen[-1], id=one.id)]
        return track

    def _covered(self, batch: MaskedBatch, times: list[float]) -> MaskedBatch:
        """Returns a batch with masks and instances of all that is there or is supposed to be."""
        if batch.frames.repeated:
            return batch
        start = float(self._info.start)
        places = [
            [
                place
                if self._covers(one, time - start) == one.kept
                else place._replace(one=replace(one, kept=not one.kept))
                for track in self._tracks.values()
                if track.shot == shot and (place := track.at(time))
                for one in [place.one]
            ]
            for time, shot in zip(times, _shots(batch), strict=True)
        ]
        old = times[-1] - LOOK_AHEAD
        self._tracks = {key: track for key, track in self._tracks.items() if track.times[-1] >= old}
        if self._there is None and self._gpu is not None and not isinstance(batch.masks, np.ndarray):
            from segmentation.tracking.anonymize.cuda_cover import CudaEllipses  # needs PyTorch

            self._there = CudaEllipses(self._gpu)
        return _drawn(batch, places, self._transfer, self._there)


class CoverMasks:
    """A step before the composite: masks that hold those of the frames around too, and some pixels on all sides."""

    def __init__(self, info: VideoInfo, transfer: Transfer) -> None:
        self._transfer, self._wait = transfer, info.live is None

    def __call__(self, batches: Iterator[MaskedBatch]) -> Iterator[MaskedBatch]:
        self._transfer.enter()
        waiting: deque[MaskedBatch] = deque()
        earlier: list[Array] = []
        for batch in batches:
            waiting.append(batch)
            while waiting and (not self._wait or sum(map(len, waiting)) - len(waiting[0]) >= _AROUND):
                grown, earlier = self._first_of(waiting, earlier)
                yield grown
        while waiting:
            grown, earlier = self._first_of(waiting, earlier)
            yield grown

    def _first_of(self, waiting: deque[MaskedBatch], earlier: list[Array]) -> tuple[MaskedBatch, list[Array]]:
        """Takes the first batch out. Returns it with its grown masks, and its last masks for the next one."""
        batch = waiting.popleft()
        later = list(islice(chain.from_iterable(map(_alone, waiting)), _AROUND))
        grown = around(earlier, batch.masks[: len(batch)], later, self._transfer)
        return replace(batch, masks=grown), [*earlier, *_alone(batch)][-_AROUND:]


def _alone(batch: MaskedBatch) -> list[Array]:
    """Returns each mask of a batch as one of (1, h, w)."""
    return [batch.masks[row : row + 1] for row in range(len(batch))]


def around(earlier: Sequence[Array], masks: Array, later: Sequence[Array], transfer: Transfer) -> Array:
    """Returns masks (N, h, w) that hold those of up to `_AROUND` frames before and after, grown on all sides."""
    first, count = len(earlier), len(masks)
    reach = max(1, round(_GROWTH * masks.shape[1]))
    kernel = np.asarray(cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * reach + 1, 2 * reach + 1)), np.uint8)
    rows = range(first, first + count)
    if not isinstance(masks, np.ndarray):
        from segmentation.tracking.anonymize import cuda_cover  # needs PyTorch

        with transfer.on_stream():
            return cuda_cover.around([*earlier, masks, *later], rows, _AROUND, kernel)
    line = np.concatenate([*earlier, masks, *later])
    highest = [line[max(0, row - _AROUND) : row + _AROUND + 1].max(axis=0) for row in rows]
    grown = np.stack([cv2.dilate(one, kernel) for one in highest]).astype(np.float32)
    grown[np.isnan(masks).any(axis=(1, 2))] = np.nan  # a comparison may lose it
    return grown


def cover_alone(batch: MaskedBatch, transfer: Transfer) -> MaskedBatch:
    """Returns the batch of a picture with masks that cover what was found in it, without frames around."""
    if not batch.instances:
        return replace(batch, masks=around([], batch.masks[: len(batch)], [], transfer))
    places = [[_Cover(one, one.box, MARGIN) for one in frame.instances] for frame in batch.instances]
    return _drawn(batch, places, transfer)


def _drawn(
    batch: MaskedBatch, places: Iterable[list[_Cover]], transfer: Transfer, there: CudaEllipses | None = None
) -> MaskedBatch:
    """Returns the batch with an ellipse for each thing of each frame, in label maps, and of those kept in masks.

    Where the network gave no numbers, the mask has none either. `there` draws on a GPU.
    """
    size: tuple[int, int] = tuple(batch.masks.shape[1:])
    maps, covers, unknown = [], [], []
    for row, (things, found) in enumerate(zip(places, batch.instances, strict=True)):
        shown = sorted(things, key=lambda thing: not thing.one.kept)[:MOST]  # what is covered lies above what is left
        instances = tuple(place.one for place in shown)
        ellipses = [_ellipse(place.box, place.margin, size) for place in shown]
        maps.append(FrameInstances(instances=instances, first_map=_EllipseMap(size, ellipses), unknown=found.unknown))
        covers.append([ellipse for one, ellipse in zip(instances, ellipses, strict=True) if one.kept])
        if found.unknown:
            unknown.append(row)
    masks = _as_masks(covers, unknown, batch.masks, transfer, there)
    return replace(batch, masks=masks, instances=tuple(maps))


def _as_masks(
    covers: Sequence[Sequence[_Ellipse]],
    unknown: Sequence[int],
    like: Array,
    transfer: Transfer,
    there: CudaEllipses | None,
) -> Array:
    """Returns masks of 0, and 1 in the ellipses of each, where those of the network are; `unknown` rows are NaN."""
    size: tuple[int, int] = tuple(like.shape[1:])
    masks: Array
    if there is not None:
        table = np.full((len(covers), max(1, *map(len, covers)), 4), np.nan, np.float32)
        for row, ellipses in enumerate(covers):
            for number, ellipse in enumerate(ellipses):
                table[row, number] = ellipse
        masks = there(transfer.rows(table, "cuda", len(covers)), size)
    else:
        drawn = np.zeros((len(covers), *size), np.float32)
        for picture, ellipses in zip(drawn, covers, strict=True):
            for ellipse in ellipses:
                _draw(picture, ellipse, 1)
        masks = in_memory(drawn, like, transfer)
    with transfer.on_stream():
        for row in unknown:
            masks[row] = np.nan
    return masks


class _EllipseMap:
    """A `Drawing` of ellipses, of which the first lies above the others."""

    def __init__(self, shape: tuple[int, int], ellipses: Sequence[_Ellipse]) -> None:
        self.shape, self._ellipses = shape, ellipses

    def __getitem__(self, window: Window) -> NDArray[np.uint8]:
        numbers = np.zeros(self.shape, np.uint8)
        for number in range(len(self._ellipses), 0, -1):
            _draw(numbers, self._ellipses[number - 1], number)
        return numbers[window]


def _ellipse(box: Box, margin: float, size: tuple[int, int]) -> _Ellipse:
    """Returns the ellipse around a box in a picture (h, w) = `size`. Its axes are `margin` times the box's sides."""
    height, width = size
    left, top, right, bottom = box[0] * width, box[1] * height, box[2] * width, box[3] * height
    across, down = (max(1.0, margin * side) / 2 + _HALF for side in (right - left, bottom - top))
    return (left + right) / 2 - 0.5, (top + bottom) / 2 - 0.5, 1 / across, 1 / down


def inside(ellipse: _Ellipse, window: Window) -> NDArray[np.bool_]:
    """Returns which pixels of a window of the picture have their centers in an ellipse. Sums are in FP32."""
    x, y, across, down = np.array(ellipse, np.float32)
    rows, columns = (np.arange(part.start, part.stop, dtype=np.float32) for part in window)
    return np.asarray((((columns - x) * across) ** 2)[None] + (((rows - y) * down) ** 2)[:, None] <= 1)


def _draw(target: NDArray[np.uint8] | NDArray[np.float32], ellipse: _Ellipse, value: int) -> None:
    """Draws an ellipse in a picture (h, w)."""
    x, y, across, down = ellipse
    edges = ((y - 1 / down, y + 1 / down), (x - 1 / across, x + 1 / across))
    sides = zip(edges, target.shape, strict=True)
    first, last = zip(*((max(0, int(low)), min(side, int(high) + 2)) for (low, high), side in sides), strict=True)
    window = slice(first[0], max(first[0], last[0])), slice(first[1], max(first[1], last[1]))
    target[window][inside(ellipse, window)] = value


def iou(one: Box, other: Box) -> float:
    """Returns the share of the union of two boxes that both cover."""
    return float(box_iou(np.array(one), np.array(other)))


def _shots(batch: MaskedBatch) -> tuple[int, ...]:
    return batch.shots or (0,) * len(batch)


def _supposed(known: Instance, box: Box) -> _Cover:
    return _Cover(replace(known, box=box, score=0.0), box, _UNSEEN_MARGIN)


def in_memory(masks: NDArray[np.generic], like: Array, transfer: Transfer) -> Array:
    """Returns masks where those of the network are."""
    memory: Memory = "host" if isinstance(like, np.ndarray) else "cuda"
    return transfer.rows(masks, memory, len(masks))
