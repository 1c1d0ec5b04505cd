"""The process in which segments are encoded: `python -m segmentation.stages.encode.segment_worker DESCRIPTOR`.

The descriptor is that of a socket; `worker_process` starts the process and holds the other end. In a process of their
own the encoders do not compete for the GIL with the threads that feed a GPU. `worker_protocol` has the messages.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import pickle
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

import av.error
import numpy as np
from av.codec.context import CodecContext
from av.video.codeccontext import VideoCodecContext

from segmentation.errors import OutputError
from segmentation.frames import FORMATS, Plane
from segmentation.media.cuts import Cutter
from segmentation.media.video_packet import VideoPacket
from segmentation.stages.encode.worker_protocol import (
    EncodedSegment,
    EncoderSetup,
    EndOfFile,
    Failed,
    FrameMemory,
    Frames,
    Idle,
    PacketEntry,
    Prefault,
    Released,
    Reply,
    receive,
    send,
)
from segmentation.system.child_process import ignore_interrupts, picklable, with_traceback
from segmentation.system.shared_memory import advise

_NICE = 5  # added to the process's nice value
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14; an older kernel refuses, which does no harm
_PIECE = 4 << 20  # bytes that a thread lets the kernel fault in at a time
_PREFAULT_THREADS = 8  # at most: more of them contend for the same lock in the kernel
_PADDING = bytes(64)  # FFmpeg's parsers read a few bytes beyond a packet's end


class _Replier:
    """Sends replies. For any number of threads."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link

    def __call__(self, reply: Reply) -> None:
        with suppress(OSError):  # the other process is gone, and this one about to end
            send(self._link, reply)

    def fail(self, exc: Exception) -> None:
        """Sends an exception, which the other process raises."""
        self(Failed(picklable(with_traceback(exc, "encoders'"))))


@dataclass(slots=True)
class _Batch:
    """A batch of frames, whose memory is released when its last frame is encoded."""

    number: int
    left: int  # frames
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, slots=True)
class _Frame:
    planes: tuple[Plane, ...]  # in the memory that both processes map
    pts: int
    duration: int
    batch: _Batch


@dataclass(frozen=True, slots=True)
class _Segment:
    """Frames on their way to one encoder, ended by `None`."""

    number: int
    frames: SimpleQueue[_Frame | None] = field(default_factory=SimpleQueue)


class _FileEncoder:
    """Encodes the segments of one file, each with an encoder of its own, in `setup.encoders` threads."""

    def __init__(self, setup: EncoderSetup, memory: mmap.mmap, reply: _Replier) -> None:
        self.threads = setup.encoders
        self._setup, self._memory, self._reply = setup, memory, reply
        self._dtype = np.dtype(FORMATS[setup.settings.pix_fmt].dtype)
        self._segments: SimpleQueue[_Segment | None] = SimpleQueue()  # that no thread has taken yet
        self._open: _Segment | None = None  # to which frames are added
        self._batches = self._begun = 0  # batches, segments
        self._cutter = Cutter(setup.cuts)
        self._threads = [
            threading.Thread(target=self._encode_segments, name="segment encoder", daemon=True)
            for _ in range(setup.encoders)
        ]
        for thread in self._threads:
            thread.start()

    def add(self, frames: Frames) -> None:
        """Hands frames to the encoders of their segments."""
        batch = _Batch(self._batches, len(frames.times))
        self._batches += 1
        planes = [
            np.frombuffer(self._memory, self._dtype, math.prod(shape), offset).reshape(shape)
            for offset, shape in frames.planes
        ]
        for i, (pts, duration) in enumerate(frames.times):
            if self._cutter.begins(pts) or self._open is None:
                self._end_segment()
                self._open = _Segment(self._begun)
                self._begun += 1
                self._segments.put(self._open)
            self._open.frames.put(_Frame(tuple(plane[i] for plane in planes), pts, duration, batch))
            if self._cutter.full:
                self._end_segment()

    def end(self) -> None:
        """Ends the last segment, and each thread when no segment is left."""
        self._end_segment()
        for _ in self._threads:
            self._segments.put(None)

    def join(self) -> None:
        """Waits until all threads have ended."""
        for thread in self._threads:
            thread.join()

    def _end_segment(self) -> None:
        if self._open is not None:
            self._open.frames.put(None)
            self._open = None

    def _encode_segments(self) -> None:
        """Encodes one segment after the other. The body of a thread."""
        try:
            while (segment := self._segments.get()) is not None:
                self._deliver(segment.number, self._encode(segment.frames))
        except Exception as exc:
            self._reply.fail(exc)

    def _encode(self, frames: SimpleQueue[_Frame | None]) -> list[VideoPacket]:
        """Returns all packets of one segment, from an encoder of its own."""
        context = self._open_context()
        packets: list[VideoPacket] = []
        try:
            while (frame := frames.get()) is not None:
                packets += context.encode(self._setup.settings.wrap_frame(frame.planes, frame.pts, frame.duration))
                self._release(frame.batch)
            return packets + context.encode(None)
        except av.error.FFmpegError as exc:
            raise self._setup.settings.error(exc) from exc

    def _release(self, batch: _Batch) -> None:
        """Counts a frame of the batch as encoded."""
        with batch.lock:
            batch.left -= 1
            last = batch.left == 0
        if last:
            self._reply(Released(batch.number))

    def _open_context(self) -> VideoCodecContext:
        """Opens an encoder. Raises `OutputError` where its parameter sets differ from those of the stream."""
        settings = self._setup.settings
        context = CodecContext.create(settings.library, "w")
        assert isinstance(context, VideoCodecContext)
        context.flags, context.options = self._setup.flags, dict(settings.options)
        settings.open(context)
        if context.extradata != self._setup.extradata:
            raise OutputError(f"{settings.error_prefix}: encoders disagree on the parameters; use --encode x264")
        return context

    def _deliver(self, number: int, packets: list[VideoPacket]) -> None:
        """Sends the packets of a segment, as `EncodedSegment` describes."""
        entries: list[PacketEntry] = []
        descriptor = os.memfd_create("segmentation packets")
        try:
            with open(descriptor, "wb", closefd=False) as out:
                for packet in packets:
                    begin, end = out.tell(), out.tell() + packet.size
                    out.write(packet)
                    entries.append(PacketEntry(begin, end, packet.pts, packet.duration or 0, bool(packet.is_keyframe)))
                    out.write(_PADDING)
                offset = out.tell()
                pickle.dump(entries, out, pickle.HIGHEST_PROTOCOL)
            self._reply(EncodedSegment(number, offset, descriptor))
        finally:
            os.close(descriptor)


class _Prefaulter:
    """Lets the kernel fault in memory, in threads of its own: one thread alone gets half a gigabyte a second."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._pieces: SimpleQueue[tuple[int, int]] = SimpleQueue()  # begin, size
        self._threads: list[threading.Thread] = []

    def begin(self, size: int, threads: int) -> None:
        """Starts to fault in the first `size` bytes. Their content stays."""
        for begin in range(0, size, _PIECE):
            self._pieces.put((begin, min(_PIECE, size - begin)))
        self._threads = [
            threading.Thread(target=self._work, name="prefault", daemon=True)
            for _ in range(min(threads, _PREFAULT_THREADS))
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Leaves the rest of the memory as it is, and waits for the threads."""
        with suppress(Empty):
            while True:
                self._pieces.get_nowait()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        with suppress(Empty, OSError):
            while True:
                begin, size = self._pieces.get_nowait()
                advise(self._address + begin, size, _POPULATE_WRITE)


class _Worker:
    """Receives messages and hands them to the current file's encoders."""

    def __init__(self, link: socket.socket, reply: _Replier) -> None:
        """Receives the frames' memory, the first message."""
        self._link, self._reply = link, reply
        message = receive(link)
        assert isinstance(message, FrameMemory)
        self._memory = mmap.mmap(message.file, message.size)
        os.close(message.file)
        self._prefaulter = _Prefaulter(self._memory)

    def work(self) -> None:
        """Serves one file after the other. Raises `EOFError` when the other end of the socket is closed."""
        file: _FileEncoder | None = None
        while True:
            message = receive(self._link)
            if isinstance(message, EncoderSetup):
                file = _FileEncoder(message, self._memory, self._reply)
            elif file is None:
                continue  # the file has failed, and its end comes twice
            elif isinstance(message, Prefault):
                self._prefaulter.begin(message.size, file.threads)
            elif isinstance(message, Frames):
                file.add(message)
            elif isinstance(message, EndOfFile):
                file.end()
                # In a thread: this one has to see when the other end is closed.
                threading.Thread(target=self._finish, args=(file,), name="end of file", daemon=True).start()
                file = None

    def _finish(self, file: _FileEncoder) -> None:
        """Reports that the process is idle when the file's threads have ended."""
        file.join()
        self._prefaulter.stop()
        with suppress(AttributeError):  # musl has no such function
            ctypes.CDLL(None).malloc_trim(0)  # else glibc keeps up to 64 MB for each thread that has ended
        self._reply(Idle())


def main(link: socket.socket) -> None:
    """Works until the other end of the socket is closed."""
    ignore_interrupts()
    # The threads that feed the encoders sleep often. They must get a core at once, or all encoders wait.
    os.nice(_NICE)
    reply = _Replier(link)
    with suppress(EOFError, OSError):  # the other end is closed
        worker = _Worker(link, reply)
        try:
            worker.work()
        except (EOFError, OSError):
            raise
        except Exception as exc:
            reply.fail(exc)
        while True:  # nothing more is encoded
            receive(link)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)  # without a wait for threads that are still encoding
