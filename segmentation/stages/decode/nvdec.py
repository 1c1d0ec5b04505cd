"""Decodes on NVDEC, through PyNvVideoCodec: several engines on one file, frames in device memory.

H.264, HEVC, VP8 and VP9 come out bit for bit as FFmpeg decodes them. MPEG-1, 2 and 4 leave the rounding of their
transform open, so samples may be a few levels off.

PyAV reads the container, and `chunks.py` cuts the packets into chunks. Each of several threads feeds one chunk after
the other to an NVDEC session of its own. `chunk_queue.py` returns the batches in presentation order, and bounds the
memory that batches ahead of their turn take. So short chunks keep all engines busy, and long chunks as many as memory
allows.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import ClassVar, NamedTuple

import PyNvVideoCodec as nvc

from segmentation.frames import FORMATS, ON_GPU, Frame, FrameBatch, Memory, Message, VideoInfo
from segmentation.gpu.context import Gpu, torch_dtype
from segmentation.gpu.cuda_calls import Event
from segmentation.gpu.plane_pool import DevicePlanes
from segmentation.media.bitstream.sei import MessageReader
from segmentation.media.source_packets import SourcePackets
from segmentation.options.config import Config
from segmentation.stages.decode import Decoder
from segmentation.stages.decode.chunk_queue import ChunkQueue
from segmentation.stages.decode.chunks import (
    Chunk,
    begins_anew,
    chunks,
    exact_keyframe,
    read,
    whole,
)
from segmentation.stages.decode.constancy import PacketConstancy
from segmentation.stages.decode.nvdec_log import damage_log
from segmentation.stages.decode.nvdec_session import NvdecSession, Surface, TimesToCome
from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool, SessionQuota
from segmentation.stages.decode.nvdec_support import nvdec_engines
from segmentation.stages.decode.pyav import PyAVDecoder
from segmentation.stages.decode.stream_format import StreamFormat
from segmentation.stages.decode.surface_unpacker import SurfaceUnpacker
from segmentation.stages.decode.timestamps import Timeline, missing

log = logging.getLogger(__name__)

LEAST_DECODERS = 2  # a single session leaves its engine idle between frames
LEAST_CHUNK = 24  # packets: below, restarting a decoder costs more than another engine brings
# Bytes of decoded frames that may wait for their turn, at most a quarter of the GPU's free memory. Seven decoders in
# step need as much on chunks of 250 frames of 1080p. With less, long chunks leave engines idle.
AHEAD = 2_500_000_000


class _FrameTimes(NamedTuple):
    pts: int | None
    duration: int
    messages: tuple[Message, ...]


class _DecodedBatch(NamedTuple):
    planes: DevicePlanes  # (N, h, w)
    times: list[_FrameTimes]  # of the frames in their first rows
    lost: int  # frames that are missing before the last frame, and after those of earlier batches
    ready: Event  # the planes hold the frames once this CUDA event has passed


class NvdecDecoder(Decoder):
    """See `segmentation.stages.decode`. The planes of a batch are (N, h, w), with N the batch size in every batch."""

    memory: ClassVar[Memory] = "cuda"

    def __init__(
        self, info: VideoInfo, pix_fmt: str, config: Config, gpu: Gpu, *, sessions: NvdecSessionPool | None = None
    ) -> None:
        self.info = info
        self.damaged = 0
        self._left_out = 0  # packets that were not decoded because they are damaged
        self._damage_named = damage_log().count()  # before
        self._config = config
        self._stages = gpu
        self._layout = FORMATS[pix_fmt]
        self._engines = nvdec_engines(config, info)
        self._batch_size = config.batch_size or 1
        self._limit = config.max_frames
        self._timeline = Timeline(info, config)
        self._messages = MessageReader(info)
        self._threads: list[threading.Thread] = []
        self._pool = sessions or NvdecSessionPool()
        self._own_pool = sessions is None
        self._gpu = self._pool.gpu(gpu)
        self._format = StreamFormat(gpu.index, info.codec, info.width, info.height, info.pix_fmt, info.extradata)
        self._decoders = 1 if info.decoding_times else max(LEAST_DECODERS, self._engines)
        batch_bytes = self._layout.frame_bytes(info.width, info.height) * self._batch_size
        most = min(AHEAD, gpu.free_bytes() // 4 // (self._pool.files + 1)) // batch_bytes
        self._queue: ChunkQueue[_DecodedBatch] = ChunkQueue(most, self._batch_size, self._decoders)
        self._unpack = SurfaceUnpacker(self._gpu, info, self._layout)
        shapes = [(self._batch_size, *shape) for shape in self._layout.shapes(info.width, info.height)]
        self._planes = self._gpu.plane_pool(shapes, torch_dtype(self._layout), reader=gpu)
        self._share = SessionQuota(self._pool, self._decoders)

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        engines = nvdec_engines(config, info)
        return f"NVDEC, {engines} engines, PyNvVideoCodec {nvc.__version__}"

    def __iter__(self) -> Iterator[FrameBatch]:
        self._begin(self._read)
        try:
            yield from self._counted()
        except BaseException:
            self.close()
            raise
        self._leave()  # without joining: the stages need not wait until all sessions are destroyed

    def _leave(self) -> None:
        """Lets all threads end."""
        self._queue.close()
        self._share.leave()

    def close(self) -> None:
        """Ends all threads. Sessions that belong to no pool of several files are destroyed."""
        self._leave()
        for thread in self._threads:  # the first one reads, and may still begin another
            thread.join()
        self._threads = []
        if self._own_pool:
            self._pool.close()

    def _counted(self) -> Iterator[FrameBatch]:
        """Yields the batches, and counts damaged frames: NVDEC's library shows that there are some, FFmpeg how many."""
        yield from self._in_time()
        if damage_log().count() > self._damage_named:  # in this input, or in others at the same time
            log.info("%s: NVDEC found damage; FFmpeg counts it", self.info.path)
            self._leave()  # other files may have the engines
            counting = PyAVDecoder(self.info, self._layout.name, self._config)
            for _ in counting:
                if self.info.access.stop.is_set():
                    break
            self.damaged = max(self.damaged, counting.damaged)

    def _in_time(self) -> Iterator[FrameBatch]:
        """Yields the batches in order, their frames' pts settled, cut to the wanted stretch."""
        count = number = 0
        end = 0  # ticks
        self._stages.enter()
        for planes, times, lost, ready in self._queue:
            self._stages.wait_event(ready)
            self.damaged += lost
            self._timeline.passed(self._queue.passed)
            placed: list[Frame] = []
            early = 0  # frames before the wanted stretch, of joined chunks
            for stored, duration, messages in times:
                pts = self._timeline.place(stored)
                end = max(end, pts + duration)
                if not self._timeline.begun(pts):
                    early += 1
                    continue
                if self._timeline.over(pts) or count + len(placed) == self._limit:
                    break
                placed.append(Frame(planes=ON_GPU, pts=pts, duration=duration, messages=messages))
            if placed:
                if early:
                    self._move_up(planes, early, len(placed))
                yield FrameBatch(frames=tuple(placed), index=count, number=number, planes=planes)
                count += len(placed)
                number += 1
            if early + len(placed) < len(times) or count == self._limit:
                self.damaged += self._queue.lost + self._left_out
                return
        whole = self._timeline.first is None
        short = missing(self.info, count, end * self.info.time_base, self.source, whole=whole)
        self.damaged = max(self.damaged + self._queue.lost + self._left_out, short)

    def _move_up(self, planes: DevicePlanes, early: int, count: int) -> None:
        """Copies the `count` rows after the first `early` ones to the beginning."""
        for row in range(count):
            for plane in planes:
                self._stages.copy(plane[row], plane[row + early])

    def _begin(self, work: Callable[[], None]) -> None:
        """Runs `work` in a thread of its own."""
        thread = threading.Thread(target=self._guard, args=(work,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _guard(self, work: Callable[[], None]) -> None:
        """Runs a thread's work. Its error is raised where the batches are taken."""
        try:
            self._gpu.enter()
            work()
        except BaseException as exc:
            self._queue.fail(exc)

    def _read(self) -> None:
        """Reads packets and opens chunks, with as many threads to decode them as the file's share allows."""
        constancy = PacketConstancy(self.info, self._differ)
        first = self._timeline.first
        there = read(self.info, first, self._reading_failed, self._packet_damaged, self._opened, constancy)
        packets = takewhile(lambda _: not self._queue.closed.is_set(), there)
        cut: Iterator[Chunk[_DecodedBatch]]
        if self.info.decoding_times:  # times don't tell which chunk a frame belongs to
            cut = whole(packets, self._queue.closed)
        else:
            cut = chunks(packets, exact_keyframe(self.info.codec), LEAST_CHUNK, self._queue.closed)
        for chunk in cut:
            if self._share.begin():
                self._begin(self._work)
            self._queue.open(chunk)
        self._queue.open(None)

    def _differ(self, text: str) -> None:
        log.warning(text)
        self.cut_short = True

    def _reading_failed(self) -> None:
        self.cut_short = True

    def _opened(self, source: SourcePackets) -> None:
        self.source = source

    def _packet_damaged(self) -> None:
        self._left_out += 1

    def _work(self) -> None:
        """Decodes chunks with one session, until there are no more or the file's share has become smaller."""
        surplus = False
        try:
            chunk = self._queue.next_chunk()
            if chunk is None:
                return
            session = self._pool.take(self._format) or NvdecSession(self._format, self._gpu)
            session.path = self.info.path
            try:
                surplus = self._decode_chunks(session, chunk)
            except BaseException:
                session.close()  # it may hold frames of this file, which would come out as frames of the next
                raise
            self._pool.give_back(session)
        finally:
            if not surplus:
                self._share.end()

    def _decode_chunks(self, session: NvdecSession, chunk: Chunk[_DecodedBatch] | None) -> bool:
        """Decodes one chunk after the other, beginning with `chunk`, and leaves the session empty.

        Returns whether it has left the file's share, which has become smaller.

        The packets of a chunk that begins anew follow at once, and push out the frames of the chunk before that the
        session still holds. Emptying the session first would leave its engine idle.
        """
        before: _ChunkInProgress | None = None  # the chunk of which the session still holds frames
        surplus = False
        while chunk is not None or before is not None:
            if before is not None and (chunk is None or not self._follows(chunk, before)):
                self._take(session.decode(nvc.PacketData()), before)  # an empty packet empties the session
                self._finish(before)
                before = None
            if chunk is not None:
                before = self._decode(session, chunk, before)
            surplus = surplus or self._share.end_surplus()
            chunk = None if surplus else self._queue.next_chunk(wait=before is None)
        return surplus

    def _follows(self, chunk: Chunk[_DecodedBatch], before: _ChunkInProgress) -> bool:
        """Returns whether timestamps separate a chunk's frames from those of another that the session still holds."""
        if not begins_anew(self.info.codec, chunk):
            return False
        first = chunk.first  # final, because all of the chunk's packets are there
        return first is not None and all(time < first for time in before.times)

    def _decode(
        self, session: NvdecSession, chunk: Chunk[_DecodedBatch], before: _ChunkInProgress | None
    ) -> _ChunkInProgress:
        """Feeds a chunk's packets to the session and takes the surfaces, first those of the chunk `before`."""
        current = _ChunkInProgress(chunk, TimesToCome(self.info.codec, self._messages))
        for packet in chunk.packets():
            before = self._sort(session.decode(current.times.data(packet)), before, current)
        # A chunk may be too short to push out all frames of the one before.
        if before is not None and self._sort(session.decode(nvc.PacketData()), before, current) is not None:
            self._finish(before)
        return current

    def _sort(
        self, surfaces: list[Surface], before: _ChunkInProgress | None, current: _ChunkInProgress
    ) -> _ChunkInProgress | None:
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

    def _take(self, surfaces: list[Surface], current: _ChunkInProgress) -> None:
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
            times.append(_FrameTimes(pts, duration, messages))
            if len(times) == self._batch_size:
                self._queue.put(chunk, self._filled(current))

    def _finish(self, current: _ChunkInProgress) -> None:
        """Puts out the last batch, when no more frames of the chunk come."""
        last = self._filled(current) if current.filling is not None else None
        self._queue.finish(current.chunk, last, current.lost(None))

    def _filled(self, current: _ChunkInProgress) -> _DecodedBatch:
        """Returns the batch that was being filled."""
        assert current.filling is not None
        (planes, times), current.filling = current.filling, None
        last = times[-1].pts  # a frame without a time does not tell which frames should have come earlier
        return _DecodedBatch(planes, times, 0 if last is None else current.lost(last), self._gpu.record_event())


@dataclass(slots=True)
class _ChunkInProgress:
    """A chunk that is being decoded."""

    chunk: Chunk[_DecodedBatch]
    times: TimesToCome
    filling: tuple[DevicePlanes, list[_FrameTimes]] | None = None  # the batch that is not full yet
    latest: int | None = None  # the pts of the last frame that had one
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
