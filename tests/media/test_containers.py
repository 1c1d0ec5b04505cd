"""What a file's suffix decides: the codec, and the options of its muxer."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from videos import video_info

from segmentation import Config, ConfigError, OutputError
from segmentation.media.containers import CUTOUTS, EXACT, codec_for, format_options


@pytest.mark.parametrize(
    ("name", "effect", "codec"),
    [
        ("a.mp4", "blur", "h264"),
        ("a.WEBM", "mask", "av1"),
        ("a.avi", "blur", "h264"),
        *((f"a{suffix}", "cutout", codec) for suffix, codec in CUTOUTS.items()),
    ],
)
def test_the_codec_follows_from_the_suffix(name: str, effect: str, codec: str) -> None:
    assert codec_for(Path(name), Config(effect=effect)) == codec


@pytest.mark.parametrize(
    ("name", "options", "error", "line"),
    [
        ("a.webm", {"effect": "cutout", "quality": 64}, ConfigError, "a.webm: quality 64: vp9 takes 0 (best) to 63"),
        ("a.bmp", {}, OutputError, "a.bmp: pictures are written as .png, .jpg, .jpeg or .webp"),
        ("a.mp4", {"effect": "cutout"}, OutputError, "a.mp4: can't hold a cutout's alpha"),
        ("a.webm", {"preset": "superfast"}, ConfigError, "a.webm: preset 'superfast' is unknown for av1"),
        ("a.mp4", {"quality": 63}, ConfigError, "a.mp4: quality 63: h264 takes 0 (best) to 51"),
    ],
)
def test_a_codec_that_does_not_fit_is_refused(name: str, options: Any, error: type[Exception], line: str) -> None:
    with pytest.raises(error) as caught:
        codec_for(Path(name), Config(**options))
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize("ticks", [24, 1000, 12800, 90_000, 1_000_000])
def test_the_clock_of_a_movie_meets_the_videos_ticks(ticks: int) -> None:
    clock = int(format_options(Path("a.mp4"), video_info(time_base=Fraction(1, ticks)))["movie_timescale"])
    assert clock % ticks == 0 and clock <= 1_000_000


def test_containers_for_cutouts_keep_timestamps() -> None:
    assert set(CUTOUTS) <= set(EXACT)
