"""Sinks: whatever takes the batches of a run when they are done."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from segmentation.frames import FrameBatch
from segmentation.frames.instances import Box, FrameInstances

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.stream import VideoStream

UNREAD = np.empty((0, 0, 0), np.float32)
UNSAVED = np.empty((0, 0, 0), np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedBatch:
    """A batch behind the encoders. Arrays are on the host, without rows where no sink of the run reads them."""

    frames: FrameBatch  # without pictures
    found: NDArray[np.bool_] | None = None  # (N,) whether the mask exceeds the threshold; `None` of repeated frames
    unknown: NDArray[np.bool_] | None = None  # (N,) whether the network gave no mask, likewise
    masks: NDArray[np.float32] = field(default_factory=lambda: UNREAD)  # (N, h, w) refined
    shown: tuple[NDArray[np.float32], ...] = ()  # (N, h, w) as each output shows them
    levels: NDArray[np.uint8] = field(default_factory=lambda: UNSAVED)  # (N, h, w) as they are saved
    class_map: NDArray[np.uint8] | None = None  # (N, h, w), `None` where no sink reads it or there is none
    instances: tuple[FrameInstances, ...] = ()  # N, none where no sink reads them
    shots: tuple[int, ...] | None = None  # N, see `MaskedBatch`
    bare: tuple[tuple[Box, ...], ...] | None = None  # N, likewise
    thumbnails: NDArray[np.float32] = field(default_factory=lambda: UNREAD)  # (N, h, w), see `pipeline.thumbnails`
    packets: list[list[Packet[VideoStream]]] = field(default_factory=list)  # of each video output, in their order


class Sink(ABC):
    """A file or a check that is made of all batches of a run, in order. Its methods run on one thread."""

    @abstractmethod
    def write(self, batch: FinishedBatch) -> None:
        """Takes the next batch. Raises `OutputError`."""

    @abstractmethod
    def finish(self, end: Fraction | None, *, fragment: bool = False) -> None:
        """Completes the file after the last batch. A `fragment` never replaces a complete file. Raises `OutputError`.

        `end` is where the wanted stretch ends, in seconds on the source's clock, `None` for the end of the source.
        """
