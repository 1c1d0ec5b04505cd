"""Decodes chunks of a file side by side on NVDEC's engines: several sessions on one file, frames in device memory.

PyAV reads the container, and `chunks.py` cuts the packets into chunks. Each of several threads feeds one chunk after
the other to an NVDEC session of its own. `chunk_queue.py` returns the batches in presentation order, and bounds the
memory that batches ahead of their turn take. So short chunks keep all engines busy, and long chunks as many as memory
allows.
"""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar, cast

from segmentation.frames import FORMATS, ON_GPU, Frame, FrameBatch, Memory, VideoInfo
from segmentation.gpu.context import Gpu, torch_dtype
from segmentation.gpu.plane_pool import DevicePlanes
from segmentation.media.bitstream.sei import MessageReader
from segmentation.media.source_packets import SourcePackets
from segmentation.options.config import Config
from segmentation.stages.decode import Decoder
from segmentation.stages.decode.chunk_progress import ChunkProgress, DecodedBatch
from segmentation.stages.decode.chunk_queue import ChunkQueue
from segmentation.stages.decode.chunks import Chunk, chunks, exact_keyframe, read, whole
from segmentation.stages.decode.constancy import PacketConstancy
from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool, PooledSession, SessionQuota
from segmentation.stages.decode.nvdec_support import nvdec_engines
from segmentation.stages.decode.pyav import PyAVDecoder
from segmentation.stages.decode.stream_format import StreamFormat
from segmentation.stages.decode.timestamps import Timeline, missing

if TYPE_CHECKING:
    from segmentation.media.video_packet import ChunkPacket

log = logging.getLogger(__name__)

LEAST_DECODERS = 2  # a single session leaves its engine idle between frames
LEAST_CHUNK = 24  # packets: below, restarting a decoder costs more than another engine brings
# Bytes of decoded frames that may wait for their turn, at most a quarter of the GPU's free memory. Seven decoders in
# step need as much on chunks of 250 frames of 1080p. With less, long chunks leave engines idle.
AHEAD = 2_500_000_000


class ChunkSession(PooledSession, Protocol):
    """An NVDEC session, as far as all kinds are alike."""

    path: str  # of the file that is being decoded, for errors


SessionT = TypeVar("SessionT", bound=ChunkSession)
ProgressT = TypeVar("ProgressT", bound=ChunkProgress)


class ChunkDecoder(Decoder, Generic[SessionT, ProgressT]):
    """See `segmentation.stages.decode`. The planes of a batch are (N, h, w), with N the batch size in every batch."""

    memory: ClassVar[Memory] = "cuda"

    def __init__(
        self, info: VideoInfo, pix_fmt: str, config: Config, gpu: Gpu, *, sessions: NvdecSessionPool | None = None
    ) -> None:
        self.info = info
        self.damaged = 0
        self._left_out = 0  # packets that were not decoded because they are damaged
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
        self._decoders = 1 if info.decoding_times else self._sessions_for(self._engines)
        batch_bytes = self._layout.frame_bytes(info.width, info.height) * self._batch_size
        most = min(AHEAD, gpu.free_bytes() // 4 // (self._pool.files + 1)) // batch_bytes
        self._queue: ChunkQueue[DecodedBatch] = ChunkQueue(most, self._batch_size, self._decoders)
        shapes = [(self._batch_size, *shape) for shape in self._layout.shapes(info.width, info.height)]
        self._planes = self._gpu.plane_pool(shapes, torch_dtype(self._layout), reader=gpu)
        self._share = SessionQuota(self._pool, self._decoders)

    @staticmethod
    def _sessions_for(engines: int) -> int:
        """Returns how many sessions keep so many engines at work."""
        return max(LEAST_DECODERS, engines)

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
        """Yields the batches, and counts damaged frames: NVDEC finds that there are some, FFmpeg how many."""
        yield from self._in_time()
        if self._found_damage():
            log.info("%s: NVDEC found damage; FFmpeg counts it", self.info.path)
            self._leave()  # other files may have the engines
            counting = PyAVDecoder(self.info, self._layout.name, self._config)
            for _ in counting:
                if self.info.access.stop.is_set():
                    break
            self.damaged = max(self.damaged, counting.damaged)

    @abstractmethod
    def _found_damage(self) -> bool:
        """Returns whether NVDEC has found damage in the frames so far, which it conceals."""

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
        packets = takewhile(lambda _: not self._queue.closed.is_set(), self._packets())
        cut: Iterator[Chunk[DecodedBatch]]
        if self.info.decoding_times:  # times don't tell which chunk a frame belongs to
            cut = whole(packets, self._queue.closed)
        else:
            cut = chunks(packets, exact_keyframe(self.info.codec), LEAST_CHUNK, self._queue.closed)
        for chunk in cut:
            if self._share.begin():
                self._begin(self._work)
            self._queue.open(chunk)
        self._queue.open(None)

    def _packets(self) -> Iterator[ChunkPacket]:
        """Yields the packets from the keyframe before the wanted stretch on."""
        first, constancy = self._timeline.first, PacketConstancy(self.info, self._differ)
        return read(self.info, first, self._reading_failed, self._packet_damaged, self._opened, constancy)

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
            session = cast("SessionT | None", self._pool.take(self._format)) or self._new_session()
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

    def _decode_chunks(self, session: SessionT, chunk: Chunk[DecodedBatch] | None) -> bool:
        """Decodes one chunk after the other, beginning with `chunk`, and leaves the session empty.

        Returns whether it has left the file's share, which has become smaller.

        The packets of a chunk that begins anew follow at once, and push out the frames of the chunk before that the
        session still holds. Emptying the session first would leave its engine idle.
        """
        before: ProgressT | None = None  # the chunk of which the session still holds frames
        surplus = False
        while chunk is not None or before is not None:
            if before is not None and (chunk is None or not self._follows(chunk, before)):
                self._empty(session, before)
                before = None
            if chunk is not None:
                before = self._decode(session, chunk, before)
            surplus = surplus or self._share.end_surplus()
            chunk = None if surplus else self._queue.next_chunk(wait=before is None)
        return surplus

    @abstractmethod
    def _new_session(self) -> SessionT:
        """Makes a session for `_format`."""

    @abstractmethod
    def _follows(self, chunk: Chunk[DecodedBatch], before: ProgressT) -> bool:
        """Returns whether a chunk's packets may follow those of another whose frames the session still holds."""

    @abstractmethod
    def _decode(self, session: SessionT, chunk: Chunk[DecodedBatch], before: ProgressT | None) -> ProgressT:
        """Feeds a chunk's packets to the session and takes the frames, first those of the chunk `before`."""

    @abstractmethod
    def _empty(self, session: SessionT, before: ProgressT) -> None:
        """Takes all frames that the session still holds, the last ones of a chunk."""
