"""When an output shows a frame: on the clock of the output's container, in whole ticks."""

from fractions import Fraction

from segmentation.frames import VideoInfo
from segmentation.options.config import Config
from segmentation.options.times import exact

# Seconds. A container that begins later runs on a broadcast clock, which no player of files expects. Shortly before
# that clock wraps around, FFmpeg counts from below 0, and players show nothing before 0.
_CLOCK_LIMIT = 60
_MP4_TICKS = 10_000  # a second, at least, in FFmpeg's movenc.c


def begins_elsewhere(info: VideoInfo) -> bool:
    """Returns whether an output begins at 0, and not where the source's clock does."""
    return info.start > _CLOCK_LIMIT or info.first_pts < 0


def shown_at(pts: int, time_base: Fraction, shift: Fraction, tick: Fraction) -> Fraction:
    """Returns the seconds at which an output shows a frame: a whole number of ticks.

    `pts` is in units of `time_base` seconds. `shift` are the seconds on the source's clock that become 0.
    """
    ticks = (pts - round(shift / time_base)) * time_base / tick
    nearest = (abs(ticks) + Fraction(1, 2)) // 1  # halves away from 0, as FFmpeg rounds
    return (nearest if ticks >= 0 else -nearest) * tick


class DefaultClock:
    """The clock of the MP4 that a run writes by default, for a run without a video."""

    def __init__(self, info: VideoInfo, config: Config) -> None:
        self._time_base = info.time_base
        late = info.start if begins_elsewhere(info) else Fraction(0)
        self._shift = info.start + exact(config.start) if config.start else late
        ticks = info.time_base.denominator
        while ticks < _MP4_TICKS:
            ticks *= 2
        self._tick = Fraction(1, ticks)

    def seconds(self, pts: int) -> Fraction:
        """Returns when that MP4 would show the frame of this pts, in seconds."""
        return shown_at(pts, self._time_base, self._shift, self._tick)
