"""Decoding on NVDEC, through PyNvVideoCodec: several engines on one file, frames in device memory.

H.264, HEVC, VP8 and VP9 come out bit for bit as FFmpeg decodes them; MPEG-1, 2 and 4 leave the rounding of their
transform open, and a sample may be a level off.

PyAV reads the container, `packets.py` cuts it into chunks, and each of several threads feeds one chunk after the other to a
decoder of its own. Frames leave in order. What chunks ahead of the one that is being given out is bounded by memory, so
that short chunks keep all engines busy, and long ones as many as memory allows.
"""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, ClassVar

import PyNvVideoCodec as nvc
from av.packet import Packet
from av.video.stream import VideoStream
from numpy import int64, uint64

from segmentation.config import Config
from segmentation.errors import InputError
from segmentation.frames import FORMATS, ON_GPU, Frame, FrameBatch, Memory, VideoInfo
from segmentation.gpu.context import Gpu, torch_dtype
from segmentation.gpu.driver import Event
from segmentation.gpu.plane_pool import PlanePool, Planes
from segmentation.media.input import open_input
from segmentation.stages.decode import Decoder
from segmentation.stages.decode.chunk_queue import ChunkQueue
from segmentation.stages.decode.chunks import Chunk, begins_anew, chunks, exact_keyframe, is_hidden, read, whole
from segmentation.stages.decode.nvdec_session import NvdecSession, NvdecSessionPool
from segmentation.stages.decode.nvdec_support import nvdec_engines
from segmentation.stages.decode.timestamps import Timeline, missing

_Times = tuple[int | None, int, bool]  # pts, duration, whether it is decoded only because others refer to it
_Shown = tuple[int | None, int]  # pts, duration
_Batch = tuple[Planes, list[_Shown]]  # planes (N, h, w), and what is in their rows

LEAST_DECODERS = 2  # one leaves an engine idle between frames
LEAST_CHUNK = 24  # packets: below, restarting a decoder costs more than another engine brings
# Bytes of decoded frames that may wait for their turn, or a quarter of the GPU's free memory. Seven decoders in step on
# chunks of 250 frames of 1080p need just that (queue.py says why): with less, long chunks leave engines idle.
AHEAD = 2_500_000_000


class NvdecDecoder(Decoder):
    """See `segmentation.stages.decode`. The planes of a batch are (N, h, w), with N the batch size even if it is not full."""

    memory: ClassVar[Memory] = "cuda"

    def __init__(
        self, info: VideoInfo, pix_fmt: str, config: Config, gpu: Gpu, *, sessions: NvdecSessionPool | None = None
    ) -> None:
        self.info = info
        self.damaged = 0
        # A decoder's thread waits for each picture's copy, and with it for all that its stream was given before.
        self._gpu = gpu.with_own_stream()
        self._stages = gpu
        self._layout = FORMATS[pix_fmt]
        self._engines = nvdec_engines(config, info)
        self._kernels = self._gpu.kernels(self._layout)
        self._batch_size = config.batch_size or 1
        shapes = [(self._batch_size, *shape) for shape in self._layout.shapes(info.width, info.height)]
        self._pool = PlanePool(self._gpu, shapes, torch_dtype(self._layout), reader=gpu)
        self._limit = config.max_frames
        self._timeline = Timeline(info, config)
        batch_bytes = self._layout.frame_bytes(info.width, info.height) * self._batch_size
        most = min(AHEAD, gpu.free_bytes() // 4) // batch_bytes
        self._threads: list[threading.Thread] = []
        with open_input(info.path) as container:
            stream = container.streams[info.stream_index]
            assert isinstance(stream, VideoStream)
            self._stored_in_decoding_order = container.format.name == "avi" and stream.has_b_frames
        self._decoders = 1 if self._stored_in_decoding_order else max(LEAST_DECODERS, self._engines)
        self._line = ChunkQueue(most, self._batch_size, self._decoders)

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        engines = nvdec_engines(config, info)
        return f"NVDEC, {engines} engines, PyNvVideoCodec {nvc.__version__}"

    def __iter__(self) -> Iterator[FrameBatch]:
        works = [self._read, *[self._work] * self._decoders]
        self._threads = [threading.Thread(target=self._guard, args=(work,), daemon=True) for work in works]
        for thread in self._threads:
            thread.start()
        try:
            yield from self._in_time()
        except BaseException:
            self.close()
            raise
        self._line.close()  # nobody waits here until the decoders are gone

    def close(self) -> None:
        """Ends all threads and gives the decoders back."""
        self._line.close()
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _in_time(self) -> Iterator[FrameBatch]:
        """The batches in order, their frames' pts settled, cut to the wanted stretch."""
        count = number = 0
        end = 0  # ticks
        self._stages.enter()
        for planes, times, lost, made in self._line:
            self._stages.wait_event(made)
            self.damaged += lost
            self._timeline.passed(self._line.passed)
            placed: list[Frame] = []
            early = 0  # frames before the wanted stretch, of joined chunks
            for stored, duration in times:
                pts = self._timeline.place(stored)
                end = max(end, pts + duration)
                if not self._timeline.begun(pts):
                    early += 1
                    continue
                if self._timeline.over(pts) or count + len(placed) == self._limit:
                    break
                placed.append(Frame(planes=ON_GPU, pts=pts, duration=duration))
            if placed:
                if early:
                    self._move_up(planes, early, len(placed))
                yield FrameBatch(frames=tuple(placed), index=count, number=number, planes=planes)
                count += len(placed)
                number += 1
            if early + len(placed) < len(times) or count == self._limit:
                self.damaged += self._line.lost
                return
        whole = self._timeline.first is None
        short = missing(self.info, count, end * self.info.time_base, whole=whole)
        self.damaged = max(self.damaged + self._line.lost, short)

    def _move_up(self, planes: Planes, early: int, count: int) -> None:
        """Brings `count` rows after the first `early` ones to the beginning."""
        for row in range(count):
            for plane in planes:
                self._stages.copy(plane[row], plane[row + early])

    def _guard(self, work: Any) -> None:
        try:
            self._gpu.enter()
            work()
        except BaseException as exc:  # raised again where the batches are taken
            self._line.fail(exc)

    def _read(self) -> None:
        """Reads packets and hands out chunks."""
        packets = takewhile(lambda _: not self._line.closed.is_set(), read(self.info, self._timeline.first))
        if self._stored_in_decoding_order:  # times don't tell which chunk a frame belongs to
            cut = whole(packets, self._line.closed)
        else:
            cut = chunks(packets, exact_keyframe(self.info.codec), LEAST_CHUNK, self._line.closed)
        for chunk in cut:
            self._line.open(chunk)
        self._line.open(None)

    def _work(self) -> None:
        """Decodes one chunk after the other. Where the next one is there already and begins anew, its packets follow at
        once and push out the frames that the decoder still holds: if it were emptied first, its engine would stand
        idle."""
        decoder: NvdecSession | None = None
        before: _Making | None = None  # the chunk of which the decoder still holds frames
        while True:
            chunk = self._line.next_chunk(wait=before is None)
            if decoder is not None and before is not None and (chunk is None or not self._follows(chunk, before)):
                self._take(decoder.decode(nvc.PacketData()), before)  # an empty one: what it still holds
                self._finish(before)
                before = None
            elif chunk is None:
                break
            if chunk is not None:
                decoder = decoder or NvdecSession(self.info, self._gpu)
                before = self._decode(decoder, chunk, before)
        self._line.closed.wait()  # while one decoder is being destroyed, no other gets on
        if decoder is not None:
            decoder.close()

    def _follows(self, chunk: Chunk, before: _Making) -> bool:
        """Whether a decoder can go on with a chunk while it holds frames of another: timestamps tell them apart."""
        if not begins_anew(self.info.codec, chunk):
            return False
        first = chunk.first  # as it stays, now that all of the chunk is there
        return first is not None and all(time < first for time in before.times)

    def _decode(self, decoder: NvdecSession, chunk: Chunk, before: _Making | None) -> _Making:
        """Gives the decoder a chunk's packets, and takes what comes out."""
        making = _Making(chunk)
        for packet in chunk.packets():
            hidden = packet.is_discard or is_hidden(self.info.codec, packet)
            before = self._sort(decoder.decode(making.data(packet, hidden=hidden)), before, making)
        # A chunk may be too short to push out all.
        if before is not None and self._sort(decoder.decode(nvc.PacketData()), before, making) is not None:
            self._finish(before)
        return making

    def _sort(self, surfaces: list[Any], before: _Making | None, making: _Making) -> _Making | None:
        """Takes surfaces, first those of the chunk before; returns that while more of it is to come."""
        if before is not None:
            own = next((i for i, surface in enumerate(surfaces) if surface.timestamp not in before.times), None)
            self._take(surfaces[:own], before)
            if own is None and before.times:
                return before
            self._finish(before)
            surfaces = [] if own is None else surfaces[own:]
        self._take(surfaces, making)
        return None

    def _take(self, surfaces: list[Any], making: _Making) -> None:
        """Copies those that are to be shown into batches.

        A surface's memory is used again for later ones, so it has to be read on the stream, before asking for more.
        """
        chunk = making.chunk
        if self._line.closed.is_set():
            return
        for surface in surfaces:
            pts, duration, discarded = making.times.pop(surface.timestamp, (None, 0, False))
            if discarded or not chunk.shows(pts):
                continue
            making.latest = latest = making.latest if pts is None else pts
            if latest is not None and not chunk.joined and not self._timeline.begun(latest):
                chunk.passed = latest
                continue
            if making.filling is None:
                self._line.admit(chunk)
                making.filling = (self._pool.take(), [])
            planes, shown = making.filling
            self._unpack(surface, planes, len(shown))
            shown.append((pts, duration))
            if len(shown) == self._batch_size:
                self._line.put(chunk, self._made(making))

    def _finish(self, making: _Making) -> None:
        """Gives out the last batch, when nothing more of the chunk is to come out."""
        last = self._made(making) if making.filling is not None else None
        self._line.finish(making.chunk, last, making.lost(None))

    def _made(self, making: _Making) -> tuple[Planes, list[_Shown], int, Event]:
        """The batch that was being filled, how many frames are lost before its last one and after those of earlier
        batches, and the event after which its planes are what they are to be."""
        assert making.filling is not None
        (planes, shown), making.filling = making.filling, None
        last = shown[-1][0]  # without a time it does not tell what was to come before
        return planes, shown, 0 if last is None else making.lost(last), self._gpu.record_event()

    def _unpack(self, surface: Any, planes: Any, row: int) -> None:
        """Copies a surface into row `row` of the batch."""
        width, height = self.info.width, self.info.height
        rows, pitch = surface.shape[0], surface.strides[0]
        if (rows, surface.shape[1]) != (height * 3 // 2 if self._layout.shift_y else height * 3, width):
            raise InputError(
                f"{self.info.path}: the picture's size changes from {width}x{height} on the way, which NVDEC's frames "
                "don't follow; use --decode pyav"
            )
        shift = 0 if self._layout.bits == 8 else 6
        pointer, pitch = uint64(surface.GetPtrToPlane(0)), int64(pitch)
        self._kernels("unpack", (-(-width // 4), height, 1), pointer, pitch, *planes, width, height, row, shift)


@dataclass(slots=True)
class _Making:
    """A chunk that is being decoded."""

    chunk: Chunk
    times: dict[int, _Times] = field(default_factory=dict)  # of packets whose frame has not come out, by timestamp
    filling: _Batch | None = None  # the batch that is not full yet
    latest: int | None = None  # the pts of the last frame that came out, if it had one, else of one before
    counted: int = 0  # frames that are known to be lost

    def lost(self, pts: int | None) -> int:
        """How many more frames are known to be lost than before, once that of this pts, or all (`None`), came out."""
        before = self.counted
        self.counted = sum(
            not discarded and self.chunk.shows(own) and (pts is None or (own is not None and own < pts))
            for own, _, discarded in self.times.values()
        )
        return self.counted - before

    def data(self, packet: Packet[Any], *, hidden: bool) -> Any:
        """A packet for NVDEC, whose frame will have the same timestamp; a `hidden` one is not shown.

        Times that rise in decoding order are taken for decoding times and given out in their order, which is right for
        AVI: it stores no others.
        """
        timestamp = packet.pts if packet.pts is not None else packet.dts or 0
        self.times[timestamp] = (packet.pts, packet.duration or 0, hidden)
        data = nvc.PacketData()
        data.bsl_data, data.bsl, data.pts = packet.buffer_ptr, packet.buffer_size, timestamp
        return data
