"""Hands out the frames of a live source, which a thread of its own reads and decodes on the CPU."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import av
from av.video.frame import VideoFrame

from segmentation.errors import BackendError
from segmentation.frames import Frame, FrameBatch, Planes, VideoInfo
from segmentation.frames.live_frames import LiveFrame, LiveFrames
from segmentation.frames.packet_decoder import DevicePicture
from segmentation.live.repeats import Repeats
from segmentation.options.anonymize import LIVE_LOOK_AHEAD
from segmentation.options.config import Config
from segmentation.options.times import exact
from segmentation.stages.decode.pyav import PyAVDecoder

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu
    from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool

_LATER = 2  # frames that smoothing waits for
_HELD = 8  # frames that the stages may hold at least
_GRACE = 0.2  # seconds that the last frames of `config.duration` may come late
_STEP = Fraction(1, 1000)  # seconds: the tick of Matroska
_STEPS = 3  # times the usual distance of frames that a silence takes at least: a slow camera does not pause
_POLL = 0.05  # seconds between checks whether the source pauses


def frames_of(info: VideoInfo) -> LiveFrames:
    """Returns where the frames of a live source arrive. Raises `BackendError` for another input."""
    if info.live is None:
        raise BackendError(f"reads live sources, and {info.path} is none")
    return info.live


class LiveDecoder(PyAVDecoder):
    """See `segmentation.stages.decode`. Batches are short where the source is slower than the pipeline.

    pts begin at 0 with the first frame that is handed out. Frames of another size are scaled to the first one's. Where
    the source sends nothing for a while, a batch without frames says so, once. While the source is lost, its last
    picture is handed out again where `config.on_loss` says so, a frame a batch.
    """

    def __init__(
        self,
        info: VideoInfo,
        pix_fmt: str,
        config: Config,
        gpu: Gpu | None = None,
        *,
        sessions: NvdecSessionPool | None = None,
    ) -> None:
        super().__init__(info, pix_fmt, config, gpu, sessions=sessions)
        self._live = frames_of(info)
        gap = _HELD if config.interval == "auto" else max(config.interval, config.max_interval)
        # Smoothing holds a batch as a whole, frames also wait for the next one that is inferred, and covers for later
        # ones. If fewer could be under way, a late batch would wait for frames that are not handed out.
        ahead = LIVE_LOOK_AHEAD + self._batch_size if config.live_look_ahead else 0
        self._held = max(_HELD, self._batch_size + _LATER) + 2 * gap + ahead
        self._repeats = Repeats(config.on_loss, info, pix_fmt)
        self._index = self._number = 0  # of the next frame and batch
        self._soonest = 0  # pts of the next frame
        self._pausing = True  # no frame has come since the last pause

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        if info is not None:
            frames_of(info)
        return f"PyAV {av.__version__} on the CPU, also beside a GPU, in a thread that always reads the source"

    def __iter__(self) -> Iterator[FrameBatch]:
        live, stop, repeats = self._live, self.info.access.stop, self._repeats
        begin: float | None = None  # when the first frame is shown
        deadline = self._deadline(time.monotonic())
        count = 0  # of the frames that arrived
        while self._limit is None or count < self._limit:
            most = self._batch_size if self._limit is None else min(self._batch_size, self._limit - count)
            taken = live.take(most, stop, self._patience(deadline), self._held)
            self.damaged = live.damaged
            if not taken and self._goes_on(deadline):
                if not self._pausing and live.pausing(_STEPS * repeats.step):
                    self._pausing = True
                    yield FrameBatch(frames=(), index=self._index, number=self._number)
                if repeats.wanted and live.lost and begin is not None:
                    yield from self._repeated(begin)
                continue
            if taken and begin is None:
                begin = taken[0].shown
                if live.sound is not None:
                    live.sound.begin = begin
                deadline = self._deadline(begin)
            batch = self._made(taken, begin or 0.0)
            if batch.frames:
                self._pausing = False
                repeats.keep(batch, taken[-1].shown)
                count += len(batch)
                yield self._batch(batch)
            if not taken or len(batch) < len(taken):
                self.cut_short = not taken and live.ended and not (live.complete or stop.is_set())
                return

    def _batch(self, batch: FrameBatch) -> FrameBatch:
        """Returns the next batch with its place in the output."""
        batch = replace(batch, index=self._index, number=self._number)
        self._index += len(batch)
        self._number += 1
        return batch

    def _patience(self, deadline: float | None) -> float | None:
        """Returns until when to wait for frames: not for long where a pause or a loss is to be shown."""
        now = time.monotonic()
        moments = [] if deadline is None else [deadline]
        moments += [] if self._pausing else [now + _POLL]
        moments += [self._repeats.patience(now)] if self._repeats.wanted else []
        return min(moments, default=None)

    def _goes_on(self, deadline: float | None) -> bool:
        """Returns whether frames may still come."""
        live, stop = self._live, self.info.access.stop
        over = deadline is not None and time.monotonic() >= deadline
        return not (over or live.ended or live.closed.is_set() or stop.is_set())

    def _repeated(self, begin: float) -> Iterator[FrameBatch]:
        """Yields a batch of the last picture, if it is time for it and within the wanted stretch."""
        found = self._repeats.next(time.monotonic())
        if found is None:
            return
        kept, card, shown = found
        pts = self._place(shown, begin)
        if not self._timeline.over(pts):
            frame = Frame(planes=kept.frames[0].planes, pts=pts, duration=0)
            yield self._batch(replace(kept, frames=(frame,), repeated=True, card=card))

    def _deadline(self, begin: float) -> float | None:
        """Returns when a stretch that begins then is over, on the monotonic clock, though no frame may come."""
        end = self._timeline.end
        return None if end is None else begin + float(end * self.info.time_base) + _GRACE

    def _place(self, shown: float, begin: float) -> int:
        """Returns the pts of the next frame, so far behind the last one that they differ in Matroska."""
        pts = self._timeline.place(max(round(exact(shown - begin) / self.info.time_base), self._soonest))
        self._soonest = pts + round(_STEP / self.info.time_base)
        return pts

    def _made(self, taken: list[LiveFrame], begin: float) -> FrameBatch:
        """Returns a batch of the frames, without those after the wanted stretch."""
        frames = (self._frame(one, begin) for one in taken)
        return FrameBatch(frames=tuple(frame for frame in frames if frame is not None), index=0)

    def _frame(self, taken: LiveFrame, begin: float) -> Frame | None:
        """The frame with its pts; `None` after the wanted stretch."""
        base = self.info.time_base
        pts = self._place(taken.shown, begin)
        if self._timeline.over(pts):
            return None
        picture = taken.picture
        length = (picture.duration or 0) * (picture.time_base or base)
        messages = self._messages.of_frame(picture) if isinstance(picture, VideoFrame) else picture.messages
        return Frame(planes=self._planes_of(picture), pts=pts, duration=round(length / base), messages=messages)

    def _planes_of(self, picture: VideoFrame | DevicePicture) -> Planes:
        """Returns the planes of a picture on the host."""
        assert isinstance(picture, VideoFrame), "the pipeline's own decoder makes no others"
        return self._planes(picture)
