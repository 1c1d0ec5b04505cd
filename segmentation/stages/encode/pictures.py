"""Encoding of moving pictures without a video codec: GIF, animated WebP, and numbered PNG, JPEG or WebP files.

They are RGB, upright, and shown again and again where they are animations. A cut-out keeps its alpha in WebP.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import av
import av.error
from av import VideoFormat
from av.filter import Graph
from av.packet import Packet
from av.video.frame import VideoFrame

from segmentation.errors import OutputError, one_line
from segmentation.frames import FORMATS, Frame, FrameBatch, Memory, VideoInfo
from segmentation.media.muxer import Muxer
from segmentation.media.output_clock import shown_at
from segmentation.media.pictures.gif import LEAST, TICK
from segmentation.media.pictures.picture_sequence import PictureSequence
from segmentation.media.pictures.still import QUALITY, encode_still
from segmentation.media.planes import rgb_of
from segmentation.media.video_packet import VideoPacket
from segmentation.options.config import Config
from segmentation.stages.encode import Encoder

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu
    from segmentation.stages.encode.worker_process import EncoderService

log = logging.getLogger(__name__)

# FFmpeg's encoders and the pixel format of opaque frames.
_LIBRARIES = {
    "gif": ("gif", "pal8"),
    "webp": ("libwebp_anim", "bgra"),
    "png": ("png", "rgb24"),
    "jpeg": ("mjpeg", "yuvj444p"),
}

_LONGEST = (1 << 24) - 1  # milliseconds that WebP shows a frame
# The unit of an animation's times in seconds, and the fewest units of a frame that players don't show for a tenth of a
# second: browsers do so up to 10 ms.
_LEAST = {"gif": (TICK, LEAST), "webp": (Fraction(1, 1000), 11)}


class PicturesEncoder(Encoder):
    """See `segmentation.stages.encode`. Takes frames of 8 bits, and cut-outs."""

    memory: ClassVar[Memory] = "host"

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
        self._info, self._pix_fmt, self._quality = info, pix_fmt, config.quality
        self._codec = muxer.codec
        self._separate = isinstance(muxer, PictureSequence)  # a file for each frame
        assert isinstance(muxer.target, Path), "pipes hold no pictures"
        self._target = muxer.target
        self._first: int | None = None  # pts
        self._length = 0  # ticks from the first frame to the end of the last
        self._step = round(1 / info.rate / info.time_base)  # of a frame whose duration is unknown
        self._waiting: list[VideoPacket] = []  # the last one, whose duration the next one tells
        self._shown: Fraction | None = None  # seconds: where the last frame that was encoded begins
        self._left_out = 0  # frames
        self._muxer = muxer
        library, stored = _LIBRARIES[muxer.codec]
        self._size = info.upright_size
        quality = QUALITY.of(config.quality)
        options = {"quality": str(quality), "lossless": str(int(quality == 100))} if muxer.codec == "webp" else {}
        self._stream = muxer.add_video(library, info, options)
        context = self._stream.codec_context
        context.width, context.height = self._size
        context.pix_fmt, context.time_base, context.framerate = stored, info.time_base, info.rate
        try:
            context.open()
        except (av.error.FFmpegError, ValueError) as exc:
            raise self._error(exc) from exc
        self._palettes = _Palettes(self._size, info) if muxer.codec == "gif" else None

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        return f"FFmpeg {av.ffmpeg_version_info} for GIF and animated WebP, OpenCV for numbered pictures"

    @staticmethod
    def formats(codec: str) -> tuple[str, ...]:
        return tuple(name for name, layout in FORMATS.items() if layout.bits == 8)

    def encode(self, batch: FrameBatch) -> list[VideoPacket]:
        packets: list[VideoPacket] = []
        for frame in batch.frames:
            if not self._separate and self._too_soon(frame):
                self._left_out += 1
                continue
            pixels = rgb_of(frame.planes, self._pix_fmt, self._info)
            if self._separate:
                packets.append(self._packet(encode_still(pixels, self._target, self._quality), frame.pts))
                packets[-1].duration = frame.duration
                continue
            picture = VideoFrame.from_ndarray(pixels, "rgb24" if pixels.shape[2] == 3 else "rgba")
            picture.pts, picture.duration = frame.pts - (self._first or 0), frame.duration
            picture.time_base = self._info.time_base
            packets += self._encoded(picture)
        return packets

    def flush(self) -> list[VideoPacket]:
        if self._left_out:
            tick, least = _LEAST[self._codec]
            frames = "1 frame is" if self._left_out == 1 else f"{self._left_out} frames are"
            text = "%s: %s left out, since a player shows each for %d ms at least; the speed stays"
            log.warning(text, self._target, frames, 1000 * tick * least)
        return [] if self._separate else self._encoded(None)

    def _too_soon(self, frame: Frame) -> bool:
        """Counts a frame of an animation in. Returns whether it would end the one that is shown too soon."""
        self._first = frame.pts if self._first is None else self._first
        self._length = frame.pts + (frame.duration or self._step) - self._first
        tick, least = _LEAST[self._codec]
        base = self._info.time_base
        shift = self._first * base if self._codec == "webp" else self._muxer.shift
        begin = shown_at(frame.pts, base, shift, tick)
        if self._shown is not None and begin - self._shown < least * tick:
            return True
        self._shown = begin
        return False

    def _encoded(self, picture: VideoFrame | None) -> list[VideoPacket]:
        """Returns the packets of an animation that are ready, with the frames' own times."""
        packets: list[VideoPacket] = []
        try:
            if self._palettes is not None:
                for made in self._palettes(picture):
                    packets += self._stream.encode(made)
            elif picture is not None:
                packets += self._stream.encode(picture.reformat(format="bgra"))
            if picture is None:
                packets += map(self._with_length, self._stream.encode(None))
        except av.error.FFmpegError as exc:
            raise self._error(exc) from exc
        for packet in packets:  # WebP's encoder writes times into the file itself, so that they begin at 0 there
            packet.pts = packet.dts = (packet.pts or 0) + (self._first or 0)
        return self._with_durations(packets, ended=picture is None)

    def _with_durations(self, packets: list[VideoPacket], *, ended: bool) -> list[VideoPacket]:
        """Returns the packets whose duration is known: each lasts to the next one, and the last to the end."""
        known = [*self._waiting, *packets]
        self._waiting = [] if ended else known[-1:]
        ends = [packet.pts or 0 for packet in known[1:]]
        if ended:
            ends.append((self._first or 0) + self._length)
        for packet, end in zip(known, ends, strict=False):
            packet.duration = end - (packet.pts or 0)
        return known[: len(ends)]

    def _with_length(self, packet: VideoPacket) -> VideoPacket:
        """Returns the packet; that of WebP, which is the whole file, so long as its frames are.

        FFmpeg leaves the last frame's duration to libwebp, which takes the mean of the others.
        """
        if self._stream.codec_context.name != "libwebp_anim":
            return packet
        data, at, frames = bytearray(bytes(packet)), 12, []
        while at < len(data):
            if data[at : at + 4] == b"ANMF":
                frames.append(slice(at + 20, at + 23))  # a header of 8 bytes, then place and size in 12
            size = int.from_bytes(data[at + 4 : at + 8], "little")
            at += 8 + size + size % 2
        if frames:
            before = sum(int.from_bytes(data[place], "little") for place in frames[:-1])
            length = round(self._length * self._info.time_base * 1000) - before
            data[frames[-1]] = max(_LEAST["webp"][1], min(length, _LONGEST)).to_bytes(3, "little")
        return self._packet(bytes(data), packet.pts or 0)

    def _packet(self, data: bytes, pts: int) -> VideoPacket:
        packet: VideoPacket = Packet(data)  # type: ignore[assignment]
        packet.stream, packet.time_base = self._stream, self._info.time_base
        packet.pts = packet.dts = pts
        packet.is_keyframe = True
        return packet

    def _error(self, exc: Exception) -> OutputError:
        width, height = self._size
        return OutputError(
            f"{self._target}: {self._stream.codec_context.name} can't encode {width}x{height} ({one_line(exc)})"
        )


class _Palettes:
    """Gives each frame the 256 colors that fit it best, dithered."""

    def __init__(self, size: tuple[int, int], info: VideoInfo) -> None:
        graph = self._graph = Graph()
        source = graph.add_buffer(width=size[0], height=size[1], format=VideoFormat("rgb24"), time_base=info.time_base)
        split, generate = graph.add("split"), graph.add("palettegen", "stats_mode=single:reserve_transparent=0")
        use, sink = graph.add("paletteuse", "new=1"), graph.add("buffersink")
        source.link_to(split)
        split.link_to(use, 0, 0)
        split.link_to(generate, 1, 0)
        generate.link_to(use, 0, 1)
        use.link_to(sink)
        graph.configure()

    def __call__(self, picture: VideoFrame | None) -> Iterator[VideoFrame]:
        """Yields the frames that are ready after this one; `None` is the end."""
        self._graph.push(picture)
        while True:
            try:
                made = self._graph.pull()
            except (av.error.BlockingIOError, av.error.EOFError):
                return
            assert isinstance(made, VideoFrame)
            yield made
