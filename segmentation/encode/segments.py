"""Encoding on all cores by cutting the video into closed segments: for machines whose GPU has no encoder.

One encoder with many threads leaves cores idle, since rows and frames wait for each other; encoders that know nothing
of each other don't. On 16 cores, at 1080p with preset ultrafast: 16 encoders of one thread 900 frames a second, 8 of
two threads 800, one of 16 threads 340.
"""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import os
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import av
import av.error
from av.codec.context import CodecContext
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from segmentation.config import Config
from segmentation.encode.x264 import X264Encoder, describe_stream
from segmentation.errors import OutputError
from segmentation.frames import FORMATS, Frame, FrameBatch, VideoInfo
from segmentation.mux import Muxer

_SEGMENTED = ("h264", "hevc")  # SVT-AV1 and FFV1 fill the cores by themselves, and FFV1 keeps its input
_MEMORY = 2 << 30  # bytes of frames that may wait; the encoders' own memory, about 20 frames each, comes on top
_NICE = 5  # by how much the encoders' threads give way to others
_POLL = 0.05  # seconds between looks at whether an encoder has failed
_PATIENCE = 1.0  # seconds that `close` waits for the threads


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


@dataclass(slots=True)
class _Segment:
    """Frames on their way to one encoder, ended by `None`, and what it makes of them."""

    frames: SimpleQueue[Frame | None] = field(default_factory=SimpleQueue)
    fed: int = 0
    packets: Future[list[Packet[Any]]] = field(default_factory=Future)


class SegmentEncoder(X264Encoder):
    """See `segmentation.encode`. Options and quality are those of `X264Encoder`.

    Frames are not copied on their way to libx264 and libx265, which read them while an encoder's thread holds them; so
    references to up to `_MEMORY` bytes of them are kept. Packets come out a segment at a time.
    """

    def __init__(self, muxer: Muxer, info: VideoInfo, pix_fmt: str, config: Config, gpu: Any = None) -> None:
        self._threads_at_work: list[threading.Thread] = []
        if muxer.codec not in _SEGMENTED:
            super().__init__(muxer, info, pix_fmt, config, gpu)
            return
        cores = len(os.sched_getaffinity(0))
        size = _frame_bytes(info, pix_fmt) * (1 + len(config.also))  # outputs of one run share the memory
        layout = Layout.of(size, float(info.rate), cores, _expected(info, config))
        # One keyframe, at the beginning: a second one could follow the last frame and have the number of the next
        # segment's, which H.264 forbids for neighbours. Cuts still get intra frames.
        extra = {"g": str(2 * layout.frames), "keyint_min": str(layout.frames)}
        if muxer.codec == "hevc":  # else each encoder would have a pool of as many threads as there are cores
            extra["x265-params"] = f"pools={layout.threads if layout.threads > 1 else 'none'}"
        super().__init__(muxer, info, pix_fmt, config, gpu, threads=layout.threads, extra=extra)
        self._muxer = muxer
        self._layout = layout
        self._room = threading.Semaphore(layout.waiting)
        self._work: SimpleQueue[_Segment | None] = SimpleQueue()  # to be taken up, in order
        self._filling: _Segment | None = None
        self._pending: deque[_Segment] = deque()  # whose packets are not out yet, in order
        self._closed = threading.Event()
        # FFmpeg's libx265 does not say by how much it reorders: by 2 frames with its pyramids of B-frames, never more.
        delay = 2 if muxer.codec == "hevc" else self._stream.codec_context.reorder_depth
        self._clock = _Clock(delay, info)
        for _ in range(layout.encoders):
            # Daemons, so that the second Ctrl-C ends the program at once.
            thread = threading.Thread(target=self._run, name="segment encoder", daemon=True)
            self._threads_at_work.append(thread)
            thread.start()

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        cores = len(os.sched_getaffinity(0))
        how = f"segments on {cores} cores" if (config.codec or "h264") in _SEGMENTED else "one encoder"
        return f"{X264Encoder.describe(config)}, {how}"

    def encode(self, batch: FrameBatch) -> list[Packet[Any]]:
        if not self._threads_at_work:
            return super().encode(batch)
        for frame in batch.frames:
            self._feed(frame)
        self._raise_failure()
        packets = []
        while self._pending and self._pending[0].packets.done():
            packets += self._next_packets()
        return packets

    def flush(self) -> list[Packet[Any]]:
        if not self._threads_at_work:
            return super().flush()
        self._end_segment()
        packets = []
        while self._pending:
            packets += self._next_packets()
        self.close()
        return packets

    def close(self) -> None:
        if not self._threads_at_work:
            return
        self._closed.set()
        self._end_segment()
        for _ in self._threads_at_work:
            self._work.put(None)
        deadline = time.monotonic() + _PATIENCE
        for thread in self._threads_at_work:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _feed(self, frame: Frame) -> None:
        """Hands a frame to the segment that is being filled; waits while too many frames wait."""
        while not self._room.acquire(timeout=_POLL):
            self._raise_failure()
        if self._filling is None:
            self._filling = _Segment()
            self._pending.append(self._filling)
            self._work.put(self._filling)
        self._filling.frames.put(frame)
        self._filling.fed += 1
        if self._filling.fed == self._layout.frames:
            self._end_segment()

    def _end_segment(self) -> None:
        if self._filling is not None:
            self._filling.frames.put(None)
            self._filling = None

    def _raise_failure(self) -> None:
        for segment in self._pending:
            if segment.packets.done() and (error := segment.packets.exception()) is not None:
                raise error

    def _next_packets(self) -> list[Packet[Any]]:
        """The packets of the oldest segment, which is waited for, as parts of the stream."""
        segment = self._pending.popleft()
        packets = segment.packets.result()
        if len(packets) != segment.fed:
            raise OutputError(f"{self._what}: {segment.fed} frames of a segment became {len(packets)} packets")
        self._clock.set_dts(packets)
        for packet in packets:
            packet.stream = self._stream
        return packets

    def _run(self) -> None:
        """A thread: one segment after the other, until the end."""
        # Threads that feed the encoders sleep often and must get a core at once when they wake, or all encoders wait.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        while (segment := self._work.get()) is not None and not self._closed.is_set():
            try:
                segment.packets.set_result(self._encoded(segment.frames))
            except BaseException as exc:  # raised again by the thread that feeds
                segment.packets.set_exception(exc)
                return

    def _encoded(self, frames: SimpleQueue[Frame | None]) -> list[Packet[Any]]:
        """All packets of one segment, from an encoder of its own."""
        context = self._context()
        packets: list[Packet[Any]] = []
        try:
            while (frame := frames.get()) is not None:
                self._room.release()
                if self._closed.is_set():
                    return []
                packets += context.encode(self._picture(frame))
            return packets if self._closed.is_set() else packets + context.encode(None)
        except av.error.FFmpegError as exc:
            raise self._error(exc) from exc

    def _context(self) -> VideoCodecContext:
        """An open encoder, which is like the stream's own in all that a decoder is told once for all segments."""
        own = self._stream.codec_context
        context = CodecContext.create(own.codec, "w")
        assert isinstance(context, VideoCodecContext)
        context.flags, context.options = own.flags, dict(self._options)
        describe_stream(context, self._info, self._muxer)
        self._open(context)
        if context.extradata != own.extradata:
            raise OutputError(f"{self._what}: encoders disagree on the parameters; use --encode x264")
        return context

    def _picture(self, frame: Frame) -> VideoFrame:
        """The frame's own memory as a picture for FFmpeg, where that can be: libx264 and libx265 copy what they take.

        NumPy does not export arrays that are read-only, and pictures of odd size are padded: these are copied here.
        """
        if self._as_it_is and all(plane.flags.writeable for plane in frame.planes):
            return self._timed(VideoFrame.from_dlpack(frame.planes, self._pix_fmt), frame)
        return self._copied(frame)


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


def _frame_bytes(info: VideoInfo, pix_fmt: str) -> int:
    layout = FORMATS[pix_fmt]
    chroma = -(-info.width >> layout.shift_x) * -(-info.height >> layout.shift_y)
    return (info.width * info.height + 2 * chroma) * layout.dtype().itemsize


def _expected(info: VideoInfo, config: Config) -> int:
    """How many frames will come, as far as the container and the options say; 0 if neither does."""
    wanted = None if config.duration is None else round(config.duration * info.rate)
    known = [n for n in (info.frames, config.max_frames, wanted) if n]
    return min(known, default=0)
