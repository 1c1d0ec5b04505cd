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
from typing import TYPE_CHECKING, TypeAlias, TypeVar

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


class Shots:
    """A step before tracking that gives each frame the number of its shot. Frames wait for `NEAR` - 1 later ones."""

    def __init__(self, info: VideoInfo, pix_fmt: str, transfer: Transfer, gpu: Gpu | None) -> None:
        self._info, self._pix_fmt, self._transfer, self._gpu = info, pix_fmt, transfer, gpu
        self._sampler: Sampler | None = None
        self._shot = 0

    def __call__(self, batches: Iterator[MaskedBatch]) -> Iterator[MaskedBatch]:
        self._transfer.enter()
        waiting: deque[tuple[MaskedBatch, list[Luma]]] = deque()
        before: list[Luma] = []
        for batch, levels, ready in _one_behind(map(self._sampled, batches)):
            if ready is not None:
                ready.synchronize()
            waiting.append((batch, [_luma(level) for level in levels]))
            while sum(len(lumas) for _, lumas in waiting) - len(waiting[0][1]) >= NEAR - 1:
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

    def _first_of(
        self, waiting: deque[tuple[MaskedBatch, list[Luma]]], before: list[Luma]
    ) -> tuple[MaskedBatch, list[Luma]]:
        """Takes the first batch out. Returns it with its shots, and its last lumas for the next one."""
        batch, lumas = waiting.popleft()
        line = [*before, *lumas, *(luma for _, later in waiting for luma in later)]
        shots = []
        for place in range(len(before), len(before) + len(lumas)):
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


def _luma(level: Luma) -> Luma:
    size = (_SAMPLES[1] // _BLOCK, _SAMPLES[0] // _BLOCK)
    return np.asarray(cv2.resize(level, size, interpolation=cv2.INTER_AREA), np.uint8)


def is_cut(before: Sequence[Luma], behind: Sequence[Luma]) -> bool:
    """Returns whether a new shot begins between these successive lumas, of which there are up to `NEAR` a side."""
    across = 1.0
    for one, other in product(reversed(before), behind):
        across = min(across, _change(one, other))
        if across <= CUT:  # as between most neighbours, so that the others need not be compared
            return False
    return bool(before) and across > _STEADY * max(
        (_change(*pair) for side in (before, behind) for pair in pairwise(side)), default=0.0
    )


def _change(one: Luma, other: Luma) -> float:
    """Returns the mean difference in 0..1."""
    return cv2.norm(one, other, cv2.NORM_L1) / (255 * one.size)
