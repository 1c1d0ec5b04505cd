"""Follows the instances that a network has found in the frames of one run, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat

from segmentation.frames.instances import FrameInstances
from segmentation.tracking.color_histograms import Colors
from segmentation.tracking.mask_tracker import Ids
from segmentation.tracking.tracker import Tracker


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxTracking:
    """How instances are followed, see `Tracker`."""

    moving: bool
    covering: bool


class BoxTracker:
    """Gives the instances of frames their ids."""

    def __init__(self, settings: BoxTracking, ids: Ids) -> None:
        """`ids` are taken from as instances appear."""
        self._tracker = Tracker(moving=settings.moving, split=False, ids=ids, covering=settings.covering)

    def __call__(
        self,
        found: Sequence[FrameInstances],
        times: Sequence[float],
        shots: Sequence[int],
        colors: Iterable[Colors | None] = repeat(None),
    ) -> tuple[FrameInstances, ...]:
        """Returns the next frames with ids. `times` are in seconds, `shots` their numbers, `colors` of each frame."""
        return tuple(map(self._tracker.update, found, times, colors, shots))
