"""Where an encoder of segments begins each segment."""

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cuts:
    """The beginnings of segments: at certain times, or after a number of frames."""

    frames: int  # of a segment
    times: tuple[int, ...] | None = None  # pts, rising, at which segments begin instead


class Cutter:
    """Says of one frame after the other whether a segment begins with that frame."""

    def __init__(self, cuts: Cuts) -> None:
        self._cuts = cuts
        self._count = 0  # frames so far
        self._segment: int | None = None  # of the last frame, by its time

    def begins(self, pts: int) -> bool:
        """Takes the next frame in presentation order."""
        if self._cuts.times is None:
            self._count += 1
            return (self._count - 1) % self._cuts.frames == 0
        segment, before = bisect_right(self._cuts.times, pts), self._segment
        self._segment = segment
        return segment != before

    @property
    def full(self) -> bool:
        """Returns whether the next frame is sure to begin a segment. Times show that only when the frame is there."""
        return self._cuts.times is None and self._count % self._cuts.frames == 0
