"""Rules that all decoders share about when frames are shown."""

from fractions import Fraction
from pathlib import Path

import pytest
from paths import SAMPLE

from segmentation import Config, InputError
from segmentation.access import access_of
from segmentation.media.input import probe
from segmentation.stages.decode.pyav import PyAVDecoder
from segmentation.stages.decode.timestamps import within_limit


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
