"""Decodes on NVDEC by the native library: a call decodes a batch, and gives up the GIL once. See `chunk_decoder.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from segmentation.frames import VideoInfo
from segmentation.gpu.context import Gpu
from segmentation.gpu.plane_pool import DevicePlanes
from segmentation.media.video_packet import ChunkPacket
from segmentation.options.config import Config
from segmentation.stages.decode.chunk_decoder import LEAST_DECODERS, ChunkDecoder
from segmentation.stages.decode.chunk_progress import ChunkProgress, DecodedBatch, FrameTimes, Presentation
from segmentation.stages.decode.chunks import Chunk, begins_anew, decodable, is_hidden
from segmentation.stages.decode.constancy import PacketConstancy
from segmentation.stages.decode.native.library import library
from segmentation.stages.decode.native.samples import SampleReader
from segmentation.stages.decode.native.session import MOST_AT_ONCE, NOTHING, NativeSession, Packets
from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool
from segmentation.stages.decode.nvdec_support import nvdec_engines
from segmentation.stages.frame_kernels import FRAMES

_BLOCK = 64  # packets that wake a thread before its chunk ends
_UNEXPECTED = 8  # pictures that one call may put out beyond those that its packets tell of, in damaged streams


@dataclass(slots=True)
class _NativeFilling(ChunkProgress):
    """A chunk, with the batches that its pictures go to."""

    group: int = 0  # of its packets in the session
    serials: int = 0  # packets so far whose pictures are shown or dropped: `times` is by their numbers
    sets: list[DevicePlanes] = field(default_factory=list)  # planes of the batch that is not full yet, and next ones
    frames: list[FrameTimes] = field(default_factory=list)  # in them
    admitted: bool = False  # whether there is room for the first of them


class NativeNvdecDecoder(ChunkDecoder[NativeSession, _NativeFilling]):
    """See `ChunkDecoder`."""

    def __init__(
        self, info: VideoInfo, pix_fmt: str, config: Config, gpu: Gpu, *, sessions: NvdecSessionPool | None = None
    ) -> None:
        super().__init__(info, pix_fmt, config, gpu, sessions=sessions)
        self._concealed = False  # whether the engine has found a picture damaged
        self._format = self._format._replace(latency="calls")
        self._kernels = self._gpu.kernels(FRAMES, self._layout)
        self._unpack = self._kernels.handle("unpack")

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        engines = nvdec_engines(config, info)
        library()
        return f"NVDEC, {engines} engines, native library"

    @staticmethod
    def _sessions_for(engines: int) -> int:
        """Half as many more than engines: a session that waits for its copies then leaves no engine idle."""
        return max(LEAST_DECODERS, engines + (engines + 1) // 2)

    def _found_damage(self) -> bool:
        return self._concealed

    def _packets(self) -> Iterator[ChunkPacket]:
        reader = SampleReader.of(self.info, library(), self._timeline.first)
        if reader is None:
            return super()._packets()
        packets = reader.read(self._reading_failed, self._packet_damaged)
        return decodable(self.info, packets, PacketConstancy(self.info, self._differ))

    def _new_session(self) -> NativeSession:
        return NativeSession(self._format, self._gpu.with_own_stream())

    def _decode_chunks(self, session: NativeSession, chunk: Chunk[DecodedBatch] | None) -> bool:
        try:
            return super()._decode_chunks(session, chunk)
        finally:  # planes that nobody reads go back to the pool while they may still be written
            self._gpu.wait_event(session.gpu.record_event())

    def _follows(self, chunk: Chunk[DecodedBatch], before: _NativeFilling) -> bool:
        if not begins_anew(self.info.codec, chunk):
            return False
        first = chunk.first  # final, because all of the chunk's packets are there
        return first is not None and all(times.pts is not None and times.pts < first for times in before.times.values())

    def _decode(
        self, session: NativeSession, chunk: Chunk[DecodedBatch], before: _NativeFilling | None
    ) -> _NativeFilling:
        session.group = 1 - session.group
        current = _NativeFilling(chunk, {}, group=session.group)
        while packets := chunk.take(_BLOCK):
            before = self._run(session, self._packed(packets, current), before, current)
        if before is not None:  # a chunk may be too short to push out all frames of the one before
            before = self._run(session, NOTHING, before, current, flush=True)
        if before is not None:
            self._finish(session, before)
        return current

    def _empty(self, session: NativeSession, before: _NativeFilling) -> None:
        self._run(session, NOTHING, None, before, flush=True)
        self._finish(session, before)

    def _packed(self, packets: list[ChunkPacket], current: _NativeFilling) -> Packets:
        """Returns packets for the library, and notes when their frames are shown."""
        times, serials, kept = [], [], []
        for packet in packets:
            times.append(packet.pts if packet.pts is not None else packet.dts or 0)
            shown = not is_hidden(self.info.codec, packet)
            serials.append(current.serials if shown else -1)
            kept.append(shown and self._wanted(packet, current.chunk))
            if kept[-1]:
                messages = self._messages.of_packet(packet)
                current.times[current.serials] = Presentation(packet.pts, packet.duration or 0, False, messages)
            current.serials += shown
        return Packets.of(packets, times, serials, kept)

    def _wanted(self, packet: ChunkPacket, chunk: Chunk[DecodedBatch]) -> bool:
        """Returns whether a packet's frame is in the chunk and not before the wanted stretch."""
        pts = packet.pts
        if packet.is_discard or not chunk.shows(pts):
            return False
        if pts is None or chunk.joined or self._timeline.begun(pts):
            return True
        chunk.passed = pts if chunk.passed is None else max(pts, chunk.passed)
        return False

    def _run(
        self,
        session: NativeSession,
        packets: Packets,
        before: _NativeFilling | None,
        current: _NativeFilling,
        *,
        flush: bool = False,
    ) -> _NativeFilling | None:
        """Decodes packets of `current` into batches. Returns `before` while more of that chunk's frames are to come."""
        at, over = 0, False
        while not over:
            for filling in (before, current):
                if filling is not None:
                    self._aim(session, filling)
            result = session.decode(packets, at, self._unpack, flush=flush)
            at += result.consumed
            begun = self._note(session, result.produced, before, current)
            if before is not None and (begun or not result.expected[before.group]):
                self._finish(session, before)
                before = None
            self._hand_on(session, current if before is None else before)
            over = (at == packets.count and (not flush or bool(result.flushed))) or (
                self._queue.closed.is_set() and not flush
            )
        return before

    def _note(
        self, session: NativeSession, produced: int, before: _NativeFilling | None, current: _NativeFilling
    ) -> bool:
        """Notes the pictures that a call has put out. Returns whether there are some of `current`."""
        begun = False
        for picture in session.pictures[:produced]:
            filling = before if before is not None and picture.group == before.group else current
            begun = begun or filling is current
            pts, duration, _, messages = filling.times.pop(picture.serial, Presentation(None, 0, False))
            filling.frames.append(FrameTimes(pts, duration, messages))
            self._concealed = self._concealed or bool(picture.damaged)
        return begun

    def _aim(self, session: NativeSession, filling: _NativeFilling) -> None:
        """Gives the session planes for a chunk's next pictures."""
        size = self._batch_size
        most = min(len(filling.frames) + len(filling.times) + _UNEXPECTED, size - 1 + MOST_AT_ONCE)
        while len(filling.sets) * size < most:
            filling.sets.append(self._planes.take())
            session.gpu.wait_event(self._gpu.record_event())  # their memory may be in use on the stream that all share
        target = session.targets[filling.group]
        for number, planes in enumerate(filling.sets):
            for i, plane in enumerate(planes):
                target.planes[number][i] = plane.data_ptr()
        target.sets, target.capacity, target.filled = len(filling.sets), size, len(filling.frames)

    def _hand_on(self, session: NativeSession, filling: _NativeFilling) -> None:
        """Hands on the batches that are full, and waits for room for the one that has begun."""
        while filling.frames:
            if not filling.admitted:
                self._queue.admit(filling.chunk)
                filling.admitted = True
            if len(filling.frames) < self._batch_size:
                return
            self._queue.put(filling.chunk, self._batch(session, filling))

    def _batch(self, session: NativeSession, filling: _NativeFilling) -> DecodedBatch:
        """Returns the first batch that has begun."""
        size = self._batch_size
        frames, filling.frames = filling.frames[:size], filling.frames[size:]
        filling.admitted = False
        last = frames[-1].pts  # a frame without a time does not tell which frames should have come earlier
        lost = 0 if last is None else filling.lost(last)
        return DecodedBatch(filling.sets.pop(0), frames, lost, session.gpu.record_event())

    def _finish(self, session: NativeSession, filling: _NativeFilling) -> None:
        """Puts out the last batch, when no more frames of the chunk come."""
        self._hand_on(session, filling)
        last = self._batch(session, filling) if filling.frames else None
        filling.sets = []
        session.forget(filling.group)
        self._queue.finish(filling.chunk, last, filling.lost(None))
