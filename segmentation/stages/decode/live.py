"""Hands out the frames of a live source, which a thread of its own reads and decodes on the CPU."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import av

from segmentation.config import Config, exact
from segmentation.errors import BackendError
from segmentation.frames import Frame, FrameBatch, VideoInfo
from segmentation.live_frames import LiveFrame
from segmentation.stages.decode.pyav import PyAVDecoder

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu
    from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool

_HELD = 8  # frames that the stages may hold: smoothing waits for two later ones
_GRACE = 0.2  # seconds that the last frames of `config.duration` may come late


class LiveDecoder(PyAVDecoder):
    """See `segmentation.stages.decode`. Batches are short where the source is slower than the pipeline.

    pts begin at 0 with the first frame that is handed out. Frames of another size are scaled to the first one's.
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
        gap = _HELD if config.interval == "auto" else config.interval
        self._held = _HELD + 2 * gap  # frames also wait for the next one that is inferred

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        if info is not None and info.live is None:
            raise BackendError(f"reads live sources, and {info.path} is none")
        return f"PyAV {av.__version__} on the CPU, also beside a GPU, in a thread that always reads the source"

    def __iter__(self) -> Iterator[FrameBatch]:
        live, stop = self.info.live, self.info.access.stop
        assert live is not None
        begin: float | None = None  # when the first frame is shown
        deadline = self._deadline(time.monotonic())
        count = number = 0
        while self._limit is None or count < self._limit:
            most = self._batch_size if self._limit is None else min(self._batch_size, self._limit - count)
            taken = live.take(most, stop, deadline, self._held)
            self.damaged = live.damaged
            if taken and begin is None:
                begin = taken[0].shown
                if live.sound is not None:
                    live.sound.begin = begin
                deadline = self._deadline(begin)
            frames = tuple(frame for frame in (self._frame(one, begin or 0.0) for one in taken) if frame is not None)
            if frames:
                yield FrameBatch(frames=frames, index=count, number=number)
                count += len(frames)
                number += 1
            if not taken or len(frames) < len(taken):
                self.cut_short = not taken and live.ended and not stop.is_set()
                return

    def _deadline(self, begin: float) -> float | None:
        """Returns when a stretch that begins then is over, on the monotonic clock, though no frame may come."""
        end = self._timeline.end
        return None if end is None else begin + float(end * self.info.time_base) + _GRACE

    def _frame(self, taken: LiveFrame, begin: float) -> Frame | None:
        """The frame with its pts; `None` after the wanted stretch."""
        base = self.info.time_base
        pts = self._timeline.place(round(exact(taken.shown - begin) / base))
        if self._timeline.over(pts):
            return None
        picture = taken.picture
        length = (picture.duration or 0) * (picture.time_base or base)
        return Frame(planes=self._planes(picture), pts=pts, duration=round(length / base))
