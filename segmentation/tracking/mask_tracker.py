"""Follows the instances in the semantic masks of one run, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from segmentation.frames.instances import FrameInstances
from segmentation.tracking.color_histograms import Samples, color_bins
from segmentation.tracking.components import components
from segmentation.tracking.tracker import Tracker


@dataclass(slots=True)
class Ids:
    """The ids that nothing in a run has yet, in their order."""

    following: int = 1

    def __iter__(self) -> Ids:
        return self

    def __next__(self) -> int:
        self.following += 1
        return self.following - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskTracking:
    """How the instances in a run's masks are found and followed."""

    classes: tuple[str, ...]
    threshold: float  # of the mask
    moving: bool  # whether things are expected where their motion takes them


class MaskTracker:
    """Finds the connected components of masks, and gives them ids."""

    def __init__(self, settings: MaskTracking, ids: Ids) -> None:
        """`ids` are taken from as instances appear."""
        self._settings = settings
        self._tracker = Tracker(moving=settings.moving, split=True, ids=ids)

    def __call__(
        self,
        masks: NDArray[np.float32],
        class_map: NDArray[np.uint8] | None,
        samples: Samples | None,
        times: Sequence[float],
    ) -> tuple[FrameInstances, ...]:
        """Returns the instances of the next frames, in their order.

        `masks` (N, h, w) in 0..1, `class_map` (N, h, w) index into the classes, `samples` (3, N, h, w)
        of its colors, `times` N, in seconds. Without a class map all is of one class, whose name is all their names.
        """
        settings, count = self._settings, len(times)
        names = settings.classes if class_map is not None else (", ".join(settings.classes),)
        found = []
        for row in range(count):
            classes = None if class_map is None else class_map[row]
            seen = components(masks[row], classes, names, settings.threshold)
            colors = None if samples is None else color_bins(samples[:, row])
            followed = self._tracker.update(seen, times[row], colors)
            found.append(replace(followed, unknown=seen.unknown))
        return tuple(found)
