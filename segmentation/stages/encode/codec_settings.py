"""Codecs with their default options and quality, and the settings of one of FFmpeg's encoders.

With the same settings, encoders in different processes encode alike.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import av.error
from av.codec.context import Flags
from av.video.codeccontext import VideoCodecContext
from av.video.frame import PictureType, VideoFrame

from segmentation.errors import OutputError, is_exhausted, one_line
from segmentation.frames import FORMATS, Message, Plane, VideoInfo
from segmentation.media.bitstream.sei import LIGHT_LEVEL
from segmentation.media.planes import plane_view
from segmentation.options.rate_factor import RateFactor
from segmentation.system.cores import check_threads, core_count, kept_scheduling

if TYPE_CHECKING:
    from segmentation.options.config import Config


os.environ.setdefault("SVT_LOG", "-1")  # SVT-AV1 would print to stderr, at 0 still where it lacks memory or threads

_COPYING = ("libx264", "libx265")
_LIVE_GOP = 2  # seconds between the keyframes of a live source


@dataclass(frozen=True, slots=True)
class Codec:
    """A codec as FFmpeg encodes it here."""

    library: str
    formats: tuple[str, ...]
    options: dict[str, str]
    quality: RateFactor | None
    lossless: dict[str, str] | None = None  # options that replace the factor at quality 0
    any_size: bool = False  # whether odd sizes are possible with subsampled chroma
    smallest: int = 1  # pixels in width and in height


_ALL = tuple(FORMATS)
# Adaptive quantization gives bits to smooth areas, and macroblock trees to static ones: here the blurred background.
# Without the first people look better at the same size, and without the second encoding is faster. Superfast has no
# macroblock trees. tools/lab/results/rates.json has the figures.
_X264 = "aq-mode=0:bframes=2:b-adapt=0:b-pyramid=none"
_X264_LOW_DELAY = "aq-mode=0"  # these parameters win over a tune, and B-frames wait for the frame after them
CODECS = {
    "h264": Codec("libx264", _ALL, {"preset": "superfast", "x264-params": _X264}, RateFactor(25, 16), {"qp": "0"}),
    "hevc": Codec(
        "libx265", _ALL, {"preset": "fast", "x265-params": "log-level=none"}, RateFactor(18, 11),
        {"x265-params": "log-level=none:lossless=1"}, smallest=64,  # below its coding unit it corrupts the heap
    ),
    # With a side below 26 beside one above its superblock of 64, SVT-AV1 4.1 never returns its last packets.
    "av1": Codec("libsvtav1", ("yuv420p", "yuv420p10le"), {"preset": "8"}, RateFactor(21, 8), smallest=32),
    "ffv1": Codec("ffv1", _ALL, {"level": "3", "slicecrc": "1"}, None, any_size=True),
    "rawvideo": Codec("rawvideo", _ALL, {}, None, any_size=True),
    "v4l2": Codec("rawvideo", ("yuv420p",), {}, None),  # for devices, whose readers expect it
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecSettings:
    """The settings of an encoder, and the frames that it takes."""

    library: str  # FFmpeg's name of the encoder
    info: VideoInfo
    pix_fmt: str
    width: int  # pixels of the encoded picture: those of `info`, or padded
    height: int
    threads: int  # 0: as many as there are cores
    options: dict[str, str]
    tag: str | None  # the codec's name in the container, where FFmpeg's default is wrong

    @property
    def error_prefix(self) -> str:
        """The beginning of error messages."""
        return f"{self.library} can't encode {self.width}x{self.height} {self.pix_fmt}"

    @property
    def frame_bytes(self) -> int:
        """Bytes of a frame's planes, without padding."""
        return FORMATS[self.pix_fmt].frame_bytes(self.info.width, self.info.height)

    @property
    def padded(self) -> bool:
        """Whether the encoded picture is larger than the frames."""
        return (self.width, self.height) != (self.info.width, self.info.height)

    def open(self, context: VideoCodecContext) -> None:
        """Opens a codec context with these settings. Raises `OutputError` where the codec refuses."""
        describe_context(context, self.info, self.tag)
        context.width, context.height, context.pix_fmt = self.width, self.height, self.pix_fmt
        context.thread_count = self.threads
        threads = self.threads or 2 * core_count()
        if self.library == "libx265":
            check_threads(threads)  # it would wait forever for those that can't be started
        try:
            # To look at all threads of the process takes as long as to open another encoder.
            with kept_scheduling() if self.library == "libsvtav1" else nullcontext():
                context.open()
        except (av.error.FFmpegError, ValueError) as exc:
            if is_exhausted(exc):
                raise
            check_threads(threads)  # for which libx264 has no word
            raise self.error(exc) from exc

    def copy_frame(self, planes: Sequence[Plane], pts: int, duration: int) -> VideoFrame:
        """Returns a padded copy of planes (h, w) uint8 or uint16 in FFmpeg's memory. Times are in `info.time_base`."""
        picture = VideoFrame(self.width, self.height, self.pix_fmt)
        for i, plane in enumerate(planes):
            target = plane_view(picture, i, FORMATS[self.pix_fmt].dtype)
            height, width = plane.shape
            target[:height, :width] = plane
            target[height:, :width] = plane[-1:]
            target[:, width:] = target[:, width - 1 : width]
        return self._with_times(picture, pts, duration)

    def wrap_frame(self, planes: tuple[Plane, ...], pts: int, duration: int) -> VideoFrame:
        """Returns a frame that shares the planes' memory, or a copy where the frame is padded.

        libx264 and libx265 copy their input. So the memory is free as soon as `encode` returns. Other encoders get a
        copy, since they refer to their input for longer.
        """
        if self.padded or self.library not in _COPYING:
            return self.copy_frame(planes, pts, duration)
        return self._with_times(VideoFrame.from_dlpack(planes, self.pix_fmt, self.width, self.height), pts, duration)

    def error(self, exc: Exception) -> OutputError:
        """Returns the error to raise for one of FFmpeg's."""
        return OutputError(f"{self.error_prefix} ({one_line(exc)}); try another --codec")

    def _with_times(self, picture: VideoFrame, pts: int, duration: int) -> VideoFrame:
        picture.pts, picture.duration, picture.time_base = pts, duration, self.info.time_base
        return picture


def describe_context(context: VideoCodecContext, info: VideoInfo, tag: str | None) -> None:
    """Sets the stream's properties on a codec context of any encoder: times, pixel aspect ratio, color."""
    context.time_base, context.framerate = info.time_base, info.rate
    context.flags |= Flags.frame_duration
    context.sample_aspect_ratio = info.sample_aspect_ratio or 0  # type: ignore[assignment]
    context.colorspace, context.color_range = info.color.matrix, info.color.range
    context.color_primaries, context.color_trc = info.color.primaries, info.color.transfer
    if tag is not None:
        context.codec_tag = tag


def described_options(library: str, info: VideoInfo, pix_fmt: str) -> dict[str, str]:
    """Returns the options of an encoder that state what a codec context of PyAV can't: chroma's place, HDR10."""
    options = {}
    if info.chroma_location and "420" in info.pix_fmt and "420" in pix_fmt:
        options["chroma_sample_location"] = info.chroma_location
    if library == "libsvtav1" and info.light:
        options["svtav1-params"] = ":".join(map(_svt_light, info.light))
    return options


def _svt_light(message: Message) -> str:
    """Returns SVT-AV1's parameter for a message of HDR10, see `media.sei.light_messages`."""
    kind, payload = message
    if kind == LIGHT_LEVEL:
        return "content-light={},{}".format(*struct.unpack(">2H", payload))
    *places, most, least = struct.unpack(">8H2I", payload)
    pairs = [f"({x / 50_000:.5f},{y / 50_000:.5f})" for x, y in zip(places[::2], places[1::2], strict=True)]
    green, blue, red, white = pairs
    return f"mastering-display=G{green}B{blue}R{red}WP{white}L({most / 10_000:.4f},{least / 10_000:.4f})"


class LiveKeyframes:
    """Asks the encoder for keyframes at a distance in time: files of live sources are cut, and viewers join, there.

    The rate that a live source states is no measure of that distance.
    """

    def __init__(self, info: VideoInfo) -> None:
        self._wanted = info.live is not None
        self._step = round(_LIVE_GOP / info.time_base)
        self._next = self._step

    def mark(self, picture: VideoFrame, pts: int) -> VideoFrame:
        """Returns the next picture, which is shown at `pts` ticks, with its wish for a keyframe."""
        if self._wanted and pts >= self._next:
            picture.pict_type = PictureType.I
            self._next = (pts // self._step + 1) * self._step
        return picture


def codec_options(name: str, config: Config, extra: dict[str, str]) -> dict[str, str]:
    """Returns FFmpeg's options for a codec. `extra` options are added; `-params` are joined with the codec's own."""
    codec = CODECS[name]
    options = dict(codec.options)
    if config.preset is not None:
        options["preset"] = config.preset
        options.pop("x264-params", None)  # tuned together with the default preset
    if config.low_delay:
        options["tune"] = "zerolatency"
        if "x264-params" in options:
            options["x264-params"] = _X264_LOW_DELAY
    if config.quality == 0 and codec.lossless is not None:
        options |= codec.lossless
    elif codec.quality is not None:
        options["crf"] = str(codec.quality.of(config.quality))
    for key, value in extra.items():
        joined = key.endswith("-params") and key in options
        options[key] = f"{options[key]}:{value}" if joined else value
    return options
