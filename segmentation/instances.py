"""Instances: the single things that a frame shows, each with its place, its label and, once tracked, its id."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST = 255  # instances of a frame, the values that a label map has for them

Box = tuple[float, float, float, float]  # left, top, right, bottom: shares of the upright picture, 0..1


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One thing in one frame."""

    label: str  # one of the network's
    score: float  # 0..1
    box: Box
    id: int = 0  # of its track, from 1, never given twice in a run; 0 for one that is not tracked
    kept: bool = True  # whether it is one of those whom `--keep` and `--pick` keep; all are without these options
    within: int = 0  # number of that instance in the frame, from 1, also without an id; 0 for none
    parent: int = 0  # id of the instance within which another network has found this one; 0 for none


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameInstances:
    """The instances of one frame, and which of them each pixel of the mask belongs to."""

    instances: tuple[Instance, ...]  # at most `MOST`
    label_map: NDArray[np.uint8]  # (h, w), upright, as large as the frame's mask: 0 for none, n for `instances[n - 1]`
    unknown: bool = False  # whether the network gave no mask in which instances could be found
