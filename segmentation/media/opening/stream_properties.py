"""Reads single properties of a video stream: color, orientation, length, rate, format."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

import logging
import math
import re
from fractions import Fraction
from typing import TypedDict

import av
import av.error
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from segmentation.errors import InputError
from segmentation.frames import FORMATS, FULL, Color
from segmentation.frames.orientation import UPRIGHT, Orientation
from segmentation.media.bitstream.sei import side_data
from segmentation.media.pictures.exif import exif_of, matrix_of, turned

log = logging.getLogger(__name__)

SMPTE170M = 6  # the matrix BT.601, as H.273 numbers it
_SKEW = 0.02  # of a display matrix: about a degree
_SLOWEST = Fraction(1, 100_000)  # frames a second


def color_of(frame: VideoFrame) -> Color:
    """Returns the color description of a decoded frame; for RGB that of the YUV which swscale makes, BT.601.

    FFmpeg's yuvj formats are full range by name.
    """
    full = frame.format.name.startswith("yuvj")
    return Color(
        matrix=SMPTE170M if frame.format.is_rgb else int(frame.colorspace),
        range=FULL if full else int(frame.color_range),
        primaries=int(frame.color_primaries),
        transfer=int(frame.color_trc),
    )


class ShownAs(TypedDict):
    """How stored frames stand upright, see `VideoInfo`."""

    rotation: int
    mirrored: bool


def shown_as(matrix: tuple[int, ...] | None, path: str) -> ShownAs:
    """Returns the orientation nearest to a display matrix. A line says where the matrix is none of the eight.

    The stored frame's axes point to (matrix[0], matrix[1]) and (matrix[3], matrix[4]) on the screen, right and down.
    """
    if matrix is None:
        return ShownAs(rotation=0, mirrored=False)
    a, b, c, d = matrix[0], matrix[1], matrix[3], matrix[4]
    rotation = round(math.degrees(math.atan2(-b, d)) / 90) * 90 % 360
    small, large = ((a, d), (b, c)) if rotation % 180 else ((b, c), (a, d))
    if max(map(abs, small)) > _SKEW * min(map(abs, large)):
        text = "its display matrix is no quarter turn: players turn the output alike, and the picture is seen turned by"
        log.warning("%s: %s %d degrees", path, text, rotation)
    return ShownAs(rotation=rotation, mirrored=a * d < b * c)


def display_matrix(frame: VideoFrame, *, exif: bytes | None = None) -> tuple[int, ...] | None:
    """Returns the 3x3 matrix by which players turn or mirror the picture, as 9 integers; `None` if there is none.

    `exif` is the coded picture if it may have EXIF data. PyAV lacks that kind of side data, and crashes later if it is
    asked for any. Without them it still has the angle, but not whether the picture is mirrored.
    """
    if exif is not None and (shown := turned(exif_of(exif))) != UPRIGHT:
        return matrix_of(shown)
    for matrix in [] if exif is not None else side_data(frame).get("DISPLAYMATRIX", []):
        return tuple(memoryview(matrix).cast("i"))
    return matrix_of(Orientation(round(frame.rotation / 90) % 4, mirrored=False)) if frame.rotation else None


def stream_length(stream: VideoStream, time_base: Fraction) -> Fraction | None:
    """Returns the stream's own length in seconds, which Matroska keeps in a tag; `None` if the container has none."""
    if stream.container.format.name == "asf":  # each stream of a WMV claims the length of the longest
        return None
    if stream.duration:
        # FFmpeg shortens that of an AVI which is cut off by the bytes that are missing. A frame lasts one tick there.
        ticks = max(stream.duration, stream.frames) if stream.container.format.name == "avi" else stream.duration
        return ticks * time_base
    clock = re.fullmatch(r"(\d+):(\d\d):(\d\d(?:\.\d+)?)", stream.metadata.get("DURATION", ""))
    return None if clock is None else int(clock[1]) * 3600 + int(clock[2]) * 60 + Fraction(clock[3])


def nominal_rate(stream: VideoStream, path: str, *, timed: bool = True) -> Fraction:
    """Returns frames a second for rate control: the first plausible rate of the container, else 30.

    Of streams that are not `timed`, the average rate is only FFmpeg's default, and the guessed one the stream's own.
    Raises `InputError` where a frame is to be shown for days: no container and no encoder keeps such times.
    """
    average, guessed = stream.average_rate, stream.guessed_rate
    stated = (*((average, guessed) if timed else (guessed, average)), stream.base_rate)
    for rate in stated:
        if rate is not None and _SLOWEST <= rate <= 240:
            return Fraction(rate).limit_denominator(100_000)
    if rate := next((rate for rate in stated if rate is not None and 0 < rate < _SLOWEST), None):
        raise InputError(f"{path}: states {float(rate):.3g} frames a second; at least {float(_SLOWEST):g} are possible")
    return Fraction(30)


def working_format(pix_fmt: str, allowed: tuple[str, ...]) -> str:
    """Returns the key of `FORMATS` in which a stream is processed: the nearest to `pix_fmt` of those `allowed`.

    yuvj formats are their plain counterparts. RGB and rare subsamplings become 4:4:4, gray becomes 4:2:0, more than 10
    bits become 10. A format that is not allowed becomes 4:2:0 of the same depth, or of 8 bits.
    """
    plain = pix_fmt.replace("yuvj", "yuv")
    if plain not in FORMATS:
        layout = av.VideoFormat(pix_fmt, 8, 8)
        chroma = {(4, 4): "420", (4, 8): "422"}.get((layout.chroma_width(), layout.chroma_height()), "444")
        gray = not layout.is_rgb and len(layout.components) < 3
        deep = max(c.bits for c in layout.components) > 8
        plain = f"yuv{'420' if gray else chroma}p{'10le' if deep else ''}"
    same_depth = "yuv420p10le" if FORMATS[plain].bits == 10 else "yuv420p"
    return next(f for f in (plain, same_depth, "yuv420p") if f in allowed)
