"""Decodes on NVDEC through PyNvVideoCodec, a packet a call. See `chunk_decoder.py`.

H.264, HEVC, VP8 and VP9 come out bit for bit as FFmpeg decodes them. MPEG-1, 2 and 4 leave the rounding of their
transform open, so samples may be a few levels off.
"""

from __future__ import annotations

from dataclasses import dataclass

import PyNvVideoCodec as nvc

from segmentation.frames import VideoInfo
from segmentation.gpu.context import Gpu
from segmentation.gpu.plane_pool import DevicePlanes
from segmentation.options.config import Config
from segmentation.stages.decode.chunk_decoder import ChunkDecoder
from segmentation.stages.decode.chunk_progress import ChunkProgress, DecodedBatch, FrameTimes
from segmentation.stages.decode.chunks import Chunk, begins_anew
from segmentation.stages.decode.nvdec_log import damage_log
from segmentation.stages.decode.nvdec_session import NvdecSession, Surface, TimesToCome
from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool
from segmentation.stages.decode.nvdec_support import nvdec_engines
from segmentation.stages.decode.surface_unpacker import SurfaceUnpacker


@dataclass(slots=True)
class _Filling(ChunkProgress):
    """A chunk, with the batch that is not full yet."""

    times: TimesToCome
    filling: tuple[DevicePlanes, list[FrameTimes]] | None = None
    latest: int | None = None  # the pts of the last frame that had one


class NvdecDecoder(ChunkDecoder[NvdecSession, _Filling]):
    """See `ChunkDecoder`."""

    def __init__(
        self, info: VideoInfo, pix_fmt: str, config: Config, gpu: Gpu, *, sessions: NvdecSessionPool | None = None
    ) -> None:
        self._damage_named = damage_log().count()  # before
        super().__init__(info, pix_fmt, config, gpu, sessions=sessions)
        self._unpack = SurfaceUnpacker(self._gpu, info, self._layout)

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        engines = nvdec_engines(config, info)
        return f"NVDEC, {engines} engines, PyNvVideoCodec {nvc.__version__}"

    def _found_damage(self) -> bool:
        return damage_log().count() > self._damage_named  # in this input, or in others at the same time

    def _new_session(self) -> NvdecSession:
        return NvdecSession(self._format, self._gpu)

    def _empty(self, session: NvdecSession, before: _Filling) -> None:
        """Takes all frames that the session still holds, the last ones of a chunk."""
        self._take(session.decode(nvc.PacketData()), before)  # an empty packet empties the session
        self._finish(before)

    def _follows(self, chunk: Chunk[DecodedBatch], before: _Filling) -> bool:
        """Returns whether timestamps separate a chunk's frames from those of another that the session still holds."""
        if not begins_anew(self.info.codec, chunk):
            return False
        first = chunk.first  # final, because all of the chunk's packets are there
        return first is not None and all(time < first for time in before.times)

    def _decode(self, session: NvdecSession, chunk: Chunk[DecodedBatch], before: _Filling | None) -> _Filling:
        """Feeds a chunk's packets to the session and takes the surfaces, first those of the chunk `before`."""
        current = _Filling(chunk, TimesToCome(self.info.codec, self._messages))
        for packet in chunk.packets():
            before = self._sort(session.decode(current.times.data(packet)), before, current)
        # A chunk may be too short to push out all frames of the one before.
        if before is not None and self._sort(session.decode(nvc.PacketData()), before, current) is not None:
            self._finish(before)
        return current

    def _sort(self, surfaces: list[Surface], before: _Filling | None, current: _Filling) -> _Filling | None:
        """Takes surfaces, first those of the chunk before. Returns that chunk while more of its frames are to come."""
        if before is not None:
            own = next((i for i, surface in enumerate(surfaces) if surface.timestamp not in before.times), None)
            self._take(surfaces[:own], before)
            if own is None and before.times:
                return before
            self._finish(before)
            surfaces = [] if own is None else surfaces[own:]
        self._take(surfaces, current)
        return None

    def _take(self, surfaces: list[Surface], current: _Filling) -> None:
        """Copies the surfaces that are to be shown into batches.

        The session overwrites surfaces. So their copies are queued on its stream before it gets the next packet.
        """
        chunk = current.chunk
        if self._queue.closed.is_set():
            return
        for surface in surfaces:
            pts, duration, hidden, messages = current.times.taken(surface.timestamp)
            if hidden or not chunk.shows(pts):
                continue
            current.latest = latest = current.latest if pts is None else pts
            if latest is not None and not chunk.joined and not self._timeline.begun(latest):
                chunk.passed = latest
                continue
            if current.filling is None:
                self._queue.admit(chunk)
                current.filling = (self._planes.take(), [])
            planes, times = current.filling
            self._unpack(surface, planes, len(times))
            times.append(FrameTimes(pts, duration, messages))
            if len(times) == self._batch_size:
                self._queue.put(chunk, self._filled(current, planes, times))

    def _finish(self, current: _Filling) -> None:
        """Puts out the last batch, when no more frames of the chunk come."""
        last = None if current.filling is None else self._filled(current, *current.filling)
        self._queue.finish(current.chunk, last, current.lost(None))

    def _filled(self, current: _Filling, planes: DevicePlanes, times: list[FrameTimes]) -> DecodedBatch:
        """Returns the batch that was being filled."""
        current.filling = None
        last = times[-1].pts  # a frame without a time does not tell which frames should have come earlier
        return DecodedBatch(planes, times, 0 if last is None else current.lost(last), self._gpu.record_event())
