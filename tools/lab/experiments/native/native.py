"""A decoder that hands whole chunks of packets to the native library. An experiment, registered as `native`."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from itertools import takewhile
from typing import Any, ClassVar

from block_chunks import BlockChunk, chunks, whole
from native_session import DROP, MOST_AT_ONCE, UNPACK, NativeSession, Packets

from segmentation.frames import FrameBatch, VideoInfo
from segmentation.options.config import Config
from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS, Implementation
from segmentation.stages.decode.chunk_queue import ChunkQueue
from segmentation.stages.decode.chunks import begins_anew, exact_keyframe, is_hidden, read
from segmentation.stages.decode.nvdec import LEAST_CHUNK, NvdecDecoder, _DecodedBatch, _FrameTimes
from segmentation.stages.decode.nvdec_session import Presentation
from segmentation.stages.decode.nvdec_session_pool import SessionQuota
from segmentation.stages.decode.nvdec_support import nvdec_engines

IMPLEMENTATIONS["decode"]["native"] = Implementation(
    "native:NativeDecoder", on_gpu=True, live="live-nvdec", substitute="pyav"
)
_NOTHING = Packets((), (), (), ())


class _Progress:
    """A chunk that is being decoded."""

    def __init__(self, chunk: BlockChunk, group: int) -> None:
        self.chunk, self.group = chunk, group
        self.to_come: dict[int, Presentation] = {}  # by serial
        self.serial = 0
        self.sets: list[Any] = []  # planes that are being filled, and the next ones
        self.times: list[_FrameTimes] = []  # of the pictures in them
        self.admitted = False  # whether the queue has room for the first of them
        self.counted = 0

    def lost(self, pts: int | None) -> int:
        """See `segmentation.stages.decode.nvdec`."""
        before = self.counted
        self.counted = sum(
            not times.hidden
            and self.chunk.shows(times.pts)
            and (pts is None or (times.pts is not None and times.pts < pts))
            for times in self.to_come.values()
        )
        return self.counted - before


class NativeDecoder(NvdecDecoder):
    """See `segmentation.stages.decode.nvdec`: the same chunks, queue and planes, decoded by one call a batch."""

    totals: ClassVar[list[int]] = [0, 0, 0, 0]  # of all sessions of the process, see `NativeSession`
    totals_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, info: VideoInfo, pix_fmt: str, config: Config, gpu: Any, *, sessions: Any = None) -> None:
        super().__init__(info, pix_fmt, config, gpu, sessions=sessions)
        self._format = self._format._replace(latency="chunks")  # type: ignore[arg-type]
        self.concealed = 0
        kernels = self._unpack._kernels
        self._kernel = (kernels._loaded.get("unpack") or kernels._load("unpack")).handle
        self._own_streams = os.environ.get("NATIVE_STREAMS", "shared") == "own"
        self._sync = os.environ.get("NATIVE_SYNC", "0") == "1"
        if more := int(os.environ.get("NATIVE_MORE", "0")):  # decoders than engines
            self._share.leave()
            self._decoders += more
            self._queue = ChunkQueue(self._queue._most, self._batch_size, self._decoders)
            self._share = SessionQuota(self._pool, self._decoders)
        self._sets = -(-(self._batch_size - 1 + MOST_AT_ONCE) // self._batch_size)

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        return f"NVDEC, {nvdec_engines(config, info)} engines, native calls"

    def _counted(self) -> Iterator[FrameBatch]:
        yield from self._in_time()
        self.damaged = max(self.damaged, self.concealed)

    def _read(self) -> None:
        there = read(self.info, self._timeline.first, self._reading_failed, self._packet_damaged, self._opened)
        packets = takewhile(lambda _: not self._queue.closed.is_set(), there)
        if self.info.decoding_times:
            cut = whole(packets, self._queue.closed)
        else:
            cut = chunks(packets, exact_keyframe(self.info.codec), LEAST_CHUNK, self._queue.closed)
        for chunk in cut:
            if self._share.begin():
                self._begin(self._work)
            self._queue.open(chunk)
        self._queue.open(None)

    def _session(self) -> NativeSession:
        gpu = self._gpu.with_own_stream() if self._own_streams else self._gpu
        made = NativeSession(
            self._format, stream=gpu.stream.cuda_stream, kernel=self._kernel, sync=self._sync,
            bytes=1 if self._layout.bits == 8 else 2, subsampled=bool(self._layout.shift_y),
        )  # fmt: skip
        made.gpu = gpu
        return made

    def _work(self) -> None:
        surplus = False
        try:
            chunk = self._queue.next_chunk()
            if chunk is None:
                return
            session: Any = self._pool.take(self._format) or self._session()
            session.path = self.info.path
            try:
                surplus = self._decode_chunks(session, chunk)
            except BaseException:
                session.close()
                raise
            with self.totals_lock:
                for i, value in enumerate(session.totals):
                    self.totals[i] += value
                session.totals = [0, 0, 0, 0]
            self._pool.give_back(session)
        finally:
            if not surplus:
                self._share.end()

    def _decode_chunks(self, session: Any, chunk: Any) -> bool:
        before: _Progress | None = None
        surplus = False
        while chunk is not None or before is not None:
            if before is not None and (chunk is None or not self._follows(chunk, before)):
                self._run(session, _NOTHING, before, None, flush=True)
                self._finish(before)
                session.forget(before.group)
                before = None
            if chunk is not None:
                before = self._decode(session, chunk, before)
            surplus = surplus or self._share.end_surplus()
            chunk = None if surplus else self._queue.next_chunk(wait=before is None)
        return surplus

    def _follows(self, chunk: Any, before: Any) -> bool:
        if not begins_anew(self.info.codec, chunk):
            return False
        first = chunk.first
        return first is not None and all(t.pts is not None and t.pts < first for t in before.to_come.values())

    def _decode(self, session: Any, chunk: Any, before: Any) -> Any:
        session.group = 1 - session.group
        current = _Progress(chunk, session.group)
        session.targets[current.group].filled = 0
        while packets := chunk.take():
            before = self._run(session, self._packed(packets, current), current, before)
        if before is not None:
            before = self._run(session, _NOTHING, current, before, flush=True)
            if before is not None:
                self._finish(before)
                session.forget(before.group)
        return current

    def _packed(self, packets: list[Any], current: _Progress) -> Packets:
        """Returns packets for the library, and notes the times of their pictures."""
        times, serials, keep = [], [], []
        chunk, codec, of_packet = current.chunk, self.info.codec, self._messages.of_packet
        for packet in packets:
            pts = packet.pts
            times.append(pts if pts is not None else packet.dts or 0)
            if is_hidden(codec, packet):
                serials.append(-1)
                keep.append(DROP)
                continue
            shown = not packet.is_discard and chunk.shows(pts)
            if shown and pts is not None and not chunk.joined and not self._timeline.begun(pts):
                chunk.passed = pts if chunk.passed is None else max(pts, chunk.passed)
                shown = False
            if shown:
                current.to_come[current.serial] = Presentation(pts, packet.duration or 0, False, of_packet(packet))
            serials.append(current.serial)
            current.serial += 1
            keep.append(UNPACK if shown else DROP)
        return Packets(packets, times, serials, keep)

    def _run(self, session: Any, packets: Packets, current: Any, before: Any, *, flush: bool = False) -> Any:
        """Decodes packets of `current`, and hands full batches on. Returns `before` while its pictures are to come."""
        at = 0
        while True:
            for progress in (before, current):
                if progress is not None:
                    self._aim(session, progress)
            result = session.decode(packets, at, current.group, flush)
            at += result.consumed
            begun = False  # whether pictures of `current` have come
            for i in range(result.produced):
                picture = session.pictures[i]
                owner = current if picture.group == current.group else before
                begun = begun or owner is current
                pts, duration, _, messages = owner.to_come.pop(picture.serial, Presentation(None, 0, False))
                owner.times.append(_FrameTimes(pts, duration, messages))
                self.concealed += picture.status in (8, 9)
            if before is not None:
                if begun or not result.waiting[before.group]:
                    self._finish(before)
                    session.forget(before.group)
                    before = None
                else:
                    self._deliver(before, session)
            if before is None:
                self._deliver(current, session)
            if self._queue.closed.is_set() and not flush:
                return before
            if at == packets.count and (not flush or result.flushed):
                return before

    def _aim(self, session: Any, progress: _Progress) -> None:
        """Gives the library planes for a chunk's next pictures."""
        target = session.targets[progress.group]
        while len(progress.sets) < self._sets:
            progress.sets.append(self._planes.take())
            if self._own_streams:  # whose memory may be new, and still be in use on the stream that all share
                session.gpu.wait_event(self._gpu.record_event())
        for number, planes in enumerate(progress.sets):
            for i, plane in enumerate(planes):
                target.planes[number][i] = plane.data_ptr()
        target.sets, target.capacity, target.filled = len(progress.sets), self._batch_size, len(progress.times)
        progress.session = session  # type: ignore[attr-defined]

    def _deliver(self, progress: _Progress, session: Any) -> None:
        """Hands on the batches that are full, and waits for room for the one that has begun."""
        while progress.times:
            if not progress.admitted:
                self._queue.admit(progress.chunk)
                progress.admitted = True
            if len(progress.times) < self._batch_size:
                return
            self._queue.put(progress.chunk, self._batch(progress, session))

    def _batch(self, progress: _Progress, session: Any) -> _DecodedBatch:
        size = self._batch_size
        times, progress.times = progress.times[:size], progress.times[size:]
        planes = progress.sets.pop(0)
        progress.admitted = False
        last = times[-1].pts
        return _DecodedBatch(planes, times, 0 if last is None else progress.lost(last), session.gpu.record_event())

    def _finish(self, progress: Any) -> None:
        session = progress.session
        self._deliver(progress, session)
        last = self._batch(progress, session) if progress.times else None
        progress.sets = []
        self._queue.finish(progress.chunk, last, progress.lost(None))
