"""Rules that all decoders share about when frames are shown."""

from fractions import Fraction
from pathlib import Path

import pytest
from paths import SAMPLE
from videos import video_info

from segmentation import Config, InputError
from segmentation.media.opening.probe import probe
from segmentation.options.access import access_of
from segmentation.options.times import exact, seconds
from segmentation.stages.decode.pyav import PyAVDecoder
from segmentation.stages.decode.timestamps import Timeline, within_limit


@pytest.mark.parametrize(("most", "frames"), [(10, 300), (6, 180)])
def test_an_input_that_goes_on_longer_than_it_says_is_refused(tmp_path: Path, most: float, frames: int) -> None:
    """A concat script states no length."""
    (tmp_path / "a.mp4").symlink_to(SAMPLE)
    (tmp_path / "a.ffconcat").write_text("ffconcat version 1.0\nfile a.mp4\nfile a.mp4\n")
    config = Config(allow=("playlists",), max_duration=most)
    info = probe(str(tmp_path / "a.ffconcat"), access_of(config))
    assert info.access.max_duration == Fraction(most)
    batches = within_limit(info, PyAVDecoder(info, "yuv420p", config))
    for _ in range(frames):
        next(batches)
    with pytest.raises(InputError if frames < 300 else StopIteration):
        next(batches)


@pytest.mark.parametrize("text", ["453.09", "7:33.09", "0:07:33.09", "1:30.016"])
def test_clock_times_are_decimal_numbers(text: str) -> None:
    parts = [Fraction(part) for part in reversed(text.split(":"))]
    assert exact(seconds(text)) == sum(part * 60**place for place, part in enumerate(parts))


@pytest.mark.parametrize("number", range(1, 40))
def test_a_stretch_begins_and_ends_with_the_frame_at_the_decimal_time(number: int) -> None:
    """At 25 frames a second frame n is shown at 0.04 n seconds, which most floats miss by a little."""
    info = video_info(rate=Fraction(25), time_base=Fraction(1, 12_800))
    timeline = Timeline(info, Config(start=number * 4 / 100, duration=0.12))
    assert timeline.begun(number * 512) and not timeline.begun(number * 512 - 1)
    assert timeline.over((number + 3) * 512) and not timeline.over((number + 3) * 512 - 1)
