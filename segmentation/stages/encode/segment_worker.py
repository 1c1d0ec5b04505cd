"""The process in which segments are encoded: `python -m segmentation.stages.encode.segment_worker LINK`.

So the encoders have a lock of Python's of their own: among the threads that feed a GPU they would wait for it, and hold
it while they wait for a core. See `segments.SegmentEncoder`, which starts it; the socket's other end is there.
"""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import ctypes
import math
import mmap
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

import av.error
import numpy as np
from av.codec.context import CodecContext
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from numpy.typing import NDArray

from segmentation.errors import OutputError, SegmentationError
from segmentation.frames import FORMATS
from segmentation.stages.encode.worker_protocol import (
    Encoded,
    EncoderSetup,
    Failed,
    PacketEntry,
    Pictures,
    Prefault,
    Released,
    portable,
    receive,
    send,
)

_NICE = 5  # by how much the encoders give way to others
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14; an older one refuses, which does no harm
_PIECE = 4 << 20  # bytes that one thread lets the kernel make at a time
_PAGERS = 8  # threads that do: more wait for each other
_PADDING = bytes(64)  # FFmpeg's readers look at a few bytes more than a packet has


@dataclass(slots=True)
class _Batch:
    """Frames that came together, whose memory goes back when all of them are taken."""

    number: int
    left: int  # frames
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, slots=True)
class _Picture:
    planes: tuple[NDArray[Any], ...]  # (h, w) uint8 or uint16, in the memory that both processes see
    pts: int
    duration: int
    batch: _Batch


@dataclass(frozen=True, slots=True)
class _Segment:
    """Frames on their way to one encoder, ended by `None`."""

    number: int
    frames: SimpleQueue[_Picture | None] = field(default_factory=SimpleQueue)


class _Worker:
    """Gives what comes through the socket to encoders in threads of their own, and sends what they make of it."""

    def __init__(self, socket_pair: socket.socket) -> None:
        self._link = socket_pair
        self._job, memory = receive(socket_pair)
        assert isinstance(self._job, EncoderSetup) and memory is not None
        self._memory = mmap.mmap(memory, self._job.memory)
        os.close(memory)
        self._dtype = np.dtype(FORMATS[self._job.coding.pix_fmt].dtype)
        self._work: SimpleQueue[_Segment] = SimpleQueue()  # to be taken up, in order
        self._filling: _Segment | None = None
        self._batches = self._fed = 0
        for _ in range(self._job.encoders):
            threading.Thread(target=self._run, name="segment encoder", daemon=True).start()

    def work(self) -> None:
        """Until the other end is gone."""
        while True:
            message, _ = receive(self._link)
            if isinstance(message, Pictures):
                self._distribute(message)
            elif isinstance(message, Prefault):
                self._make_ready(message.size)
            else:
                self._end_segment()

    def fail(self, exc: Exception) -> None:
        """Tells an error, which is raised again at the other end."""
        if not isinstance(exc, SegmentationError):
            exc.add_note(f"In the encoders' process:\n{''.join(traceback.format_exception(exc))}".rstrip())
        self._tell(Failed(portable(exc)))

    def _tell(self, message: Any, *files: int) -> None:
        with suppress(OSError):  # the other end is gone, and so is the need
            send(self._link, message, *files)

    def _make_ready(self, size: int) -> None:
        """Lets the kernel make the pages of the first `size` bytes, in several threads: left to the first touch, by the
        thread that locks them for the GPU, they come at half a gigabyte a second."""
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        pieces: SimpleQueue[int] = SimpleQueue()
        for begin in range(0, size, _PIECE):
            pieces.put(begin)

        def work() -> None:
            advise = ctypes.CDLL(None).madvise
            advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
            with suppress(Empty):
                while True:
                    begin = pieces.get_nowait()
                    advise(address + begin, min(_PIECE, size - begin), _POPULATE_WRITE)

        for _ in range(min(self._job.encoders, _PAGERS)):
            threading.Thread(target=work, name="pages", daemon=True).start()

    def _distribute(self, pictures: Pictures) -> None:
        batch = _Batch(self._batches, len(pictures.times))
        self._batches += 1
        planes = [
            np.frombuffer(self._memory, self._dtype, math.prod(shape), place).reshape(shape)
            for place, shape in pictures.spots
        ]
        for i, (pts, duration) in enumerate(pictures.times):
            if self._filling is None:
                self._filling = _Segment(self._fed // self._job.frames)
                self._work.put(self._filling)
            self._filling.frames.put(_Picture(tuple(plane[i] for plane in planes), pts, duration, batch))
            self._fed += 1
            if self._fed % self._job.frames == 0:
                self._end_segment()

    def _end_segment(self) -> None:
        if self._filling is not None:
            self._filling.frames.put(None)
            self._filling = None

    def _run(self) -> None:
        """A thread: one segment after the other."""
        try:
            while True:
                segment = self._work.get()
                self._deliver(segment.number, self._encoded(segment.frames))
        except Exception as exc:
            self.fail(exc)

    def _encoded(self, frames: SimpleQueue[_Picture | None]) -> list[Packet[Any]]:
        """All packets of one segment, from an encoder of its own."""
        context = self._context()
        packets: list[Packet[Any]] = []
        try:
            while (frame := frames.get()) is not None:
                packets += context.encode(self._job.coding.lent(frame.planes, frame.pts, frame.duration))
                self._take(frame.batch)
            return packets + context.encode(None)
        except av.error.FFmpegError as exc:
            raise self._job.coding.error(exc) from exc

    def _take(self, batch: _Batch) -> None:
        """To be called for each frame when it is not read any more."""
        with batch.lock:
            batch.left -= 1
            last = batch.left == 0
        if last:
            self._tell(Released(batch.number))

    def _context(self) -> VideoCodecContext:
        """An open encoder, which is like the stream's own in all that a decoder is told once for all segments."""
        coding = self._job.coding
        context = CodecContext.create(coding.library, "w")
        assert isinstance(context, VideoCodecContext)
        context.flags, context.options = self._job.flags, dict(coding.options)
        coding.open(context)
        if context.extradata != self._job.extradata:
            raise OutputError(f"{coding.what}: encoders disagree on the parameters; use --encode x264")
        return context

    def _deliver(self, number: int, packets: list[Packet[Any]]) -> None:
        rows: list[PacketEntry] = []
        file = os.memfd_create("segmentation packets")
        try:
            with open(file, "wb", closefd=False) as out:
                for packet in packets:
                    begin = out.tell()
                    out.write(packet)
                    rows.append(
                        PacketEntry(
                            begin, begin + packet.size, packet.pts, packet.duration or 0, bool(packet.is_keyframe)
                        )
                    )
                    out.write(_PADDING)
                table = out.tell()
                pickle.dump(rows, out, pickle.HIGHEST_PROTOCOL)
            self._tell(Encoded(number, table), file)
        finally:
            os.close(file)


def main(socket_pair: socket.socket) -> None:
    """Works until the other end of the socket is gone."""
    # Signals to end are for the process that has started this one: it ends things in order, and this one with them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Threads that feed the encoders sleep often and must get a core at once when they wake, or all encoders wait.
    os.nice(_NICE)
    with suppress(EOFError):
        worker = _Worker(socket_pair)
        try:
            worker.work()
        except (EOFError, OSError):
            pass
        except Exception as exc:
            worker.fail(exc)
            with suppress(EOFError):
                while True:  # nothing is encoded any more; the other end says when to end
                    receive(socket_pair)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)  # encoders may be at work, which nobody waits for
