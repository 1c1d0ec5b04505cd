"""Chooses which instances are kept: `--keep`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from segmentation.frames.instances import FrameInstances, Instance
from segmentation.options.instances import Keep
from segmentation.options.then import is_called

_LEAD = {"largest": 1.3, "nearest": 1.05}  # how many times as much another must have to be chosen in place of the last
_PATIENCE = 1.0  # seconds that the last one may be out of sight before another is chosen


class Keeper:
    """Marks the kept instances of a run, frame by frame."""

    def __init__(self, keep: Keep) -> None:
        self._ids = keep.ids
        self._criterion = keep.criterion
        self._chosen = 0  # id, by the criterion
        self._seen = 0.0  # when the chosen one was last seen

    def mark(self, frame: FrameInstances, time: float) -> FrameInstances:
        """Returns the frame with its kept instances marked. Those found within an instance go with it."""
        if self._criterion:
            self._choose(_measures(frame, self._criterion), time)
        ids = {self._chosen} if self._criterion else self._ids
        kept = {one.id for one in frame.instances if one.id in ids or one.parent in ids} - {0}
        return replace(frame, instances=tuple(replace(one, kept=_belongs(one, kept)) for one in frame.instances))

    def _choose(self, measures: Mapping[int, float], time: float) -> None:
        if self._criterion == "first":
            self._chosen = self._chosen or min(measures, default=0)
        elif self._chosen in measures:
            self._seen = time
            best = max(measures, key=lambda id: measures[id])
            if measures[best] > _LEAD[self._criterion] * measures[self._chosen]:
                self._chosen = best
        elif measures and (not self._chosen or time - self._seen > _PATIENCE):
            self._chosen, self._seen = max(measures, key=lambda id: measures[id]), time


def _belongs(one: Instance, kept: set[int]) -> bool:
    return bool(one.id in kept or one.parent in kept)


def _measures(frame: FrameInstances, criterion: str) -> dict[int, float]:
    """Returns how large each tracked instance is, or how near; those found within others are left out.

    The lower the lower edge of its box, the nearer something stands. Of two that the picture cuts, the larger is near.
    """
    areas = np.bincount(frame.label_map.ravel(), minlength=len(frame.instances) + 1) / frame.label_map.size
    return {
        one.id: float(areas[number]) if criterion == "largest" else one.box[3] + float(areas[number]) * 1e-3
        for number, one in enumerate(frame.instances, 1)
        if one.id and not one.parent
    }


def selection(frame: FrameInstances, label: str, *, keeping: bool) -> NDArray[np.bool_]:
    """Returns the pixels (h, w) that an effect leaves as they are, or with a `label` those that it changes.

    Without a label these are the kept instances. With a label these are its instances, but for those that are kept if
    the run is `keeping` some.
    """
    chosen = [
        is_called(one.label, label) and not (keeping and one.kept) if label else one.kept for one in frame.instances
    ]
    for number, one in enumerate(frame.instances):
        if label and one.within and not (keeping and one.kept):  # what was found within another took pixels from it
            chosen[number] = chosen[number] or chosen[one.within - 1]
    return np.array([False, *chosen])[frame.label_map]


def within(frame: FrameInstances, label: str, *, keeping: bool) -> NDArray[np.bool_]:
    """Returns the pixels (h, w) of those instances of `selection` that another network has found within others."""
    chosen = [
        bool(one.within) and is_called(one.label, label) and not (keeping and one.kept) for one in frame.instances
    ]
    return np.array([False, *chosen])[frame.label_map]
