"""Says where the pictures of a stream go on in another shape, turn or color matrix, which the output can't follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import av
import av.error
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from segmentation.frames import UNSPECIFIED, VideoInfo
from segmentation.media.bitstream.headers import stated_shape


class Constancy:
    """Compares frames with the first. `changed` is called with a line where one differs, once for each kind."""

    def __init__(self, info: VideoInfo, changed: Callable[[str], None]) -> None:
        self._info, self._changed = info, changed
        self._said: set[str] = set()
        self._turn: int | None = None  # degrees

    def check_aspect(self, aspect: Fraction | None) -> None:
        """Takes the shape of the pixels of the frames to come."""
        first = self._info.coded_aspect
        if aspect and first and aspect != first:
            text = f"the sample aspect ratio changes from {first} to {aspect} on the way; the output keeps the first"
            self._say("shape", text)

    def check_turn(self, degrees: int) -> None:
        """Takes the degrees by which the next frame is to be turned."""
        self._turn = degrees if self._turn is None else self._turn
        if degrees != self._turn:
            self._say("turn", "some pictures are to be turned otherwise than the first; the output turns all like it")

    def check_matrix(self, frame: VideoFrame) -> None:
        """Takes a frame whose colors are not converted."""
        if is_recolored(frame, self._info):
            self._say(
                "color", "the color matrix changes on the way; colors are wrong from there: --decode pyav converts"
            )

    def _say(self, kind: str, text: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            self._changed(f"{self._info.path}: {text}")


class PacketConstancy:
    """Takes keyframes with start codes. FFmpeg decodes those that state another shape, turn or color than the first."""

    def __init__(self, info: VideoInfo, changed: Callable[[str], None]) -> None:
        self._codec = info.codec
        self._constancy = Constancy(info, changed)
        self._stated: set[frozenset[bytes]] = set()
        self._first = b""

    def __call__(self, data: bytes) -> None:
        stated = stated_shape(self._codec, data)
        if not stated or stated in self._stated:
            return
        self._stated.add(stated)
        if len(self._stated) == 1:
            self._first = data
            return
        if len(self._stated) == 2:
            self._check(self._first)
        self._check(data)

    def _check(self, data: bytes) -> None:
        decoder = av.CodecContext.create(self._codec, "r")
        assert isinstance(decoder, VideoCodecContext)
        try:
            frames = [*decoder.decode(Packet(data)), *decoder.decode()]
        except av.error.FFmpegError:
            return  # damage, which is counted elsewhere
        for frame in frames:
            self._constancy.check_aspect(decoder.sample_aspect_ratio)
            self._constancy.check_turn(frame.rotation)
            self._constancy.check_matrix(frame)


def is_recolored(frame: VideoFrame, info: VideoInfo) -> bool:
    """Returns whether a frame states another color matrix than the first."""
    color, other = info.color, replace(info.color, matrix=int(frame.colorspace))
    stated = UNSPECIFIED not in (color.matrix, other.matrix) and not frame.format.is_rgb
    return stated and other.weights != color.weights
