"""Encoding on all cores by cutting the video into closed segments: for machines whose GPU has no encoder.

One encoder with many threads leaves cores idle, since rows and frames wait for each other; encoders that know nothing
of each other don't. On 16 cores, at 1080p with preset ultrafast: 16 encoders of one thread 900 frames a second, 8 of
two threads 800, one of 16 threads 340.
"""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import mmap
import os
import pickle
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from av.packet import Packet

from segmentation.config import Config
from segmentation.errors import OutputError
from segmentation.frames import FORMATS, FrameBatch, VideoInfo
from segmentation.media.muxer import Muxer
from segmentation.shared_memory import Block, BlockPool, SharedPlanes, planes_size
from segmentation.stages.decode.timestamps import expected
from segmentation.stages.encode.pyav import PyAVEncoder
from segmentation.stages.encode.worker_process import EncoderProcess, EncoderService
from segmentation.stages.encode.worker_protocol import (
    Encoded,
    EncoderSetup,
    End,
    Failed,
    PacketEntry,
    Pictures,
    Prefault,
    Released,
)

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu

_SEGMENTED = ("h264", "hevc")  # SVT-AV1 and FFV1 fill the cores by themselves, and FFV1 keeps its input
_MEMORY = 2 << 30  # bytes of frames that may wait; the encoders' own memory, about 20 frames each, comes on top
_TOGETHER = 16 << 20  # bytes of frames that are copied into one block: a block for each would be many


@dataclass(frozen=True, slots=True)
class Layout:
    """How the work is cut: so many encoders at once, threads in each, and frames a segment."""

    encoders: int
    threads: int
    frames: int
    waiting: int  # frames, at the most, that no encoder has taken yet

    @staticmethod
    def of(frame_bytes: int, rate: float, cores: int, expected: int) -> Layout:
        """The rule. `expected` is the length of the video in frames, 0 if unknown.

        A segment is 2 s long, an encoder works on each core, and all their frames fit in `_MEMORY`: for large pictures
        segments are shorter, down to half a second, then encoders are fewer and get more threads. Where a short video
        would leave encoders idle at its end, segments are shortened too, to give each of them the same number.
        """
        fit = max(1, _MEMORY // frame_bytes)
        shortest, longest = max(8, round(rate / 2)), max(8, round(rate * 2))
        encoders = min(cores, max(1, fit // shortest))
        frames = max(shortest, min(longest, fit // encoders))
        if expected:
            turns = -(-expected // (encoders * frames))
            frames = max(shortest, min(frames, -(-expected // (encoders * turns))))
        return Layout(encoders, -(-cores // encoders), frames, min(fit, encoders * frames))


class SegmentEncoder(PyAVEncoder):
    """See `segmentation.stages.encode`. Options and quality are those of `PyAVEncoder`.

    The encoders are in a process of their own, `segment_worker`, in a thread each. Frames are in memory that both
    processes see: those that do not come in `blocks` are copied there. Nobody copies them again on their way to libx264
    and libx265, so up to `_MEMORY` bytes of them are kept. Packets come out a segment at a time.
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
        self._process: EncoderProcess | None = None
        if muxer.codec not in _SEGMENTED:
            super().__init__(muxer, info, pix_fmt, config, gpu)
            return
        cores = len(os.sched_getaffinity(0))
        self._frame_bytes = FORMATS[pix_fmt].frame_bytes(info.width, info.height)
        shared = self._frame_bytes * (1 + len(config.also))  # outputs of one run share the memory
        layout = Layout.of(shared, float(info.rate), cores, expected(info, config))
        # One keyframe, at the beginning: a second one could follow the last frame and have the number of the next
        # segment's, which H.264 forbids for neighbours. Cuts still get intra frames.
        extra = {"g": str(2 * layout.frames), "keyint_min": str(layout.frames)}
        if muxer.codec == "hevc":  # else each encoder would have a pool of as many threads as there are cores
            extra["x265-params"] = f"pools={layout.threads if layout.threads > 1 else 'none'}"
        super().__init__(muxer, info, pix_fmt, config, gpu, threads=layout.threads, extra=extra)
        own = self._stream.codec_context
        # FFmpeg's libx265 does not say by how much it reorders: by 2 frames with its pyramids of B-frames, never more.
        self._clock = _Clock(2 if muxer.codec == "hevc" else own.reorder_depth, info)
        self._layout = layout
        self._lock = threading.Lock()  # `close` may come from another thread
        self._fed = self._batches = 0  # frames and batches that were handed over
        # By the batch's number, what the encoders have not taken yet, and how many frames that is.
        self._kept: dict[int, tuple[SharedPlanes, int]] = {}
        self._waiting = 0  # frames in all of it
        self._filling: Block | None = None  # where frames are copied to
        self._filled = 0  # bytes of it
        self._arrived: dict[int, list[Packet[Any]]] = {}  # by the segment's number
        self._next = 0  # segment to go out
        self._failure: Exception | None = None
        self.blocks = BlockPool()
        try:
            job = EncoderSetup(
                coding=self._coding,
                flags=int(own.flags),
                extradata=own.extradata,
                encoders=layout.encoders,
                frames=layout.frames,
                memory=self.blocks.size,
            )
            self._process = EncoderProcess(job, self.blocks.file)
        except BaseException:
            self.blocks.close()
            raise

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        cores = len(os.sched_getaffinity(0))
        how = f"segments on {cores} cores" if (config.codec or "h264") in _SEGMENTED else "one encoder"
        return f"{PyAVEncoder.describe(config)}, {how}"

    def prefault(self) -> None:
        """Frames will come faster than they can be encoded, as from a GPU: their memory is made ready meanwhile."""
        if self._process is not None:
            self._process.send(Prefault(self._layout.waiting * self._frame_bytes))

    def encode(self, batch: FrameBatch) -> list[Packet[Any]]:
        if self._process is None:
            return super().encode(batch)
        with self._lock:
            self._listen(wait=False)
            self._make_room(len(batch))
            shared = self._shared(batch)
            self._process.send(Pictures(shared.spots, tuple((frame.pts, frame.duration) for frame in batch.frames)))
            self._kept[self._batches] = shared, len(batch)
            self._batches += 1
            self._fed += len(batch)
            self._waiting += len(batch)
            return self._finished()

    def flush(self) -> list[Packet[Any]]:
        if self._process is None:
            return super().flush()
        with self._lock:
            packets = self._finished()
            if self._next * self._layout.frames < self._fed:
                self._process.send(End())
            while self._next * self._layout.frames < self._fed:
                self._listen(wait=True)
                packets += self._finished()
        self.close()
        return packets

    def close(self) -> None:
        if self._process is None:
            return
        self._process.end()  # so that nobody waits for it
        with self._lock:
            self._process.close()
            self._kept.clear()
            self._filling = None
            self._arrived.clear()
            assert self.blocks is not None
            self.blocks.close()

    def _make_room(self, count: int) -> None:
        """Waits while too many frames wait.

        A batch goes back when all of it is taken, and each encoder may be in the midst of one: half of that is taken.
        """
        most = self._layout.waiting + self._layout.encoders * (count - 1) // 2
        while self._waiting and self._waiting + count > most:
            self._listen(wait=True)

    def _shared(self, batch: FrameBatch) -> SharedPlanes:
        """The frames' planes where the encoders see them: as they are, or copied there."""
        assert self.blocks is not None
        lent: SharedPlanes | None = batch.shared
        if lent is not None and lent.block.pool is self.blocks:
            return lent
        dtype = FORMATS[self._coding.pix_fmt].dtype
        shapes = [(len(batch), *plane.shape) for plane in batch.frames[0].planes]
        size = planes_size(shapes, dtype)
        if self._filling is None or self._filled + size > self._filling.size:
            self._filling, self._filled = self.blocks.take(-(-size // _TOGETHER) * _TOGETHER), 0
        shared = self._filling.planes(shapes, dtype, self._filled)
        self._filled += size
        for i, rows in enumerate(shared.arrays):
            for row, frame in zip(rows, batch.frames, strict=True):
                row[:] = frame.planes[i]
        return shared

    def _listen(self, *, wait: bool) -> None:
        """Takes in all that the encoders have told; waits for something, if it may."""
        assert self._process is not None
        if self._failure is not None:  # an encoder less: what it was to take, nobody takes
            raise self._failure
        while (heard := self._process.receive(wait=wait)) is not None:
            message, file = heard
            if isinstance(message, Released):
                _, count = self._kept.pop(message.batch)
                self._waiting -= count
            elif isinstance(message, Encoded):
                assert file is not None
                self._arrived[message.segment] = _packets(file, message.table)
            elif isinstance(message, Failed):
                self._failure = message.error
                raise self._failure
            wait = False

    def _finished(self) -> list[Packet[Any]]:
        """The packets of segments whose turn it is, as parts of the stream."""
        finished = []
        while (packets := self._arrived.pop(self._next, None)) is not None:
            fed = min(self._layout.frames, self._fed - self._next * self._layout.frames)
            if len(packets) != fed:
                raise OutputError(f"{self._coding.what}: {fed} frames of a segment became {len(packets)} packets")
            self._next += 1
            self._clock.set_dts(packets)
            for packet in packets:
                packet.stream = self._stream
                packet.time_base = self._coding.info.time_base
            finished += packets
        return finished


def _packets(file: int, table: int) -> list[Packet[Any]]:
    """The packets in a file, see `messages.Encoded`; their bytes stay there.

    That no other frame refers to one, which libx265 says, PyAV can't say again: HEVC in MP4 goes without the box `sdtp`
    then, a hint for players that leave frames out.
    """
    try:
        memory = memoryview(mmap.mmap(file, 0))
    finally:
        os.close(file)
    packets = []
    for row in pickle.loads(memory[table:]):
        assert isinstance(row, PacketEntry)
        packet: Packet[Any] = Packet(memory[row.begin : row.end])  # type: ignore[arg-type]  # takes any buffer
        packet.pts, packet.duration, packet.is_keyframe = row.pts, row.duration, row.is_keyframe
        packets.append(packet)
    return packets


class _Clock:
    """Decoding times over the seams. A segment's own would step back where the distance between frames varies."""

    def __init__(self, delay: int, info: VideoInfo) -> None:
        self._delay = delay  # frames by which decoding is ahead of showing
        self._step = max(1, round(1 / info.rate / info.time_base))
        self._last: list[int] = []  # pts of the `delay` frames before

    def set_dts(self, packets: list[Packet[Any]]) -> None:
        """The n-th frame is decoded when the (n - delay)-th is shown, which is never too late for either."""
        shown = sorted(packet.pts for packet in packets if packet.pts is not None)
        if not self._last:  # before the first frame time is counted back, as far as the first frames are apart
            row = shown + [shown[-1] + i * self._step for i in range(1, self._delay + 1)]
            self._last = [pts - (row[self._delay] - row[0]) for pts in row[: self._delay]]
        times = self._last + shown
        for packet, dts in zip(packets, times, strict=False):
            assert packet.pts is not None and dts <= packet.pts
            packet.dts = dts
        self._last = times[len(times) - self._delay :]
