"""Decodes the pictures of clips by the native library: a call for a clip, or for some of its pictures.

Pictures that no clip shows stay where NVDEC has decoded them. To get one out takes the GPU from the training meanwhile.
"""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from segmentation.clips.clip_builder import REMEDY
from segmentation.clips.clip_samples import ClipSampleCache
from segmentation.clips.decode import filtered_packets, opened
from segmentation.clips.index import VideoIndex
from segmentation.clips.open_videos import OpenVideos
from segmentation.errors import InputError
from segmentation.frames import FORMATS
from segmentation.gpu.context import Gpu, torch_dtype
from segmentation.gpu.plane_pool import DevicePlanes
from segmentation.stages.decode.chunks import is_hidden
from segmentation.stages.decode.native import library as native
from segmentation.stages.decode.native.session import MOST_AT_ONCE, NativeSession, Packets
from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool
from segmentation.stages.decode.stream_format import StreamFormat
from segmentation.stages.frame_kernels import FRAMES

if TYPE_CHECKING:
    pass

_AT_ONCE = 8  # pictures of a set of planes
_MOST_KINDS = 4  # layouts and sizes, whose free planes take memory
_UNEXPECTED = 8  # pictures that may come beside those that are wanted, in damaged streams


class ClipPicture(NamedTuple):
    """A decoded picture in device memory, until the next one is asked for. Lengths are in samples."""

    y: int  # addresses of the first samples
    u: int
    v: int
    pitch: int  # from row to row
    chroma_pitch: int
    step: int  # from one sample of chroma to the next in its row
    shift: int  # by which samples are to be shifted down


class NativePictures:
    """Decodes on sessions that it keeps for the videos to come. Any thread may call."""

    def __init__(self, gpu: Gpu, videos: OpenVideos) -> None:
        """Pictures are there, and may be overwritten, in the order of the work on the stream of `gpu`.

        `videos` are lent where FFmpeg reads the packets.
        """
        self._gpu, self._videos, self._sessions = gpu, videos, NvdecSessionPool()
        self._samples = ClipSampleCache(native.library())
        self._kinds: dict[tuple[str, tuple[int, int]], _PictureKind] = {}

    def __call__(self, index: VideoIndex, numbers: Sequence[int]) -> Generator[tuple[int, ClipPicture], None, bool]:
        """Yields the pictures of these rising `numbers`, each with its number.

        Returns whether NVDEC has found damage on the way, which it conceals. Raises `InputError` if a picture does not
        come out, or a packet is damaged.
        """
        packets, pts = self._samples.read(index, numbers) or self._demuxed(index, numbers)
        coding = index.coding
        wanted = StreamFormat(
            self._gpu.index, coding.codec, *index.stored, coding.pix_fmt, coding.extradata, latency="calls"
        )
        kept = cast("NativeSession | None", self._sessions.take(wanted))
        session = kept or NativeSession(wanted, self._gpu, remedy=REMEDY)
        session.path = index.path
        try:
            damaged = yield from self._decoded(session, index, numbers, packets, pts)
        except BaseException:
            session.close()  # it may hold frames of this clip, which would come out as frames of the next
            raise
        self._sessions.give_back(session)
        return damaged

    def _demuxed(self, index: VideoIndex, numbers: Sequence[int]) -> tuple[Packets, Sequence[int | None]]:
        """Returns packets that FFmpeg has read, and their pts."""
        codec = index.coding.codec
        wanted = set(index.pts[list(numbers)].tolist())
        with opened(index, numbers[0], self._videos.lent) as (stream, packets):
            taken = list(filtered_packets(index, numbers, stream, packets))
        hidden = [is_hidden(codec, packet) for packet in taken]
        packed = Packets.of(
            taken,
            [packet.pts if packet.pts is not None else packet.dts or 0 for packet in taken],
            [-1 if not_shown else serial for serial, not_shown in enumerate(hidden)],
            [packet.pts in wanted and not not_shown for packet, not_shown in zip(taken, hidden, strict=True)],
        )
        return packed, [packet.pts for packet in taken]

    def _decoded(
        self,
        session: NativeSession,
        index: VideoIndex,
        numbers: Sequence[int],
        packets: Packets,
        pts: Sequence[int | None] | NDArray[np.int64],
    ) -> Generator[tuple[int, ClipPicture], None, bool]:
        kind = self._kind(index)
        planes = _ClipPlanes(kind)
        left = iter(numbers)
        number = next(left, None)
        at, flushed, damaged = 0, False, False
        while not flushed:
            planes.aim(session, min(len(numbers) + _UNEXPECTED, _AT_ONCE - 1 + MOST_AT_ONCE))
            result = session.decode(packets, at, kind.unpack, flush=True)
            at, flushed = at + result.consumed, bool(result.flushed)
            shown = [(picture.serial, bool(picture.damaged)) for picture in session.pictures[: result.produced]]
            damaged = damaged or result.damaged > 0 or any(one for _, one in shown)
            for place, (serial, _) in enumerate(shown):
                if number is not None and serial >= 0 and pts[serial] == index.pts[number]:
                    yield number, planes.picture(place)
                    number = next(left, None)
        session.forget(0)
        if number is not None:
            raise InputError(f"{index.path}: frame {number} can't be decoded")
        return damaged

    def _kind(self, index: VideoIndex) -> _PictureKind:
        """Returns what pictures like those of a video share; that of the last few kinds is kept."""
        key = (index.coding.pix_fmt, index.stored)
        found = self._kinds.pop(key, None) or _PictureKind(self._gpu, *key)
        self._kinds[key] = found  # behind those that were wanted before
        if len(self._kinds) > _MOST_KINDS:
            self._kinds.pop(next(iter(self._kinds)), None)
        return found


class _PictureKind:
    """The parts that pictures of one layout and size share: planes of `pool`, and the kernel `unpack` for them."""

    def __init__(self, gpu: Gpu, pix_fmt: str, size: tuple[int, int]) -> None:
        layout = FORMATS[pix_fmt.replace("yuvj", "yuv")]
        self.shapes, self.bytes = layout.shapes(*size), 1 if layout.bits == 8 else 2
        self.pool = gpu.plane_pool([(_AT_ONCE, *shape) for shape in self.shapes], torch_dtype(layout))
        self.unpack = gpu.kernels(FRAMES, layout).handle("unpack")


class _ClipPlanes:
    """Planes for the pictures of a call."""

    def __init__(self, kind: _PictureKind) -> None:
        self._kind = kind
        self._sets: list[DevicePlanes] = []

    def aim(self, session: NativeSession, most: int) -> None:
        """Lets the session's next pictures go to the planes, from the first place on. There are `most` at most."""
        while len(self._sets) * _AT_ONCE < most:
            self._sets.append(self._kind.pool.take())
        session.group, target = 0, session.targets[0]
        for number, planes in enumerate(self._sets):
            for i, plane in enumerate(planes):
                target.planes[number][i] = plane.data_ptr()
        target.sets, target.capacity, target.filled = len(self._sets), _AT_ONCE, 0

    def picture(self, place: int) -> ClipPicture:
        """Returns the picture at a place."""
        planes, row, shapes = self._sets[place // _AT_ONCE], place % _AT_ONCE, self._kind.shapes
        y, u, v = (
            plane.data_ptr() + self._kind.bytes * row * height * width
            for plane, (height, width) in zip(planes, shapes, strict=True)
        )
        return ClipPicture(y, u, v, shapes[0][1], shapes[1][1], 1, 0)
