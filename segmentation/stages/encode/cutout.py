"""Encoding of cut-outs with alpha, on the CPU through FFmpeg: no GPU encodes alpha.

Alpha is straight: colors are not multiplied by it. ProRes 4444 for editors, VP9 for browsers, FFV1 and PNG lossless.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import av
import av.error
import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from segmentation.errors import ConfigError, OutputError, one_line
from segmentation.frames import FORMATS, FULL, LIMITED, Frame, FrameBatch, Memory, PixelFormat, Plane, VideoInfo
from segmentation.frames.orientation import UPRIGHT
from segmentation.media.containers import CUTOUTS
from segmentation.media.muxer import Muxer
from segmentation.media.planes import EXACT, plane_view
from segmentation.media.video_packet import VideoPacket
from segmentation.options.config import Config
from segmentation.options.rate_factor import RateFactor
from segmentation.stages.encode import Encoder
from segmentation.stages.encode.codec_settings import described_options
from segmentation.stages.encode.pyav import describe_stream

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu
    from segmentation.stages.encode.worker_process import EncoderService


@dataclass(frozen=True, slots=True)
class _Codec:
    library: str
    options: dict[str, str]
    formats: tuple[str, ...] = tuple(FORMATS)
    stored: tuple[str, str] | None = None  # pixel formats for 8 and for 10 bits; `None`: the frames' own with alpha
    quality: RateFactor | None = None


_CODECS = {
    "prores": _Codec("prores_ks", {"profile": "4444"}, stored=("yuva444p10le",) * 2),
    # Alternate reference frames, which are shown later, would lose their alpha.
    "vp9": _Codec(
        "libvpx-vp9",
        {"b": "0", "row-mt": "1", "cpu-used": "4", "auto-alt-ref": "0"},
        ("yuv420p",),
        None,
        RateFactor(24, 15),
    ),
    "ffv1": _Codec("ffv1", {"level": "3", "slicecrc": "1"}),
    "png": _Codec("png", {}, stored=("rgba", "rgba64be")),
}


class CutoutEncoder(Encoder):
    """See `segmentation.stages.encode`. Takes frames whose fourth plane is alpha.

    Raises `ConfigError` for a quality where the codec has none.
    """

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
        codec = _CODECS[muxer.codec]
        if config.quality is not None and codec.quality is None:
            raise ConfigError(
                f"quality {config.quality}: {muxer.target.suffix} files of cutouts have none; leave it out"
            )
        self._info = info
        self._layout = FORMATS[pix_fmt]
        self._alpha_format = _with_alpha(self._layout)
        self._converts = codec.stored is not None
        self._stored = codec.stored[self._layout.bits > 8] if codec.stored else self._alpha_format
        # PNG has no rotation, so the pictures themselves are rotated.
        self._orientation = info.orientation if muxer.codec == "png" else UPRIGHT
        options = codec.options | described_options(codec.library, info, self._stored)
        if codec.quality is not None:
            options["crf"] = str(codec.quality.of(config.quality))
        self._stream = muxer.add_video(codec.library, info, options)
        if muxer.codec == "vp9":
            self._stream.metadata["alpha_mode"] = "1"  # else players show the colors alone
        context = self._stream.codec_context
        describe_stream(context, info, muxer)
        context.width, context.height, context.pix_fmt = info.width, info.height, self._stored
        if self._orientation.sideways:
            context.width, context.height = info.height, info.width
            context.sample_aspect_ratio = 1 / (info.sample_aspect_ratio or Fraction(1))
        if self._stored.startswith("rgb"):
            context.colorspace, context.color_range = 0, FULL
        elif muxer.codec == "prores":
            context.color_range = LIMITED  # ProRes and MOV have no tag for the full range
        context.thread_count = 0
        try:
            context.open()
        except (av.error.FFmpegError, ValueError) as exc:
            raise self._error(exc) from exc

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        names = ", ".join(f"{_CODECS[codec].library} ({suffix})" for suffix, codec in CUTOUTS.items())
        return f"FFmpeg {av.ffmpeg_version_info}, with alpha: {names}"

    @staticmethod
    def formats(codec: str) -> tuple[str, ...]:
        return _CODECS[codec].formats

    def encode(self, batch: FrameBatch) -> list[VideoPacket]:
        return [packet for frame in batch.frames for packet in self._packets(self._picture(frame))]

    def flush(self) -> list[VideoPacket]:
        return self._packets(None)

    def _picture(self, frame: Frame) -> VideoFrame:
        """Returns a copy of the frame in FFmpeg's memory, in the stored pixel format."""
        picture = VideoFrame(self._info.width, self._info.height, self._alpha_format)
        for i, plane in enumerate(frame.planes):
            plane_view(picture, i, self._layout.dtype)[:] = plane
        if self._converts:
            picture = self._converted(picture, frame.planes[-1])
        picture.pts, picture.duration, picture.time_base = frame.pts, frame.duration, self._info.time_base
        return picture

    def _converted(self, picture: VideoFrame, alpha: Plane) -> VideoFrame:
        """Returns the picture in the stored pixel format. RGB pictures are rotated, and black where alpha is 0."""
        color = self._info.color
        span = FULL if color.range == FULL else LIMITED
        rgb = self._stored.startswith("rgb")
        converted = picture.reformat(
            format=self._stored,
            src_colorspace=color.swscale,
            dst_colorspace=None if rgb else color.swscale,
            src_color_range=span,
            dst_color_range=FULL if rgb else LIMITED,
            interpolation=EXACT,
        )
        if not rgb:  # swscale shifts the bits: opaque would become nearly opaque
            depth = FORMATS[self._stored.replace("yuva", "yuv")]
            peaks = (1 << depth.bits) - 1, (1 << self._layout.bits) - 1
            plane_view(converted, 3, depth.dtype)[:] = np.rint(alpha * np.float32(peaks[0] / peaks[1]))
            # ProRes takes these from each picture, where swscale leaves its own matrix alone.
            converted.colorspace, converted.color_primaries = color.matrix, color.primaries
            converted.color_trc = color.transfer
            return converted
        pixels = _pixels(converted)
        pixels[alpha == 0] = 0  # subsampled chroma brings colors of neighbors
        if self._orientation == UPRIGHT:
            return converted
        upright = self._orientation.upright(pixels)
        turned = VideoFrame(upright.shape[1], upright.shape[0], self._stored)
        _pixels(turned)[:] = upright
        return turned

    def _packets(self, picture: VideoFrame | None) -> list[VideoPacket]:
        try:
            return list(self._stream.encode(picture))
        except av.error.FFmpegError as exc:
            raise self._error(exc) from exc

    def _error(self, exc: Exception) -> OutputError:
        size = f"{self._info.width}x{self._info.height}"
        return OutputError(f"{self._stream.codec_context.name} can't encode {size} {self._stored} ({one_line(exc)})")


def _with_alpha(layout: PixelFormat) -> str:
    """Returns FFmpeg's name of the layout with a plane of alpha behind it."""
    return layout.name.replace("yuv", "yuva")


def _pixels(frame: VideoFrame) -> NDArray[np.uint8]:
    """Returns a view (H, W, bytes a pixel) of an RGB frame."""
    plane = frame.planes[0]
    rows: NDArray[np.uint8] = np.frombuffer(memoryview(plane), np.uint8).reshape(plane.height, plane.line_size)
    size = frame.format.padded_bits_per_pixel // 8
    shape, strides = (plane.height, plane.width, size), (plane.line_size, size, 1)
    return np.lib.stride_tricks.as_strided(rows, shape, strides)
