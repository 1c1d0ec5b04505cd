"""Messages to and from `tracker_worker`. Arrays lie in memory that both processes map; a message has their places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from segmentation.frames.instances import FrameInstances, Instance
from segmentation.system.shared_memory import PlaneLocation
from segmentation.tracking.box_tracker import BoxTracking
from segmentation.tracking.mask_tracker import MaskTracking


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerRequest:
    """The next masks of a run."""

    run: int
    settings: MaskTracking
    masks: PlaneLocation  # float32
    class_map: PlaneLocation | None  # uint8
    samples: PlaneLocation | None  # uint8
    label_maps: PlaneLocation  # uint8, to be written
    times: tuple[float, ...]
    following: int  # the first id that nothing in the run has


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxRequest:
    """The next frames of a run, with the things that a network has found."""

    run: int
    settings: BoxTracking
    found: tuple[FrameInstances, ...]
    times: tuple[float, ...]
    shots: tuple[int, ...]
    following: int  # as in `TrackerRequest`


class Forget(NamedTuple):
    """The run is over. There is no reply."""

    run: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The result of a request. The label maps of masks lie in the memory."""

    instances: tuple[tuple[Instance, ...], ...]  # of each frame
    unknown: tuple[bool, ...]  # likewise
    following: int  # the first id that is left
