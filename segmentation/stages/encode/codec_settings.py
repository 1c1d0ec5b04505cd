"""Settings of one of FFmpeg's encoders: with the same settings, encoders in different processes encode alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import av.error
from av.codec.context import Flags
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from segmentation.errors import OutputError, one_line
from segmentation.frames import FORMATS, Plane, VideoInfo
from segmentation.media.planes import plane_view


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
        try:
            context.open()
        except (av.error.FFmpegError, ValueError) as exc:
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
        """Returns a frame that shares the planes' memory, or a copy where it is padded.

        libx264 and libx265 copy their input. So the memory is free as soon as `encode` returns.
        """
        if self.padded:
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
