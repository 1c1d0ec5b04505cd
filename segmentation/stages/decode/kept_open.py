"""Decodes the frames around a time, from an input that stays open from one call to the next."""

from __future__ import annotations  # PyAV's types are generic for type checkers only

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from fractions import Fraction

from av.container import InputContainer
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from segmentation.errors import InputError
from segmentation.frames import Frame, VideoInfo
from segmentation.options.config import Config
from segmentation.stages.decode.pyav import PyAVDecoder
from segmentation.stages.decode.timestamps import Timeline

_MOST, _BYTES = 12, 64 << 20  # of the frames that are kept; `_MOST` where one steps back, so that few steps seek
_NEAR = 1  # second, up to which decoding goes on where the container does not name its keyframes


class KeptOpenDecoder(PyAVDecoder):
    """Frames that follow soon are decoded without a seek. One thread at a time may call. Close it after use."""

    def __init__(self, info: VideoInfo, pix_fmt: str) -> None:
        super().__init__(info, pix_fmt, Config())
        self.level = logging.DEBUG
        self._exits = ExitStack()
        self._open: tuple[InputContainer, VideoStream] | None = None
        self._coming: Iterator[Frame] | None = None  # `None` behind the last frame
        self._recent: deque[Frame] = deque()
        self._whole_from: int | None = None  # earlier frames to which no other refers are left out; `None`: none is
        self._seeks = True  # whether that leads anywhere
        self._step = max(1, round(1 / info.rate / info.time_base))  # ticks
        # A packet's time may be another than its frame's there, or its frame be half in the next one.
        self._leaves_out = not (info.decoding_times or info.interlaced or info.packed or info.gradual)

    def close(self) -> None:
        self._coming = self._open = None
        self._recent.clear()
        self._exits.close()

    def ahead(self, time: Fraction, before: int) -> int | None:
        """Returns the ticks from the last frame that was decoded to `time`, 0 or more; `None` where a seek is due."""
        pts = self._pts(time)
        return max(0, pts - self._recent[-1].pts) if self._goes_on(pts, before) else None

    def begins_after(self, time: Fraction, before: int) -> bool:
        """Returns whether the frames that are kept begin soon after those around `time`, as where one steps back."""
        missing = self._recent[0].pts - self._pts(time) + before * self._step if self._recent else 0
        return 0 < missing <= _MOST * self._step

    def keep(self, count: int) -> None:
        """Frees all kept frames but the last `count`."""
        self._recent = deque(self._recent, count)

    def around(self, time: Fraction, before: int, after: int, *, back: bool = False) -> Sequence[Frame]:
        """Returns the frame that is shown at `time` seconds, with up to so many frames before and after it.

        Before the first frame that is the first one. With `back`, more frames before it are kept for the next calls.
        Raises `InputError`.
        """
        pts = self._pts(time)
        back = back or (bool(self._recent) and pts < self._recent[-1].pts)
        room = _MOST if back else min(_MOST, _BYTES // (6 * self.info.width * self.info.height))
        most = max(before + 1 + after, room)
        self._recent = deque(self._recent, most)
        whole_from = pts - (most - after) * self._step
        try:
            if not self._goes_on(pts, before):
                self._seek(pts - before * self._step, whole_from)
            elif whole_from > self._recent[-1].pts:
                self._whole_from = whole_from
            frames, whole = self._advance(pts, before, after)
            for _ in range(before + 1):
                if whole:
                    break
                # A frame is shown for so long that earlier ones than expected are needed.
                self._seek(frames[0].pts - 1 if frames else pts, None)
                frames, whole = self._advance(pts, before, after)
        except BaseException:
            self.close()
            raise
        if not frames:
            raise InputError(f"{self.info.path}: has no frame at this time")
        return frames

    def _pts(self, time: Fraction) -> int:
        return int((self.info.start + time) / self.info.time_base // 1)

    def _goes_on(self, pts: int, before: int) -> bool:
        """Returns whether the frames around `pts` are there, or come without a seek."""
        if not self._recent:
            return False
        last = self._recent[-1].pts
        if pts < last or self._coming is None or self._open is None:
            return self._begins(self._recent[0]) or sum(frame.pts <= pts for frame in self._recent) > before
        if not self._seeks:
            return True
        entries = self._open[1].index_entries
        key = entries.search_timestamp(pts)
        return (pts - last) * self.info.time_base <= _NEAR or (key >= 0 and entries[key].timestamp <= last)

    def _begins(self, frame: Frame) -> bool:
        return frame.pts <= self.info.first_pts

    def _seek(self, first: int, whole_from: int | None) -> None:
        """Goes to the keyframe before `first`, or to the beginning if no seek leads there."""
        self._coming = None
        self._recent.clear()
        self._whole_from = whole_from
        if self._open is None:
            self._open = self._exits.enter_context(self.opened())
        frames = self._since(*self._open, max(first, self.info.first_pts))
        self._seeks = frames is not None
        if frames is None:
            self._exits.close()
            self._open = self._exits.enter_context(self.opened())
            frames = self._decode(*self._open)
        self._coming = self._placed(frames)

    def _placed(self, frames: Iterator[tuple[VideoFrame, int | None]]) -> Iterator[Frame]:
        timeline = Timeline(self.info, Config())
        for decoded, pts in frames:
            yield Frame(planes=self._planes(decoded), pts=timeline.place(pts), duration=self._length(decoded))

    def _advance(self, pts: int, before: int, after: int) -> tuple[Sequence[Frame], bool]:
        """Returns the frames around `pts`, and whether none is left out among them."""
        recent = self._recent
        while self._coming is not None and sum(frame.pts > pts for frame in recent) < max(1, after):
            if (frame := next(self._coming, None)) is None:
                self._coming = None
            else:
                recent.append(frame)
        place = max((i for i, frame in enumerate(recent) if frame.pts <= pts), default=0)
        frames = list(recent)[max(0, place - before) : place + 1 + after]
        if not frames or self._begins(frames[0]):
            return frames, bool(frames)
        return frames, place >= before and (self._whole_from is None or frames[0].pts >= self._whole_from)

    def _packets(self, container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
        for packet in super()._packets(container, stream):
            early = packet.pts is not None and self._whole_from is not None and packet.pts < self._whole_from
            stream.codec_context.skip_frame = "NONREF" if early and self._leaves_out else "DEFAULT"
            yield packet
