"""Encoding on the CPU through PyAV: libx264, and the other software codecs in the same way."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import logging
import os
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import av
import av.error
from av.codec.context import Flags
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from segmentation.config import Config, check_preset
from segmentation.decode.pyav import plane_view
from segmentation.errors import OutputError
from segmentation.frames import FORMATS, Frame, FrameBatch, VideoInfo
from segmentation.mux import Muxer
from segmentation.source import reason

log = logging.getLogger(__name__)

os.environ.setdefault("SVT_LOG", "0")  # SVT-AV1 prints to stderr unless told not to; its errors are raised as well


@dataclass(frozen=True, slots=True)
class _Codec:
    library: str
    formats: tuple[str, ...]
    options: dict[str, str]
    quality: int | None  # default constant rate factor, see tools/rates.py
    lossless: dict[str, str] | None = None  # what replaces it at quality 0
    any_size: bool = False  # whether odd sizes are taken with subsampled chroma
    smallest: int = 1  # pixels in width and in height


_ALL = tuple(FORMATS)
# Adaptive quantization gives bits to what is smooth, and macroblock trees to what stays as it is: here that is the
# background, which is blurred. Without the first the people keep up to 2.5 dB more at the same size, without the second
# a quarter of the encoder's time is saved. What the defaults keep of the people is in tools/results/rates.json.
_X264 = "aq-mode=0:bframes=2:b-adapt=0:b-pyramid=none"
_CODECS = {
    "h264": _Codec("libx264", _ALL, {"preset": "superfast", "x264-params": _X264}, 16, {"qp": "0"}),
    "hevc": _Codec(
        "libx265", _ALL, {"preset": "fast", "x265-params": "log-level=none"}, 11,
        {"x265-params": "log-level=none:lossless=1"}, smallest=64,  # below its coding unit it corrupts the heap
    ),
    "av1": _Codec("libsvtav1", ("yuv420p", "yuv420p10le"), {"preset": "8"}, 8, smallest=16),
    "ffv1": _Codec("ffv1", _ALL, {"level": "3", "slicecrc": "1"}, None, any_size=True),
}  # fmt: skip


class X264Encoder:
    """See `segmentation.encode`. Without a quality: crf 16 (h264), 11 (hevc), 8 (av1), as tools/rates.py found."""

    memory: ClassVar[Literal["host"]] = "host"

    def __init__(
        self,
        muxer: Muxer,
        info: VideoInfo,
        pix_fmt: str,
        config: Config,
        gpu: Any = None,
        *,
        threads: int = 0,
        extra: dict[str, str] | None = None,
    ) -> None:
        """`threads` of the codec: 0 is as many as there are cores. `extra` options of FFmpeg are added to its own."""
        codec = _CODECS[muxer.codec]
        layout = FORMATS[pix_fmt]
        self._info = info
        self._pix_fmt = pix_fmt
        self._dtype = layout.dtype
        self._threads = threads
        # Chroma samples cover whole pixels only, so a subsampled picture of odd size gets its last row or column twice.
        self._width = info.width if codec.any_size else round_up(info.width, layout.shift_x)
        self._height = info.height if codec.any_size else round_up(info.height, layout.shift_y)
        self._as_it_is = (self._width, self._height) == (info.width, info.height)
        if not self._as_it_is:
            padded = f"{info.width}x{info.height} is padded to {self._width}x{self._height}"
            log.warning("%s: %s: %s in %s has even sizes only", info.path, padded, muxer.codec, pix_fmt)
        self._what = f"{codec.library} can't encode {self._width}x{self._height} {pix_fmt}"
        if min(self._width, self._height) < codec.smallest:
            raise OutputError(f"{self._what}: {codec.smallest} is its least width and height; try another --codec")
        self._options = _options(muxer.codec, config, extra or {})
        self._stream = muxer.add_video(codec.library, info, self._options)
        describe_stream(self._stream.codec_context, info, muxer)
        self._open(self._stream.codec_context)

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        return f"{_CODECS[config.codec or 'h264'].library}, FFmpeg {av.ffmpeg_version_info}"

    @staticmethod
    def formats(codec: str) -> tuple[str, ...]:
        return _CODECS[codec].formats

    def encode(self, batch: FrameBatch) -> list[Packet[Any]]:
        packets: list[Packet[Any]] = []
        for frame in batch.frames:
            packets += self._packets(self._copied(frame))
        return packets

    def flush(self) -> list[Packet[Any]]:
        return self._packets(None)

    def close(self) -> None:
        """The codec's own threads end when it is let go."""

    def _open(self, context: VideoCodecContext) -> None:
        context.width, context.height, context.pix_fmt = self._width, self._height, self._pix_fmt
        context.thread_count = self._threads
        try:
            context.open()
        except (av.error.FFmpegError, ValueError) as exc:
            raise self._error(exc) from exc

    def _copied(self, frame: Frame) -> VideoFrame:
        """The frame in FFmpeg's own memory, padded."""
        picture = VideoFrame(self._width, self._height, self._pix_fmt)
        for i, plane in enumerate(frame.planes):
            target = plane_view(picture, i, self._dtype)
            height, width = plane.shape
            target[:height, :width] = plane
            target[height:, :width] = plane[-1:]
            target[:, width:] = target[:, width - 1 : width]
        return self._timed(picture, frame)

    def _timed(self, picture: VideoFrame, frame: Frame) -> VideoFrame:
        picture.pts, picture.duration, picture.time_base = frame.pts, frame.duration, self._info.time_base
        return picture

    def _packets(self, picture: VideoFrame | None) -> list[Packet[Any]]:
        try:
            return list(self._stream.encode(picture))
        except av.error.FFmpegError as exc:
            raise self._error(exc) from exc

    def _error(self, exc: Exception) -> OutputError:
        return OutputError(f"{self._what} ({reason(exc)}); try another --codec")


def describe_stream(context: VideoCodecContext, info: VideoInfo, muxer: Muxer) -> None:
    """Sets what a codec context tells about the stream, whatever encodes it: times, shape of the pixels, colours."""
    context.time_base, context.framerate = info.time_base, info.rate
    context.flags |= Flags.frame_duration
    context.sample_aspect_ratio = info.sample_aspect_ratio or 0  # type: ignore[assignment]
    context.colorspace, context.color_range = info.colour.matrix, info.colour.range
    context.color_primaries, context.color_trc = info.colour.primaries, info.colour.transfer
    if muxer.codec == "hevc" and muxer.container.format.name in ("mp4", "mov"):
        context.codec_tag = "hvc1"  # the form that Apple's players need


def round_up(size: int, shift: int) -> int:
    """The least multiple of 2 ** shift that is not below `size`."""
    return -(-size >> shift) << shift


def _options(name: str, config: Config, extra: dict[str, str]) -> dict[str, str]:
    codec = _CODECS[name]
    options = dict(codec.options)
    if config.preset is not None:
        check_preset(config.preset, name, None)  # in .webm the codec was chosen after the config
        options["preset"] = config.preset
        options.pop("x264-params", None)  # what was tuned together with the default preset
    quality = codec.quality if config.quality is None else config.quality
    if quality == 0 and codec.lossless is not None:
        options |= codec.lossless
    elif quality is not None:
        options["crf"] = str(quality)
    for key, value in extra.items():
        joined = key.endswith("-params") and key in options
        options[key] = f"{options[key]}:{value}" if joined else value
    return options
