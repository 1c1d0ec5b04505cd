"""Decoders that run anywhere and should differ from the program's own in nothing, for compare_sides.py."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, Any

import av
import av.error
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from segmentation.errors import LacksEngine
from segmentation.frames import Frame, VideoInfo
from segmentation.media.opening.open_input import decoder_options
from segmentation.options.config import Config
from segmentation.stages.decode.chunk_queue import ChunkQueue
from segmentation.stages.decode.chunks import (
    Chunk,
    chunks,
    exact_keyframe,
    is_hidden,
    read,
    size_changes,
    whole,
)
from segmentation.stages.decode.nvdec_support import NVDEC_CODECS, check_exactness
from segmentation.stages.decode.pyav import PyAVDecoder
from segmentation.stages.decode.timestamps import Reorder, missing

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu
    from segmentation.stages.decode.chunks import VideoPacket

LEAST_CHUNK = 8  # packets: less than on a GPU, so that short videos are cut more often


class OneThread(PyAVDecoder):
    """Decodes on one thread, frame after frame."""

    def _decode(self, container: InputContainer, stream: VideoStream) -> Iterator[tuple[VideoFrame, int | None]]:
        stream.thread_type = "NONE"
        stream.codec_context.thread_count = 1
        yield from super()._decode(container, stream)


class InChunks(PyAVDecoder):
    """Takes the way of NVDEC: cuts the packets into chunks, and decodes each with a decoder of its own, FFmpeg's.

    Differences come from the cuts, from what is taken from the container, and from what tells which frames are shown.
    """

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        if info is not None:
            if info.codec not in NVDEC_CODECS:
                raise LacksEngine(f"NVDEC has no decoder for {info.codec}")
            check_exactness(config, info)
        return "FFmpeg, chunk by chunk"

    def __init__(self, info: VideoInfo, pix_fmt: str, config: Config, gpu: Gpu | None = None, **others: Any) -> None:
        super().__init__(info, pix_fmt, config, gpu)
        self._queue: ChunkQueue[Any] = ChunkQueue(1, 1, 1)
        self._reorder = Reorder()  # NVDEC does as much with times that rise in decoding order

    def _frames(self) -> Iterator[Frame]:
        reader = threading.Thread(target=self._read, daemon=True)
        reader.start()
        count, end = 0, Fraction(0)
        while (chunk := self._queue.next_chunk()) is not None:
            for decoded in self._of(chunk):
                if decoded.is_corrupt and count == 0 and self.info.codec == "hevc":
                    continue  # as PyAVDecoder does
                self.damaged += decoded.is_corrupt
                if (decoded.width, decoded.height) != (self.info.width, self.info.height):
                    raise size_changes(self.info)
                stored = self._reorder.next() if self.info.decoding_times else decoded.pts
                pts = self._timeline.place(stored)
                count += 1
                end = max(end, (pts + (decoded.duration or 0)) * self.info.time_base)
                yield Frame(planes=self._planes(decoded), pts=pts, duration=decoded.duration or 0)
            self._queue.finish(chunk, None, 0)
        list(self._queue)  # raises the reader's error
        self.damaged = max(self.damaged + self._lost, missing(self.info, count, end, None, whole=True))

    def _read(self) -> None:
        stop = self._queue.closed
        try:
            packets = read(self.info, None, self._reading_failed, self._lose)
            cuttable = exact_keyframe(self.info.codec)
            cut = whole(packets, stop) if self.info.decoding_times else chunks(packets, cuttable, LEAST_CHUNK, stop)
            for chunk in cut:
                self._queue.open(chunk)
            self._queue.open(None)
        except BaseException as exc:
            self._queue.fail(exc)

    def _of(self, chunk: Chunk[Any]) -> Iterator[VideoFrame]:
        """Yields the frames that belong to a chunk."""
        context: Any = av.CodecContext.create(self.info.codec, "r")
        context.options = decoder_options(self.info.access)
        context.options["flags"] += "+output_corrupt" if self.info.codec == "hevc" else ""
        context.thread_type, context.thread_count = "NONE", 1  # threads by slices may pass over errors
        times: dict[int | None, bool] = {}  # whether the frame of a packet is hidden
        for packet in chain(chunk.packets(), [None]):
            if self._queue.closed.is_set():
                return
            if packet is not None:
                self._reorder.feed(packet.pts)
                times[packet.pts] = packet.is_discard or is_hidden(self.info.codec, packet)
            for frame in self._decoded(context, packet):
                if chunk.shows(frame.pts) and not times.get(frame.pts, False):
                    yield frame

    def _decoded(self, context: Any, packet: VideoPacket | None) -> list[VideoFrame]:
        try:
            return list(context.decode(packet))
        except av.error.FFmpegError:
            self.damaged += packet is not None
            return []

    def _reading_failed(self) -> None:
        self.cut_short = True

    def close(self) -> None:
        self._queue.close()
