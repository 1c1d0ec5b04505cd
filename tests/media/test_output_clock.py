"""The clock of the default output is that of the MP4 which FFmpeg writes."""

from fractions import Fraction
from pathlib import Path

import pytest
from videos import Synthetic, times, video_info

from segmentation import Config
from segmentation.media.output_clock import DefaultClock

PTS = (0, 1, 3, 7, 8)


@pytest.mark.parametrize("base", ["1/25", "1001/30000", "1/7", "1/1000", "1/9999", "1/10000", "1/90000"])
def test_times_are_those_of_an_mp4(base: str, tmp_path: Path) -> None:
    video = Synthetic(codec="libx264", time_base=Fraction(base), pts=PTS).write(tmp_path / "a.mp4")
    clock = DefaultClock(video_info(time_base=Fraction(base)), Config())
    assert [clock.seconds(pts) for pts in PTS] == times(video)


@pytest.mark.parametrize(
    ("start", "first_pts", "option", "begin"),
    [(10, 300, 0.0, 0), (61, 1830, 0.0, 0), (-1, -30, 0.0, 0), (10, 300, 2.0, -2), (61, 1830, 2.5, Fraction(-5, 2))],
)
def test_it_begins_where_an_output_does(start: int, first_pts: int, option: float, begin: Fraction) -> None:
    info = video_info(start=Fraction(start), first_pts=first_pts)
    assert DefaultClock(info, Config(start=option)).seconds(first_pts) == begin
