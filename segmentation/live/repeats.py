"""Frames that are shown while a live source is lost."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

from segmentation.frames import FrameBatch, Planes, VideoInfo
from segmentation.live.card import lost_card
from segmentation.options.keywords import OnLoss

_STEPS = (1 / 60, 1.0)  # seconds: the least and the greatest distance of two frames
_RECENT = 30  # frames of the source from which the distance is taken: the rate that a stream claims is often none


class Repeats:
    """Repeats the last picture of a source at the rate that it had, from the loss on, with a card if asked for."""

    def __init__(self, on_loss: OnLoss, info: VideoInfo, pix_fmt: str) -> None:
        self.wanted = on_loss != "gap"
        self._with_card = on_loss == "card"
        self._info, self._pix_fmt = info, pix_fmt
        self._newest: FrameBatch | None = None
        self._shown: deque[float] = deque(maxlen=_RECENT)  # when the source's newest frames are shown
        self._due: float | None = None  # when the next one is shown, on the monotonic clock; `None`: there is no loss
        self._card: Planes | None = None

    def keep(self, batch: FrameBatch, shown: float) -> None:
        """Takes the source's newest frames, which end a loss, with the time at which the last one is shown."""
        if self._due is not None:
            self._shown.clear()  # the loss was no distance of frames
        self._shown.append(shown)
        # A picture that is not repeated is not held: it takes memory of the GPU for each source.
        self._newest = batch.part(len(batch) - 1, len(batch)) if self.wanted else None
        self._due = self._card = None

    @property
    def step(self) -> float:
        """Returns the seconds from frame to frame: the median, as a camera may leave frames out."""
        steps = sorted(b - a for a, b in pairwise(self._shown))
        step = steps[len(steps) // 2] if steps else float(1 / self._info.rate)
        return min(max(step, _STEPS[0]), _STEPS[1])

    def patience(self, now: float) -> float:
        """Returns until when the pipeline may wait for a frame of the source."""
        return now + self.step if self._due is None else max(self._due, now + _STEPS[0])

    def next(self, now: float) -> tuple[FrameBatch, Planes | None, float] | None:
        """Returns frame, card and time of the next frame, if it is to be shown by `now` on the monotonic clock.

        Frames for which the pipeline was too slow are left out.
        """
        if self._newest is None:
            return None
        if self._due is None:
            self._due = max(now, self._shown[-1] + self.step)
        if now < self._due:
            return None
        shown = now if self._due < now - self.step else self._due
        self._due = shown + self.step
        if self._with_card and self._card is None:
            self._card = lost_card(self._info, self._pix_fmt)
        return self._newest, self._card, shown
