"""When an output shows a frame: on the clock of the output's container, in whole ticks."""

from fractions import Fraction

from segmentation.frames import VideoInfo
from segmentation.options.config import Config
from segmentation.options.times import exact

_MP4_TICKS = 10_000  # a second, at least, in FFmpeg's movenc.c


def beginning(info: VideoInfo, config: Config) -> Fraction:
    """Returns the seconds on the source's clock that become 0 in an output.

    Those at which the source begins, as with FFmpeg's own program, unless sound alone begins before 0. Shortly before
    the clock of a broadcast wraps around, FFmpeg counts from below 0, and players show nothing before 0.
    """
    if config.keep_start:
        return Fraction(0)
    late = info.start if info.start > 0 or info.first_pts < 0 or config.start else Fraction(0)
    return late + exact(config.start)


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
        self._shift = beginning(info, config)
        ticks = info.time_base.denominator
        while ticks < _MP4_TICKS:
            ticks *= 2
        self._tick = Fraction(1, ticks)

    def seconds(self, pts: int) -> Fraction:
        """Returns when that MP4 would show the frame of this pts, in seconds."""
        return shown_at(pts, self._time_base, self._shift, self._tick)
