"""Decodes with FFmpeg on the CPU, through PyAV, on all cores."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import av
import av.error
import numpy as np
from av.container import InputContainer
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from segmentation.errors import is_exhausted, one_line
from segmentation.frames import FORMATS, FULL, Frame, FrameBatch, Memory, Plane, VideoInfo
from segmentation.media.bitstream.losses import A_FRAME_EACH, AwaitedFrames
from segmentation.media.bitstream.sei import MessageReader
from segmentation.media.bitstream.whole_packets import whole_packets
from segmentation.media.encryption import refuse_encrypted
from segmentation.media.opening.open_input import CONCEALED, decoder_options, open_input
from segmentation.media.planes import EXACT, bounded_view
from segmentation.media.source_packets import SourcePackets, leads_there
from segmentation.options.config import Config
from segmentation.stages.decode import Decoder
from segmentation.stages.decode.constancy import Constancy, is_recolored
from segmentation.stages.decode.timestamps import Reorder, Timeline, length, missing

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu
    from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool

log = logging.getLogger(__name__)


class PyAVDecoder(Decoder):
    """See `segmentation.stages.decode`. Planes are views of FFmpeg's reference-counted buffers, not copies."""

    memory: ClassVar[Memory] = "host"

    def __init__(
        self,
        info: VideoInfo,
        pix_fmt: str,
        config: Config,
        gpu: Gpu | None = None,
        *,
        sessions: NvdecSessionPool | None = None,
    ) -> None:
        self.info = info
        self.level = logging.WARNING  # of what is said about the input
        self.damaged = 0
        self._format = FORMATS[pix_fmt]
        self._batch_size = config.batch_size or 1
        self._limit = config.max_frames
        self._timeline = Timeline(info, config)
        self._messages = MessageReader(info)
        self._resized = self._recolored = False
        self._lost = 0  # packets that can't be decoded

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        return f"FFmpeg {av.ffmpeg_version_info} (PyAV {av.__version__}), threads"

    def __iter__(self) -> Iterator[FrameBatch]:
        batch: list[Frame] = []
        count = number = 0
        for frame in self._frames():
            batch.append(frame)
            count += 1
            full = self._limit is not None and count >= self._limit
            if len(batch) == self._batch_size or full:
                yield FrameBatch(frames=tuple(batch), index=count - len(batch), number=number)
                batch = []
                number += 1
            if full:
                return
        if batch:
            yield FrameBatch(frames=tuple(batch), index=count - len(batch), number=number)

    def _frames(self) -> Iterator[Frame]:
        """Yields the frames of the wanted stretch."""
        timeline = self._timeline
        # A pipe is opened once alone: it keeps its beginning no longer than until then, and no seek leads on in it.
        for decoded, pts in self._sought(None if self.info.source.is_read_once else timeline.first):
            pts = timeline.place(pts)
            if timeline.over(pts):
                return
            if timeline.begun(pts):
                messages = self._messages.of_frame(decoded)
                yield Frame(planes=self._planes(decoded), pts=pts, duration=self._length(decoded), messages=messages)

    def _sought(self, first: int | None) -> Iterator[tuple[VideoFrame, int | None]]:
        """Yields frames and pts from the keyframe before `first`, or from the beginning if no seek leads there."""
        with self.opened() as (container, stream):
            frames = self._decode(container, stream) if first is None else self._since(container, stream, first)
            if frames is not None:
                yield from frames
                return
        yield from self._sought(None)  # the caller drops frames that are too early

    @contextmanager
    def opened(self) -> Iterator[tuple[InputContainer, VideoStream]]:
        """Opens the input, with the stream as it is decoded. Raises `InputError`."""
        with open_input(self.info.source, self.info.access) as container:
            stream = container.streams[self.info.stream_index]
            assert isinstance(stream, VideoStream)
            stream.thread_type = "AUTO"
            stream.codec_context.options = decoder_options(self.info.access, self.info.codec)
            yield container, stream

    def _since(
        self, container: InputContainer, stream: VideoStream, first: int
    ) -> Iterator[tuple[VideoFrame, int | None]] | None:
        """Returns frames and pts from the keyframe before `first` on; `None` if no seek leads there."""
        if self.info.source.is_read_once or self.info.decoding_times or not leads_there(self.info):
            return None
        try:
            container.seek(first, stream=stream)
            frames = self._decode(container, stream)
            decoded, pts = next(frames, (None, None))
            if decoded is not None and pts is not None and pts <= first:
                return chain([(decoded, pts)], frames)
        except av.error.FFmpegError as exc:
            log.info("%s: can't seek: %s", self.info.path, exc)
        return None

    def _decode(self, container: InputContainer, stream: VideoStream) -> Iterator[tuple[VideoFrame, int | None]]:
        """Yields frames with their pts. Decodes packet by packet, so that a bad packet costs its own frame alone."""
        reorder = Reorder() if self.info.decoding_times else None
        awaited, constancy = AwaitedFrames(), Constancy(self.info, self._differ)
        frames = broken = 0
        end = Fraction(0)
        for packet in self._packets(container, stream):
            refuse_encrypted(packet, self.info.path)
            if reorder is not None:
                reorder.feed(packet.pts)
            awaited.feed(packet)
            try:
                decoded = packet.decode()
            except av.error.FFmpegError as exc:
                if is_exhausted(exc) and not stream.codec_context.is_open:
                    raise  # no thread can be started
                log.info("%s: packet at pts %s can't be decoded: %s", self.info.path, packet.pts, exc)
                self._lost += bool(packet.size)
                continue
            finally:
                self.damaged = self._lost + broken
            if decoded:
                constancy.check_aspect(stream.codec_context.sample_aspect_ratio)
            for frame in decoded:
                if frame.is_corrupt and frames == broken == 0 and self.info.codec in CONCEALED:
                    continue  # of a group whose beginning is missing
                frames += 1
                broken += frame.is_corrupt
                pts = frame.pts if reorder is None else reorder.next()
                end = max(end, ((pts or 0) + self._length(frame)) * self.info.time_base)
                awaited.take(frame)
                constancy.check_turn(frame.rotation)
                yield frame, pts
        whole = self._timeline.first is None
        lost = max(self._lost, missing(self.info, frames, end, self.source, whole=whole))
        if self.info.codec in A_FRAME_EACH and reorder is None:
            lost = max(lost, awaited.lost)
        self.damaged = lost + broken

    def _packets(self, container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
        """Yields the packets, and an empty one that brings the last frames, also where reading ends early."""
        packets: Any = SourcePackets(container, stream)
        self.source = packets
        try:
            yield from whole_packets(packets, self._lose)
        except av.error.FFmpegError as exc:
            self._end_early(one_line(exc))
        stream_of_bytes = self.info.source.stream
        if stream_of_bytes is not None and stream_of_bytes.fault:
            self._end_early(stream_of_bytes.fault)
        last: Any = Packet()
        last.stream = stream
        yield last

    def _end_early(self, reason: str) -> None:
        log.log(self.level, "%s: reading ended early: %s", self.info.path, reason)
        self.cut_short = True

    def _differ(self, text: str) -> None:
        log.log(self.level, text)
        self.cut_short = True

    def _lose(self) -> None:
        self._lost += 1

    def _length(self, frame: VideoFrame) -> int:
        return length(self.info, frame.duration, fields=frame.interlaced_frame)

    def _planes(self, frame: VideoFrame) -> tuple[Plane, Plane, Plane]:
        """Returns (Y, U, V) views in the working format. Converts frames whose format or size differs."""
        info, layout = self.info, self._format
        if (frame.width, frame.height) != (info.width, info.height) and not self._resized:
            self._resized = True
            log.log(
                self.level,
                "%s: the picture's size changes to %dx%d on the way; kept at %dx%d",
                *(info.path, frame.width, frame.height, info.width, info.height),
            )
        if frame.format.is_rgb and any(c.is_alpha for c in frame.format.components):
            frame = _on_white(frame)
        same_size = (frame.width, frame.height) == (info.width, info.height)
        matrix, recolored = frame.colorspace, self._is_recolored(frame)
        if frame.format.name.replace("yuvj", "yuv") != layout.name or not same_size or recolored:
            span = FULL if info.color.range == FULL else 1
            frame = frame.reformat(
                info.width,
                info.height,
                layout.name,
                src_colorspace=replace(info.color, matrix=int(matrix)).swscale if recolored else None,
                dst_colorspace=info.color.swscale if recolored else None,
                interpolation=EXACT if recolored else None,
                src_color_range=None if frame.format.is_rgb else span,
                dst_color_range=span,
            )
        y, u, v = (bounded_view(frame, i, layout) for i in range(3))
        return y, u, v

    def _is_recolored(self, frame: VideoFrame) -> bool:
        """Returns whether a frame has another matrix than the first, and says so once."""
        if not is_recolored(frame, self.info):
            return False
        if not self._recolored:
            self._recolored = True
            log.log(
                self.level, "%s: the color matrix changes on the way; colors are converted to the first", self.info.path
            )
        return True


def _on_white(frame: VideoFrame) -> VideoFrame:
    """Returns an RGB frame with alpha before white, without alpha: colors of transparent pixels mean nothing."""
    pixels = frame.to_ndarray(format="rgba")
    alpha = pixels[..., 3:] / np.float32(255)
    return VideoFrame.from_ndarray(np.rint(pixels[..., :3] * alpha + 255 * (1 - alpha)).astype(np.uint8), "rgb24")
