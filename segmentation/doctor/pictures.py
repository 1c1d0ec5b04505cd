"""Pictures of a person that moves, made on the spot; files of them, written and read by FFmpeg; their difference."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import av
import cv2
import numpy as np
from av.codec.hwaccel import HWAccel
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange
from av.video.stream import VideoStream
from numpy.typing import NDArray

from segmentation.media.planes import plane_view
from segmentation.models.sample_picture import photo

RATE = 30  # frames a second
_ZOOM = 1.2  # the picture is larger than the frame, which moves over it
_TICK = Fraction(2, 1000)  # seconds: Matroska rounds both ends of a step to milliseconds
_TIME_BASE = Fraction(1, 1000 * RATE)

Luma = NDArray[np.uint8]  # (H, W)


def moving(count: int, size: tuple[int, int], pix_fmt: str = "yuv420p") -> Iterator[VideoFrame]:
    """Yields frames of a width and a height: a window that moves over the package's picture, with noise."""
    width, height = size
    cv2.setRNGSeed(1)
    zeros, deviations = np.zeros(3), np.full(3, 2.0)  # of blue, green and red
    large = cv2.resize(photo(), (round(_ZOOM * width), round(_ZOOM * height)), interpolation=cv2.INTER_CUBIC)
    noise = np.empty((height, width, 3), np.int16)
    for number in range(count):
        part = (1 - np.cos(2 * np.pi * number / 60)) / 2  # to and fro in two seconds
        left, top = int(part * (large.shape[1] - width)), int(part * (large.shape[0] - height))
        window = large[top : top + height, left : left + width].astype(np.int16)
        cv2.randn(noise, zeros, deviations)
        window += noise
        frame = VideoFrame.from_ndarray(np.clip(window, 0, 255).astype(np.uint8), "bgr24").reformat(format=pix_fmt)
        frame.pts, frame.time_base = number * 1000, _TIME_BASE
        yield frame


def write(
    path: Path, frames: Sequence[VideoFrame], library: str, options: Mapping[str, str], hwaccel: HWAccel | None = None
) -> int:
    """Writes a file with one of FFmpeg's encoders; returns the packets' bytes.

    Raises `FFmpegError`.
    """
    size = 0
    with av.open(str(path), "w") as container:
        stream = container.add_stream(library, rate=RATE, hwaccel=hwaccel, options=dict(options))
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = frames[0].width, frames[0].height, frames[0].format.name
        stream.codec_context.time_base = _TIME_BASE
        for frame in (*frames, None):
            for packet in stream.encode(frame):
                size += packet.size
                container.mux(packet)
    return size


def lumas(path: Path) -> list[Luma]:
    """Returns the luma of all frames of a file. Raises `FFmpegError`."""
    with av.open(str(path)) as container:
        return [luma(frame) for frame in container.decode(video=0)]


def limited_lumas(path: Path) -> list[Luma]:
    """Returns the luma of all frames of a video in limited range, 16 to 235: JPEG is in full range.

    Raises `FFmpegError`.
    """
    with av.open(str(path)) as container:
        frames = [(luma(frame), frame.color_range) for frame in container.decode(video=0)]
    return [_limited(picture) if color_range == ColorRange.JPEG else picture for picture, color_range in frames]


def _limited(picture: Luma) -> Luma:
    return np.round(16 + picture * np.float32(219 / 255)).astype(np.uint8)


def times(path: Path) -> list[Fraction]:
    """Returns the times of all frames of a file in seconds. Raises `FFmpegError`."""
    with av.open(str(path)) as container:
        frames = [(frame.pts, frame.time_base) for frame in container.decode(video=0)]
    return [pts * base for pts, base in frames if pts is not None and base is not None]


def luma(frame: VideoFrame) -> Luma:
    """Returns the luma of an 8-bit frame, also of one in gray."""
    return plane_view(frame, 0, np.uint8).copy()


def psnr(expected: Sequence[Luma], actual: Sequence[Luma]) -> float:
    """Returns the peak signal-to-noise ratio of pictures to others in dB, by the mean error of all; 99 if equal."""
    errors = [np.square(a.astype(np.float32) - b).mean() for a, b in zip(expected, actual, strict=True)]
    return round(min(99.0, float(10 * np.log10(255**2 / max(float(np.mean(errors)), 1e-9)))), 2)


def steady(moments: Sequence[Fraction], others: Sequence[Fraction]) -> bool:
    """Returns whether two files' frames follow each other alike, as far as Matroska's clock goes."""
    if len(moments) != len(others):
        return False
    steps, expected = ([after - before for before, after in pairwise(one)] for one in (others, moments))
    return all(abs(a - b) <= _TICK for a, b in zip(steps, expected, strict=True))
