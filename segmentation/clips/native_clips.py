"""Makes the frames of clips by the native library: a call decodes a clip, and queues its kernels.

Pictures that no clip shows stay where NVDEC has decoded them. To get one out takes the GPU from the training meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from segmentation.clips.clip_builder import REMEDY
from segmentation.clips.clip_samples import ClipSampleCache
from segmentation.clips.decode import filtered_packets, opened
from segmentation.clips.index import VideoIndex
from segmentation.clips.open_videos import OpenVideos
from segmentation.errors import InputError
from segmentation.gpu.context import Gpu
from segmentation.stages.decode.chunks import is_hidden
from segmentation.stages.decode.native import library as native
from segmentation.stages.decode.native.session import NativeSession, Packets
from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool
from segmentation.stages.decode.stream_format import StreamFormat


class SampledClip(Protocol):
    """A clip whose frames the library makes."""

    def samplers(self) -> Sequence[native.Sampler]:
        """Returns one for each output. The clip keeps alive what they refer to."""


class NativeClips:
    """Decodes on sessions that it keeps for the videos to come. Any thread may call."""

    def __init__(self, gpu: Gpu, videos: OpenVideos) -> None:
        """Frames are made in the order of the work on the stream of `gpu`.

        `videos` are lent where FFmpeg reads the packets.
        """
        self._gpu, self._videos, self._sessions = gpu, videos, NvdecSessionPool()
        self._samples = ClipSampleCache(native.library())

    def make(self, index: VideoIndex, wanting: Mapping[int, Sequence[SampledClip]]) -> bool:
        """Makes the pictures of these numbers into the next frames of their clips.

        Returns whether NVDEC has found damage on the way, which it conceals. Raises `InputError` if a picture does not
        come out, or a packet is damaged.
        """
        numbers = sorted(wanting)
        packets, pts = self._samples.read(index, numbers) or self._demuxed(index, numbers)
        coding = index.coding
        wanted = StreamFormat(
            self._gpu.index, coding.codec, *index.stored, coding.pix_fmt, coding.extradata, latency="calls"
        )
        kept = cast("NativeSession | None", self._sessions.take(wanted))
        session = kept or NativeSession(wanted, self._gpu, remedy=REMEDY)
        session.path = index.path
        try:
            damaged = _decoded(session, index, packets, _FrameList(index, wanting, pts))
        except BaseException:
            session.close()  # it may hold frames of this clip, which would come out as frames of the next
            raise
        self._sessions.give_back(session)
        return damaged

    def _demuxed(self, index: VideoIndex, numbers: Sequence[int]) -> tuple[Packets, Sequence[int | None]]:
        """Returns packets that FFmpeg has read, and their pts; `None` of those whose pictures are never shown."""
        codec = index.coding.codec
        wanted = set(index.pts[list(numbers)].tolist())
        with opened(index, numbers[0], self._videos.lent) as (stream, packets):
            taken = list(filtered_packets(index, numbers, stream, packets))
        pts = [None if is_hidden(codec, packet) else packet.pts for packet in taken]
        packed = Packets.of(
            taken,
            [packet.pts if packet.pts is not None else packet.dts or 0 for packet in taken],
            [-1 if is_hidden(codec, packet) else serial for serial, packet in enumerate(taken)],
            [time in wanted for time in pts],
        )
        return packed, pts


class _FrameList:
    """The frames that are made of the pictures of a video: `clips` for the library."""

    def __init__(
        self,
        index: VideoIndex,
        wanting: Mapping[int, Sequence[SampledClip]],
        pts: Sequence[int | None] | NDArray[np.int64],
    ) -> None:
        """`pts` of the packets, by their serials."""
        self._numbers = sorted(wanting)
        serials = {int(time): serial for serial, time in enumerate(pts) if time is not None}
        self._serials = [serials.get(int(time), -1) for time in index.pts[self._numbers]]
        samplers: list[native.Sampler] = []
        begun: dict[int, tuple[range, list[int]]] = {}  # by clip: its samplers, and the serials of its frames
        for number, serial in zip(self._numbers, self._serials, strict=True):
            for clip in wanting[number]:
                if id(clip) not in begun:
                    samplers += (own := clip.samplers())
                    begun[id(clip)] = range(len(samplers) - len(own), len(samplers)), []
                begun[id(clip)][1].append(serial)
        rows = sorted(
            (serial, sampler, place)
            for own, of_clip in begun.values()
            for place, serial in enumerate(of_clip)
            for sampler in own
        )
        frames = (native.ClipFrame * len(rows))(*starmap(native.ClipFrame, rows))
        self.clips = native.Clips((native.Sampler * len(samplers))(*samplers), frames, len(rows))

    def missing(self, shown: set[int]) -> int | None:
        """Returns the first of the numbers whose picture is not among the packets `shown`."""
        pairs = zip(self._numbers, self._serials, strict=True)
        return next((number for number, serial in pairs if serial not in shown), None)


def _decoded(session: NativeSession, index: VideoIndex, packets: Packets, frames: _FrameList) -> bool:
    """Decodes packets, and makes the frames. Returns and raises as `NativeClips.make` does."""
    at, flushed, damaged = 0, False, False
    shown: set[int] = set()
    while not flushed:
        result = session.sample(packets, at, frames.clips)
        at, flushed = at + result.consumed, bool(result.flushed)
        pictures = session.pictures[: result.produced]
        shown.update(picture.serial for picture in pictures)
        damaged = damaged or result.damaged > 0 or any(picture.damaged for picture in pictures)
    session.forget(0)
    if (number := frames.missing(shown - {-1})) is not None:
        raise InputError(f"{index.path}: frame {number} can't be decoded")
    return damaged
