"""Encoding on all cores by cutting the video into closed segments: for machines whose GPU has no encoder.

One encoder with many threads leaves cores idle, since rows and frames wait for each other. Encoders of different
segments share no data, so each has a core to itself. tools/lab/experiments.md has figures.
"""

from __future__ import annotations

import mmap
import os
import pickle
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from av.packet import Packet

from segmentation.errors import BackendError, OutputError
from segmentation.frames import FORMATS, FrameBatch, VideoInfo
from segmentation.media.cuts import Cuts, Cutter
from segmentation.media.muxer import Muxer
from segmentation.media.video_packet import VideoPacket, pts_of
from segmentation.options.config import Config
from segmentation.stages.decode.timestamps import expected
from segmentation.stages.encode.pyav import PyAVEncoder
from segmentation.stages.encode.worker_process import EncoderLease, EncoderService
from segmentation.stages.encode.worker_protocol import (
    EncodedSegment,
    EncoderSetup,
    EndOfFile,
    Failed,
    Frames,
    Idle,
    PacketEntry,
    Prefault,
    Released,
)
from segmentation.system.cores import core_count
from segmentation.system.shared_memory import Block, BlockPool, SharedPlanes, planes_size

if TYPE_CHECKING:
    from av.video.codeccontext import VideoCodecContext

    from segmentation.gpu.context import Gpu

_SEGMENTED = ("h264", "hevc")  # SVT-AV1 and FFV1 fill the cores by themselves, and FFV1 refers to its input for longer
_MEMORY = 2 << 30  # bytes of waiting frames; the encoders' own memory, about 20 frames each, comes on top
_MOST_THREADS = 8  # of an encoder
_STAGING = 16 << 20  # bytes of a block for copies: a block for each batch would make too many


@dataclass(frozen=True, slots=True)
class Layout:
    """The division of the work: number of encoders, threads of each, and frames of a segment."""

    encoders: int
    threads: int
    frames: int
    waiting: int  # at most so many frames that no encoder has taken yet

    @staticmethod
    def of(frame_bytes: int, rate: float, cores: int, expected: int) -> Layout:
        """Returns the layout for a video. `expected` is its length in frames, 0 if unknown.

        A segment is 2 s long, each core has an encoder, and all their frames fit in `_MEMORY`. For large pictures
        segments are shorter, down to half a second, then encoders are fewer and get more threads. For a short video
        segments are shortened so that each encoder gets the same number of them.
        """
        fit = max(1, _MEMORY // frame_bytes)
        shortest, longest = max(8, round(rate / 2)), max(8, round(rate * 2))
        encoders = min(cores, max(1, fit // shortest))
        frames = max(shortest, min(longest, fit // encoders))
        if expected:
            turns = -(-expected // (encoders * frames))
            frames = max(shortest, min(frames, -(-expected // (encoders * turns))))
        return Layout(encoders, -(-cores // encoders), frames, min(fit, encoders * frames))

    @staticmethod
    def for_cuts(frame_bytes: int, frames: int, cores: int) -> Layout:
        """Returns the layout for segments that are cut elsewhere. Threads, and so packets, don't depend on `cores`.

        For large pictures, of which the segments of four encoders don't fit in `_MEMORY`, encoders get more threads.
        Encoders begin one after the other, so that on average half of each one's frames wait.
        """
        fit = max(1, _MEMORY // frame_bytes)
        threads = min(_MOST_THREADS, -(-4 * frames // fit))
        encoders = max(1, min(-(-cores // threads), 2 * fit // frames))
        return Layout(encoders, threads, frames, min(fit, encoders * frames))


class SegmentEncoder(PyAVEncoder):
    """See `segmentation.stages.encode`. Options and quality are those of `PyAVEncoder`.

    The encoders run in a process of their own, `segment_worker`, a thread each. Frames lie in memory that both
    processes map: those that do not come in `blocks` are copied there, and libx264 and libx265 read them there. Packets
    come out a segment at a time. `flush` returns the process to the service, and `close` without `flush` ends it.
    """

    def __init__(
        self,
        muxer: Muxer,
        info: VideoInfo,
        pix_fmt: str,
        config: Config,
        gpu: Gpu | None = None,
        *,
        service: EncoderService | None = None,
    ) -> None:
        self._lease: EncoderLease | None = None  # without it one encoder in this process does the work
        if muxer.codec not in _SEGMENTED and muxer.cuts is None:
            super().__init__(muxer, info, pix_fmt, config, gpu)
            return
        layout = self._layout = _layout(muxer, info, pix_fmt, config)
        options = _segment_options(muxer.codec, layout)
        super().__init__(muxer, info, pix_fmt, config, gpu, threads=layout.threads, options=options)
        self._soon = layout.waiting  # frames that may soon wait
        if count := expected(info, config):
            batch = config.batch_size or 1  # for which a block has room, also for the last one
            self._soon = min(self._soon, -(-count // batch) * batch)
        context = self._stream.codec_context
        self._timing = DecodingTimes(_delay(muxer.codec, context), info)
        cuts = muxer.cuts or Cuts(layout.frames)
        self._cutter = Cutter(cuts)
        self._lengths: list[int] = []  # frames of each segment that has begun
        self._lock = threading.Lock()  # `close` may run in another thread
        self._batches = 0
        self._unreleased: dict[int, tuple[SharedPlanes, int]] = {}  # by batch: planes, and how many frames
        self._waiting = 0  # frames in `_unreleased`
        self._staging: Block | None = None  # where frames are copied to
        self._staged = 0  # bytes of it
        self._segments: dict[int, list[VideoPacket]] = {}  # encoded, by number
        self._next = 0  # segment to go out
        self._idle = False  # whether the process has encoded all of the file
        self._failure: BaseException | None = None
        self._service, self._owns_service = service or EncoderService(), service is None
        self._lease = self._service.lease(
            EncoderSetup(
                settings=self._settings,
                flags=int(context.flags),
                extradata=context.extradata,
                encoders=layout.encoders,
                cuts=cuts,
            )
        )
        self.blocks = self._lease.blocks

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        if not hasattr(os, "memfd_create"):
            raise BackendError("x264-segments needs Linux, where two processes share memory")
        cores = core_count()
        how = f"segments on {cores} cores" if (config.codec or "h264") in _SEGMENTED else "one encoder"
        return f"{PyAVEncoder.describe(config)}, {how}"

    def prefault(self) -> None:
        if self._lease is not None:
            self._lease.send(Prefault(self._soon * self._settings.frame_bytes))

    def encode(self, batch: FrameBatch) -> list[VideoPacket]:
        if (lease := self._lease) is None:
            return super().encode(batch)
        with self._lock:
            self._receive(lease, wait=False)
            self._wait_for_room(lease, len(batch))
            shared = self._in_shared_memory(lease.blocks, batch)
            times = tuple((frame.pts, frame.duration) for frame in batch.frames)
            lease.send(Frames(shared.locations, times))
            self._unreleased[self._batches] = shared, len(batch)
            self._batches += 1
            for frame in batch.frames:
                if self._cutter.begins(frame.pts):
                    self._lengths.append(0)
                self._lengths[-1] += 1
            self._waiting += len(batch)
            return self._next_packets()

    def flush(self) -> list[VideoPacket]:
        if (lease := self._lease) is None:
            return super().flush()
        with self._lock:
            lease.send(EndOfFile())
            while not self._idle:
                self._receive(lease, wait=True)
            packets = self._next_packets()
            self._staging = None  # so that the service finds the block free
            lease.finish()
        self.close()
        return packets

    def close(self) -> None:
        if self._lease is None:
            return
        self._lease.interrupt()  # else a thread in `encode` or `flush` may hold the lock and wait for a message
        with self._lock:
            self._unreleased.clear()
            self._staging = self.blocks = None
            self._segments.clear()
            self._lease.close()
            if self._owns_service:
                self._service.close()

    def _wait_for_room(self, lease: EncoderLease, count: int) -> None:
        """Waits until `count` more frames may wait.

        A batch is released as a whole, and each encoder may be in the midst of one: half of its frames are encoded.
        """
        most = self._layout.waiting + self._layout.encoders * (count - 1) // 2
        while self._waiting and self._waiting + count > most:
            self._receive(lease, wait=True)

    def _in_shared_memory(self, blocks: BlockPool, batch: FrameBatch) -> SharedPlanes:
        """Returns the frames' planes in the shared memory: as they are, or copied there."""
        if batch.shared is not None and batch.shared.block.pool is blocks:
            return batch.shared
        dtype = FORMATS[self._settings.pix_fmt].dtype
        shapes = [(len(batch), *plane.shape) for plane in batch.frames[0].planes]
        size = planes_size(shapes, dtype)
        if self._staging is None or self._staged + size > self._staging.size:
            self._staging, self._staged = blocks.take(-(-size // _STAGING) * _STAGING), 0
        shared = self._staging.planes(shapes, dtype, self._staged)
        self._staged += size
        for i, rows in enumerate(shared.arrays):
            for row, frame in zip(rows, batch.frames, strict=True):
                row[:] = frame.planes[i]
        return shared

    def _receive(self, lease: EncoderLease, *, wait: bool) -> None:
        """Handles all messages that have arrived; with `wait`, at least one. Raises an error of the process."""
        if self._failure is not None:  # frames of the encoder that has failed are never released
            raise self._failure
        while (message := lease.receive(wait=wait)) is not None:
            if isinstance(message, Released):
                _, count = self._unreleased.pop(message.batch)
                self._waiting -= count
            elif isinstance(message, EncodedSegment):
                self._segments[message.segment] = _read_packets(message.file, message.entries)
            elif isinstance(message, Failed):
                self._failure = message.error
                raise self._failure
            elif isinstance(message, Idle):
                self._idle = True
            wait = False

    def _next_packets(self) -> list[VideoPacket]:
        """Returns the packets of the segments that follow the last one returned, as parts of the stream."""
        result = []
        while (packets := self._segments.pop(self._next, None)) is not None:
            frames = self._lengths[self._next]
            if len(packets) != frames:
                prefix = self._settings.error_prefix
                raise OutputError(f"{prefix}: {frames} frames of a segment became {len(packets)} packets")
            self._next += 1
            self._timing.set_dts(packets)
            for packet in packets:
                packet.stream = self._stream
                packet.time_base = self._settings.info.time_base
            result += packets
        return result


class JoinedStream(PyAVEncoder):
    """The stream of packets that encoders of segments have made elsewhere. It encodes nothing.

    Its settings are those of `SegmentEncoder`, so that its parameter sets are those of the packets.
    """

    def __init__(self, muxer: Muxer, info: VideoInfo, pix_fmt: str, config: Config) -> None:
        layout = _layout(muxer, info, pix_fmt, config)
        options = _segment_options(muxer.codec, layout)
        super().__init__(muxer, info, pix_fmt, config, threads=layout.threads, options=options)
        self._timing = DecodingTimes(_delay(muxer.codec, self._stream.codec_context), info)

    @property
    def extradata(self) -> bytes:
        """The parameter sets."""
        return self._stream.codec_context.extradata or b""

    def joined(self, packets: list[VideoPacket]) -> list[VideoPacket]:
        """Returns the packets of one or more whole segments as parts of the stream. They have pts and duration."""
        self._timing.set_dts(packets)
        for packet in packets:
            packet.stream = self._stream
            packet.time_base = self._settings.info.time_base
        return packets


def _layout(muxer: Muxer, info: VideoInfo, pix_fmt: str, config: Config) -> Layout:
    frame_bytes = FORMATS[pix_fmt].frame_bytes(info.width, info.height)
    frame_bytes *= 1 + len(config.also)  # outputs of one run share the memory
    if muxer.cuts is not None:
        return Layout.for_cuts(frame_bytes, muxer.cuts.frames, core_count())
    return Layout.of(frame_bytes, float(info.rate), core_count(), expected(info, config))


def _delay(codec: str, context: VideoCodecContext) -> int:
    """Returns the number of frames by which decoding is ahead of presentation.

    FFmpeg's libx265 does not report its delay. That is 2 frames with its pyramids of B-frames, and never more.
    """
    return 2 if codec == "hevc" else context.reorder_depth


def _segment_options(codec: str, layout: Layout) -> dict[str, str]:
    """Returns FFmpeg's options for an encoder of segments.

    A segment has one keyframe, at its beginning. A second one could follow the last frame and have the number of the
    next segment's, which H.264 forbids for neighbors. Cuts still get intra frames.
    """
    options = {"g": str(2 * layout.frames), "keyint_min": str(layout.frames)}
    if codec == "hevc":  # without it each encoder has a pool of as many threads as there are cores
        options["x265-params"] = f"pools={layout.threads if layout.threads > 1 else 'none'}"
    return options


def _read_packets(descriptor: int, offset: int) -> list[VideoPacket]:
    """Returns the packets of an `EncodedSegment`, which share the file's memory, and closes the descriptor.

    `offset` is that of the entries.

    libx265 marks packets that no other frame refers to, and PyAV has no way to set that flag. So HEVC in MP4 has no
    `sdtp` box, a hint for players that drop frames.
    """
    try:
        memory = memoryview(mmap.mmap(descriptor, 0))
    finally:
        os.close(descriptor)
    entries: list[PacketEntry] = pickle.loads(memory[offset:])
    packets = []
    for entry in entries:
        # It takes any buffer.
        packet: VideoPacket = Packet(memory[entry.begin : entry.end])  # type: ignore[arg-type, assignment]
        packet.pts, packet.duration, packet.is_keyframe = entry.pts, entry.duration, entry.is_keyframe
        packets.append(packet)
    return packets


class DecodingTimes:
    """Sets dts across segments. A segment's own would step back where the distance between frames varies."""

    def __init__(self, delay: int, info: VideoInfo) -> None:
        """`delay` is the number of frames by which decoding is ahead of presentation."""
        self._delay = delay
        self._step = max(1, round(1 / info.rate / info.time_base))
        self._last: list[int] = []  # pts of the `delay` frames before

    def set_dts(self, packets: list[VideoPacket]) -> None:
        """Sets the dts of a segment's packets: the n-th frame's is the pts of the (n - delay)-th, never after its own.

        Before the first frame, times are counted back as far as the first frames are apart.
        """
        shown = sorted(map(pts_of, packets))
        if not self._last:
            row = shown + [shown[-1] + i * self._step for i in range(1, self._delay + 1)]
            self._last = [pts - (row[self._delay] - row[0]) for pts in row[: self._delay]]
        times = self._last + shown
        for packet, dts in zip(packets, times, strict=False):
            assert dts <= pts_of(packet)
            packet.dts = dts
        self._last = times[len(times) - self._delay :]
