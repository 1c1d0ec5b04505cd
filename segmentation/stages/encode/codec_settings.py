"""How a stream is encoded: all that makes one encoder of FFmpeg's like another, in whatever process it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import av.error
from av.codec.context import Flags
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from segmentation.errors import OutputError, one_line
from segmentation.frames import FORMATS, VideoInfo
from segmentation.media.planes import plane_view


@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    """The settings of an encoder. Raises `OutputError` for whatever the codec refuses."""

    library: str  # FFmpeg's name of the encoder
    info: VideoInfo
    pix_fmt: str
    width: int  # pixels of what is encoded: those of `info`, or padded
    height: int
    threads: int  # 0: as many as there are cores
    options: dict[str, str]
    tag: str | None  # the codec's name in the container, where it is not the usual one

    @property
    def what(self) -> str:
        """How messages about it begin."""
        return f"{self.library} can't encode {self.width}x{self.height} {self.pix_fmt}"

    @property
    def padded(self) -> bool:
        """Whether pictures are made larger than they come."""
        return (self.width, self.height) != (self.info.width, self.info.height)

    def open(self, context: VideoCodecContext) -> None:
        describe_context(context, self.info, self.tag)
        context.width, context.height, context.pix_fmt = self.width, self.height, self.pix_fmt
        context.thread_count = self.threads
        try:
            context.open()
        except (av.error.FFmpegError, ValueError) as exc:
            raise self.error(exc) from exc

    def copied(self, planes: Any, pts: int, duration: int) -> VideoFrame:
        """A picture in FFmpeg's own memory, padded. Planes: (h, w) uint8 or uint16; times in `info.time_base`."""
        picture = VideoFrame(self.width, self.height, self.pix_fmt)
        for i, plane in enumerate(planes):
            target = plane_view(picture, i, FORMATS[self.pix_fmt].dtype)
            height, width = plane.shape
            target[:height, :width] = plane
            target[height:, :width] = plane[-1:]
            target[:, width:] = target[:, width - 1 : width]
        return self._timed(picture, pts, duration)

    def lent(self, planes: Any, pts: int, duration: int) -> VideoFrame:
        """The planes' own memory as a picture, where it is not to be padded: libx264 and libx265 copy what they take.

        NumPy does not lend arrays that are read-only.
        """
        if self.padded:
            return self.copied(planes, pts, duration)
        return self._timed(VideoFrame.from_dlpack(planes, self.pix_fmt, self.width, self.height), pts, duration)

    def error(self, exc: Exception) -> OutputError:
        return OutputError(f"{self.what} ({one_line(exc)}); try another --codec")

    def _timed(self, picture: VideoFrame, pts: int, duration: int) -> VideoFrame:
        picture.pts, picture.duration, picture.time_base = pts, duration, self.info.time_base
        return picture


def describe_context(context: VideoCodecContext, info: VideoInfo, tag: str | None) -> None:
    """Sets what a codec context tells about the stream, whatever encodes it: times, shape of the pixels, colors."""
    context.time_base, context.framerate = info.time_base, info.rate
    context.flags |= Flags.frame_duration
    context.sample_aspect_ratio = info.sample_aspect_ratio or 0  # type: ignore[assignment]
    context.colorspace, context.color_range = info.color.matrix, info.color.range
    context.color_primaries, context.color_trc = info.color.primaries, info.color.transfer
    if tag is not None:
        context.codec_tag = tag
