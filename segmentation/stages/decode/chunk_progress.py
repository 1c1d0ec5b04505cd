"""A chunk while it is decoded, and the batches that come of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from segmentation.stages.decode.chunks import Chunk

if TYPE_CHECKING:  # these import libraries that machines without a GPU lack
    from segmentation.frames import Message
    from segmentation.gpu.cuda_calls import Event
    from segmentation.gpu.plane_pool import DevicePlanes


class Presentation(NamedTuple):
    """When the frame of a packet is shown."""

    pts: int | None
    duration: int
    hidden: bool  # decoded only because other frames refer to it, by an edit list
    messages: tuple[Message, ...] = ()  # see `Frame`


class FrameTimes(NamedTuple):
    """When a frame is shown, and what goes with it."""

    pts: int | None
    duration: int
    messages: tuple[Message, ...]


class DecodedBatch(NamedTuple):
    """Frames of a chunk, in order."""

    planes: DevicePlanes  # (N, h, w)
    times: list[FrameTimes]  # of the frames in their first rows
    lost: int  # frames that are missing before the last frame, and after those of earlier batches
    ready: Event  # the planes hold the frames once this CUDA event has passed


@dataclass(slots=True)
class ChunkProgress:
    """A chunk that is being decoded."""

    chunk: Chunk[DecodedBatch]
    times: dict[int, Presentation]  # of packets that the session got, and whose frames are to come
    counted: int = 0  # frames that are known to be lost

    def lost(self, pts: int | None) -> int:
        """Returns how many more frames are known to be lost than at the last call.

        The frame with this `pts` has come out, and all earlier ones should have; `None`: all frames of the chunk.
        """
        before = self.counted
        self.counted = sum(
            not times.hidden
            and self.chunk.shows(times.pts)
            and (pts is None or (times.pts is not None and times.pts < pts))
            for times in self.times.values()
        )
        return self.counted - before
