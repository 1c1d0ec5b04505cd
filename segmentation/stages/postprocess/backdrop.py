"""Reads the new background: an image, or a video that begins again when it ends.

FFmpeg reads and converts the file on the host, also where a GPU composites. A few decoded pictures are in memory,
however long the video is.
"""

import logging
import math
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av.error
import cv2
import numpy as np
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from segmentation.errors import InputError
from segmentation.frames import FORMATS, FULL, LIMITED, PixelFormat, Plane, Planes, VideoInfo
from segmentation.media.opening.open_input import decoder_options, open_input
from segmentation.media.opening.probe import ALPHA, probe
from segmentation.media.planes import EXACT, bounded_view
from segmentation.media.source_packets import SourcePackets, leads_there
from segmentation.options.config import Config
from segmentation.options.effect import Effect
from segmentation.options.times import exact
from segmentation.system.access import MAX_PIXELS, Access
from segmentation.system.cores import core_count

log = logging.getLogger(__name__)

MOST_WORKERS = core_count()  # threads that work on frames at once
_MOST_PICTURES = 64  # decoded, in memory


def check_backdrop(effect: Effect, config: Config) -> str:
    """Describes the effect's file in words, an empty string for effects without a file.

    Raises `InputError` if the file can't be used.
    """
    if not effect.file:
        return ""
    info = _probe(effect, _access(config))
    return f" ({info.width}x{info.height}, {info.codec})"


def _access(config: Config) -> Access:
    """Returns the limits of the effect's file: the size of frames is the input's."""
    return Access(max_pixels=config.max_pixels)


def _probe(effect: Effect, access: Access) -> VideoInfo:
    try:
        return probe(effect.file, access)
    except InputError as exc:
        raise InputError(f"effect {effect.kind}: {exc}") from exc


@dataclass(slots=True)
class _Shown:
    """A picture of the file, and when it is shown."""

    time: Fraction  # seconds from the beginning of the file
    duration: Fraction  # seconds, 0 if unknown
    picture: VideoFrame | Planes  # as decoded, and as planes from its first use on


class Backdrop:
    """Calling it with a frame's pts returns the planes behind the frame, in the frame's size, layout and colors.

    The picture is turned and mirrored like the stored frame, so that it stands upright where the frame is shown. It is
    scaled without distortion to cover the frame, and cut off on both sides. With `contain` it is scaled to fit into the
    frame, between black bars. Several threads may call at once. Raises `InputError` if the file can't be used.
    """

    def __init__(self, info: VideoInfo, pix_fmt: str, effect: Effect, config: Config, workers: int = 1) -> None:
        """`info` is the input video. `workers` threads each take frames of one batch, so not in the video's order."""
        self._info, self._own = info, _probe(effect, _access(config))
        self._effect = effect
        if ALPHA in self._own.left_out:
            log.warning("%s: its alpha is not read: transparent parts show the colors below", effect.file)
        self._file = str(Path(effect.file).absolute())  # opened again later, when the current folder may be another
        self._fit = _Fit(info, self._own, pix_fmt, contain=effect.contain)
        self._begin = info.start + exact(config.start)
        self._lock = threading.Lock()
        apart = (workers - 1) * (config.batch_size or 1) * self._own.rate / info.rate
        self._recent: deque[_Shown] = deque(maxlen=min(_MOST_PICTURES, 3 + math.ceil(apart)))
        self._length: Fraction | None = None  # seconds after which the file begins again, once its end was reached
        self._ended = False  # whether the last picture of the file is the last of `_recent`
        self._pictures: Iterator[_Shown] = iter(())
        self._container, self._stream = self._opened()
        self._restart()
        self.still = effect.kind == "image"
        self._first = self._next()
        if self.still:
            self.close()

    def close(self) -> None:
        """Closes the file and its decoder, whose threads hold memory."""
        self._container.close()
        self._pictures = iter(())
        self._recent.clear()

    def __call__(self, pts: int) -> Planes:
        """Returns the planes behind the frame at `pts`, in ticks of the input's time base."""
        with self._lock:
            time = max(Fraction(0), pts * self._info.time_base - self._begin)
            shown = self._first if self.still else self._at(time)
            if isinstance(shown.picture, VideoFrame):
                shown.picture = self._fit(shown.picture)
            return shown.picture

    def _at(self, time: Fraction) -> _Shown:
        """Returns the picture that is shown `time` seconds after the file began for the first time."""
        sought = False
        while True:
            if self._length is not None:
                time %= self._length
            before = [shown for shown in self._recent if shown.time <= time]
            if before and (len(before) < len(self._recent) or self._ended):
                return before[-1]
            if not before and self._recent and self._recent[0].time == self._first.time:
                return self._recent[0]  # the file's first picture, which may begin later than the file
            if not before and self._recent and not sought:
                self._seek(time)
                sought = True
            elif not before and self._recent:  # the seek led too far: read from the beginning
                self._open_again()
                self._recent.clear()
                self._next()
            else:
                self._next()

    def _next(self) -> _Shown:
        """Decodes the next picture and returns it. At the end of the file, sets the length and returns the last."""
        shown = next(self._pictures, None)
        if shown is not None:
            self._recent.append(shown)
            return shown
        if not self._recent:  # after a seek: the file was damaged since it was opened
            raise InputError(f"{self._effect.file}: can't be read further")
        last = self._recent[-1]
        self._ended = True
        if self._length is None:
            self._length = last.time + (last.duration or 1 / self._own.rate)
        return last

    def _opened(self) -> tuple[InputContainer, VideoStream]:
        container = open_input(self._file, self._own.access)
        stream = container.streams[self._own.stream_index]
        assert isinstance(stream, VideoStream)
        stream.thread_type = "AUTO"
        stream.codec_context.options = decoder_options(self._own.access)
        return container, stream

    def _open_again(self) -> None:
        self.close()
        self._container, self._stream = self._opened()
        self._restart()

    def _seek(self, time: Fraction) -> None:
        """Continues at the keyframe before `time`, or at the beginning of a file that can't be sought."""
        there = int((time + self._own.start) / self._own.time_base)
        try:
            if leads_there(self._own):
                self._container.seek(there, stream=self._stream)
            else:
                self._open_again()
        except av.error.FFmpegError:
            self._open_again()
        self._recent.clear()
        self._restart()
        self._next()

    def _restart(self) -> None:
        self._ended = False
        self._pictures = self._decode()

    def _decode(self) -> Iterator[_Shown]:
        """Yields the pictures from the file's present position on, except damaged pictures."""
        packets = iter(SourcePackets(self._container, self._stream))
        while True:
            try:
                packet = next(packets, None)
                frames = packet.decode() if packet is not None else []
            except av.error.FFmpegError:
                continue
            if packet is None:
                return
            base = self._own.time_base
            for frame in frames:
                assert isinstance(frame, VideoFrame)
                time = max(Fraction(0), (frame.pts or 0) * base - self._own.start)
                yield _Shown(time, (frame.duration or 0) * base, frame)


class _Fit:
    """Calling it with a picture of the file returns the planes of a frame."""

    def __init__(self, info: VideoInfo, own: VideoInfo, pix_fmt: str, *, contain: bool) -> None:
        self._layout = FORMATS[pix_fmt]
        self._color = info.color
        self._to_frame = own.orientation.then(info.orientation.inverse)  # from the stored picture
        self._size, aspect = self._to_frame.size(info.width, info.height), info.sample_aspect_ratio or Fraction(1)
        if self._to_frame.sideways:
            aspect = 1 / aspect
        wide = own.width * (own.sample_aspect_ratio or 1) / aspect  # in pixels of the frame's width
        ratios = self._size[0] / wide, Fraction(self._size[1], own.height)
        scale = min(ratios) if contain else max(ratios)
        self._scaled = max(1, round(wide * scale)), max(1, round(own.height * scale))
        if self._scaled[0] * self._scaled[1] > MAX_PIXELS:
            raise InputError(f"{own.path}: {own.width}x{own.height} can't cover {info.width}x{info.height}; crop it")

    def __call__(self, frame: VideoFrame) -> Planes:
        layout, color = self._layout, self._color
        full = frame.reformat(
            *self._scaled,
            f"yuv444p{'10le' if layout.bits == 10 else ''}",  # turning and cutting need whole pixels
            dst_colorspace=color.swscale,
            dst_color_range=FULL if color.range == FULL else LIMITED,
            interpolation=EXACT,
        )
        black = color.from_rgb((0, 0, 0), layout.bits)
        y, u, v = (
            self._to_frame.upright(_centered(bounded_view(full, i, layout), self._size, value))
            for i, value in enumerate(black)
        )
        return subsampled((y, u, v), layout)


def subsampled(planes: Planes, layout: PixelFormat) -> Planes:
    """Returns planes of 4:4:4 in another layout of the same depth, with chroma averaged."""
    across, down = 1 << layout.shift_x, 1 << layout.shift_y

    def averaged(plane: Plane) -> Plane:
        height, width = plane.shape
        padded = np.pad(plane, ((0, -height % down), (0, -width % across)), mode="edge")
        size = (padded.shape[1] // across, padded.shape[0] // down)
        return np.ascontiguousarray(cv2.resize(padded, size, interpolation=cv2.INTER_AREA))

    return np.ascontiguousarray(planes[0]), averaged(planes[1]), averaged(planes[2])


def _centered(plane: Plane, size: tuple[int, int], black: int) -> Plane:
    """Returns the middle of a plane at `size` (width, height), with `black` where the plane is smaller."""
    (height, width), (wanted_width, wanted_height) = plane.shape, size
    left, top = max(0, width - wanted_width) // 2, max(0, height - wanted_height) // 2
    middle = plane[top : top + wanted_height, left : left + wanted_width]
    result = np.full((wanted_height, wanted_width), black, plane.dtype)
    left, top = (wanted_width - middle.shape[1]) // 2, (wanted_height - middle.shape[0]) // 2
    result[top : top + middle.shape[0], left : left + middle.shape[1]] = middle
    return result
