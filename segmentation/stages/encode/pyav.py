"""Encoding on the CPU through PyAV: libx264, libx265, SVT-AV1 and FFV1."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import av
import av.error
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from segmentation.errors import OutputError
from segmentation.frames import FORMATS, FrameBatch, Memory, VideoInfo
from segmentation.frames.source import Source
from segmentation.media.muxer import Muxer
from segmentation.media.video_packet import VideoPacket
from segmentation.options.config import Config
from segmentation.stages.encode import Encoder
from segmentation.stages.encode.codec_settings import (
    CODECS,
    CodecSettings,
    LiveKeyframes,
    codec_options,
    describe_context,
    described_options,
)

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu
    from segmentation.stages.encode.worker_process import EncoderService

log = logging.getLogger(__name__)

# Of these codecs FFmpeg takes one and a half threads for each core. Those of many streams are in each other's way, and
# libx264 cuts each picture into as many slices.
_THREADED = ("libx264", "libx265")
_X265_DELAY = 2  # frames, at most, by which x265 has dts before pts


class PyAVEncoder(Encoder):
    """See `segmentation.stages.encode`. Subsampled pictures of odd size are padded, and a line says so."""

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
        threads: int = 0,
        options: dict[str, str] | None = None,
    ) -> None:
        """`threads` of the codec, 0 for as many as there are cores. FFmpeg's `options` are added to the codec's own."""
        codec = CODECS[muxer.codec]
        layout = FORMATS[pix_fmt]
        # Chroma samples cover whole pixels only. So a subsampled picture of odd size gets its last row or column twice.
        self._settings = CodecSettings(
            library=codec.library,
            info=replace(info, source=Source.parse(info.path), live=None),  # the settings go to other processes
            pix_fmt=pix_fmt,
            width=info.width if codec.any_size else round_up(info.width, layout.shift_x),
            height=info.height if codec.any_size else round_up(info.height, layout.shift_y),
            threads=threads or (_live_threads(info) if info.live is not None and codec.library in _THREADED else 0),
            options=codec_options(
                muxer.codec, config, (options or {}) | described_options(codec.library, info, pix_fmt)
            ),
            tag=codec_tag(muxer),
        )
        width, height = self._settings.width, self._settings.height
        if self._settings.padded:
            padded = f"{info.width}x{info.height} is padded to {width}x{height}"
            log.warning("%s: %s: %s in %s has even sizes only", info.path, padded, muxer.codec, pix_fmt)
        if min(width, height) < codec.smallest:
            least = f"{codec.smallest} is its least width and height"
            raise OutputError(f"{self._settings.error_prefix}: {least}; try another --codec")
        self._stream = muxer.add_video(codec.library, info, self._settings.options)
        self._settings.open(self._stream.codec_context)
        self._keyframes = LiveKeyframes(info)
        self._frames = 0  # that were encoded

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        return f"{CODECS[config.codec or 'h264'].library}, FFmpeg {av.ffmpeg_version_info}"

    @staticmethod
    def formats(codec: str) -> tuple[str, ...]:
        return CODECS[codec].formats

    def encode(self, batch: FrameBatch) -> list[VideoPacket]:
        packets: list[VideoPacket] = []
        for frame in batch.frames:
            picture = self._settings.wrap_frame(frame.planes, frame.pts, frame.duration)
            packets += self._packets(self._keyframes.mark(picture, frame.pts))
        self._frames += len(batch)
        return packets

    def flush(self) -> list[VideoPacket]:
        packets = self._packets(None)
        if self._settings.library == "libx265" and self._frames <= _X265_DELAY:
            for packet in packets:  # x265 learns the delay from the frame after it, and gives dts by chance before
                packet.dts = packet.pts
        return packets

    def _packets(self, picture: VideoFrame | None) -> list[VideoPacket]:
        try:
            return list(self._stream.encode(picture))
        except av.error.FFmpegError as exc:
            raise self._settings.error(exc) from exc


def _live_threads(info: VideoInfo) -> int:
    """Two for a picture of 1920x1080, more for larger ones."""
    return 2 * max(1, round(info.width * info.height / (1920 * 1080)))


def describe_stream(context: VideoCodecContext, info: VideoInfo, muxer: Muxer) -> None:
    """Sets the stream's properties on its codec context, see `codec_settings.describe_context`."""
    describe_context(context, info, codec_tag(muxer))


def codec_tag(muxer: Muxer) -> str | None:
    """Returns the codec's name in the container, where FFmpeg's default is wrong: Apple's players need `hvc1`."""
    return "hvc1" if muxer.codec == "hevc" and muxer.container.format.name in ("mp4", "mov") else None


def round_up(size: int, shift: int) -> int:
    """Returns the least multiple of 2 ** shift that is not below `size`."""
    return -(-size >> shift) << shift
