"""Rules that all decoders share about when frames are shown."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from segmentation.frames import FrameBatch, VideoInfo
from segmentation.media.opening.probe import too_long
from segmentation.options.config import Config
from segmentation.options.times import exact

if TYPE_CHECKING:
    from segmentation.media.source_packets import SourcePackets


class Timeline:
    """Gives frames, in presentation order, strictly rising pts, and finds those in the wanted stretch.

    `first` and `end` are pts in `info.time_base`. Frames that begin at `first` or later and before `end` are wanted.
    """

    def __init__(self, info: VideoInfo, config: Config) -> None:
        self._info = info
        self.first = self._ticks(exact(config.start)) if config.start else None
        self.end = None if config.duration is None else self._ticks(exact(config.start) + exact(config.duration))
        self._step = max(1, round(1 / info.rate / info.time_base))
        self._last: int | None = None  # of the frames as they are placed
        self._latest: int | None = None  # of the frames' own pts

    def place(self, pts: int | None) -> int:
        """Returns the next frame's pts: its own if that rises, else the last one plus a nominal frame's length.

        After damage decoders put out old frames between new ones. The new ones, which find their times taken, come half
        a frame after the last one until their own times are free again: sound and picture stay together.
        """
        placed = self._ticks(Fraction(0)) if pts is None else pts
        if self._last is not None and (pts is None or pts <= self._last):
            catches_up = pts is not None and self._latest is not None and pts > self._latest
            placed = self._last + (max(1, self._step // 2) if catches_up else self._step)
        self._last = placed
        if pts is not None and (self._latest is None or pts > self._latest):
            self._latest = pts
        return placed

    def passed(self, pts: int | None) -> None:
        """Takes the pts of the last frame before the wanted stretch, where frames are left out without being placed."""
        if pts is not None and (self._last is None or pts > self._last):
            self._last = self._latest = pts

    def over(self, pts: int) -> bool:
        """Returns whether the wanted stretch ends before `pts`."""
        return self.end is not None and pts >= self.end

    def begun(self, pts: int) -> bool:
        """Returns whether the wanted stretch has begun at `pts`."""
        return self.first is None or pts >= self.first

    def _ticks(self, seconds: Fraction) -> int:
        """Returns the first pts at or after this many seconds from the container's start."""
        return -int(-(self._info.start + seconds) / self._info.time_base // 1)


class Reorder:
    """Gives frames their times where the container stores times in decoding order only, as AVI does.

    The k-th frame that is shown has the k-th smallest time.
    """

    def __init__(self) -> None:
        self._times: list[int] = []

    def feed(self, pts: int | None) -> None:
        """Takes the time of the next packet in decoding order."""
        if pts is not None:
            heapq.heappush(self._times, pts)

    def next(self) -> int | None:
        """Returns the time of the next frame in presentation order."""
        return heapq.heappop(self._times) if self._times else None


def length(info: VideoInfo, stated: int | None, *, fields: bool) -> int:
    """Returns how many ticks a frame is shown, 0 if that is unknown. `fields`: it consists of two.

    FFmpeg states the length of one field where each has a packet of its own.
    """
    if fields and stated:
        nominal = 1 / info.rate / info.time_base
        if abs(2 * stated - nominal) <= 2:  # ticks: both are rounded
            return round(nominal)
    return stated or 0


def within_limit(info: VideoInfo, batches: Iterable[FrameBatch]) -> Iterator[FrameBatch]:
    """Yields the batches. Raises `InputError` at a frame beyond the longest input that is allowed."""
    most = info.access.max_duration
    for batch in batches:
        if most is not None and batch.frames and batch.frames[-1].pts * info.time_base >= info.start + most:
            raise too_long(info.path, most)
        yield batch


def expected(info: VideoInfo, config: Config) -> int:
    """Returns how many frames will come, by the container and the options; 0 if neither says."""
    wanted = None if config.duration is None else round(config.duration * info.rate)
    there = max(0, info.frames - round(config.start * info.rate))
    return min((n for n in (there, config.max_frames, wanted) if n), default=0)


def missing(info: VideoInfo, frames: int, end: Fraction, source: SourcePackets | None, *, whole: bool) -> int:
    """Returns how many frames are missing among `frames` decoded ones, by the container's index or its length.

    `end` is the time in seconds at which the last decoded frame ends. `whole`: the file was read from its beginning.
    Where the clock of the `source` has stepped, the container's length is one by another clock.
    """
    lost = info.frames - frames if whole and info.frames_exact else 0
    stepped = source is not None and source.stepped
    if not stepped and info.end is not None and (info.end - end) * info.rate > Fraction(3, 2):
        lost = max(lost, round((info.end - end) * info.rate))
    return max(0, lost)
