"""Numbers the shots of a video, so that nothing is linked across a cut.

A cut wrongly found would leave a face uncovered where its track is torn, so a flash or a fast pan is none: the pictures
of `NEAR` frames before all differ from those of `NEAR` frames behind, and by more than those of either side differ from
frame to frame.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames import MaskedBatch, Transfer, VideoInfo
from segmentation.frames.event import Event
from segmentation.stages.masks.smoothing import CUT
from segmentation.tracking.color_samples import Sampler, make_sampler

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu

T = TypeVar("T")

NEAR = 3  # frames on either side of a cut that are compared
_STEADY = 1.5  # times as much as between frames of one shot must change at a cut
_SAMPLES = (144, 256)  # height, width of the pictures that are taken from a frame
_BLOCK = 4  # side of the squares of samples that are averaged: what moves a little changes nothing

Luma: TypeAlias = NDArray[np.uint8]  # (h, w), or (N, h, w) of several


class _Sampled(NamedTuple):
    """A batch with its frames as small pictures."""

    batch: MaskedBatch
    lumas: list[Luma]
    changes: list[float]  # from each one's picture before, in 0..1; the very first one has none


class Shots:
    """A step before tracking that gives each frame the number of its shot. Frames wait for `NEAR` - 1 later ones."""

    def __init__(self, info: VideoInfo, pix_fmt: str, transfer: Transfer, gpu: Gpu | None) -> None:
        self._info, self._pix_fmt, self._transfer, self._gpu = info, pix_fmt, transfer, gpu
        self._sampler: Sampler | None = None
        self._shot = 0

    def __call__(self, batches: Iterator[MaskedBatch]) -> Iterator[MaskedBatch]:
        self._transfer.enter()
        waiting: deque[_Sampled] = deque()
        before: list[Luma] = []
        last: Luma | None = None
        for batch, levels, ready in _one_behind(map(self._sampled, batches)):
            if ready is not None:
                ready.synchronize()
            lumas = _lumas(levels)
            waiting.append(_Sampled(batch, list(lumas), _changes(lumas if last is None else np.vstack([last, lumas]))))
            last = lumas[-1:]
            while sum(len(one.lumas) for one in waiting) - len(waiting[0].lumas) >= NEAR - 1:
                numbered, before = self._first_of(waiting, before)
                yield numbered
        while waiting:
            numbered, before = self._first_of(waiting, before)
            yield numbered

    def _sampled(self, batch: MaskedBatch) -> tuple[MaskedBatch, Luma, Event | None]:
        """Returns a batch with samples of its frames (N, h, w), which are there once the event has passed."""
        if self._sampler is None:
            self._sampler = make_sampler(batch.frames, self._info, self._pix_fmt, self._gpu)
        levels = self._transfer.rows(self._sampler(batch.frames, _SAMPLES)[0], "host", len(batch), wait=False)
        return batch, np.asarray(levels), None if self._gpu is None else self._gpu.record_event()

    def _first_of(self, waiting: deque[_Sampled], before: list[Luma]) -> tuple[MaskedBatch, list[Luma]]:
        """Takes the first batch out. Returns it with its shots, and its last lumas for the next one."""
        batch, lumas, changes = waiting.popleft()
        line = [*before, *lumas, *(luma for later in waiting for luma in later.lumas)]
        shots = []
        for place, change in enumerate([0.0] * (len(lumas) - len(changes)) + changes, len(before)):
            if change > CUT:  # as between few neighbors, so that the others need not be compared
                self._shot += is_cut(line[max(0, place - NEAR) : place], line[place : place + NEAR])
            shots.append(self._shot)
        return replace(batch, shots=tuple(shots)), [*before, *lumas][-NEAR:]


def _one_behind(items: Iterable[T]) -> Iterator[T]:
    """Yields each item once the next one is made: of a batch all is read while the GPU has work from the next."""
    held: list[T] = []
    for item in items:
        yield from held
        held = [item]
    yield from held


def _lumas(levels: Luma) -> Luma:
    """Returns pictures (N, h, w) in a quarter of their size. All at once: each call of OpenCV gives the GIL up."""
    count, height, width = levels.shape
    size = (width // _BLOCK, count * height // _BLOCK)
    small = cv2.resize(np.ascontiguousarray(levels).reshape(-1, width), size, interpolation=cv2.INTER_AREA)
    return np.asarray(small, np.uint8).reshape(count, height // _BLOCK, width // _BLOCK)


def _changes(lumas: Luma) -> list[float]:
    """Returns the mean difference of each picture (N, h, w) to the one before, in 0..1."""
    rows = lumas.reshape(len(lumas), -1)
    changed: list[float] = (cv2.absdiff(rows[1:], rows[:-1]).mean(axis=1) / 255).tolist() if len(rows) > 1 else []
    return changed


def is_cut(before: Sequence[Luma], behind: Sequence[Luma]) -> bool:
    """Returns whether a new shot begins between these successive lumas, of which there are up to `NEAR` a side."""
    across = 1.0
    for one, other in product(reversed(before), behind):
        across = min(across, _change(one, other))
        if across <= CUT:
            return False
    return bool(before) and across > _STEADY * max(
        (_change(*pair) for side in (before, behind) for pair in pairwise(side)), default=0.0
    )


def _change(one: Luma, other: Luma) -> float:
    """Returns the mean difference in 0..1."""
    return cv2.norm(one, other, cv2.NORM_L1) / (255 * one.size)
