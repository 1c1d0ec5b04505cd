"""Animated WebP as input."""

from pathlib import Path

import numpy as np
import photos
import pytest
from videos import pictures

from segmentation import InputError, segment
from segmentation.media.opening.open_input import open_input
from segmentation.media.opening.probe import probe
from segmentation.media.pictures.still import is_still
from segmentation.media.pictures.webp import is_animated_webp

DURATIONS = [50, 100, 150, 70, 2000]  # milliseconds


@pytest.fixture
def webp(tmp_path: Path) -> Path:
    frames = [np.roll(photos.photo(151, 101), 10 * i, axis=1) for i in range(len(DURATIONS))]
    return photos.write_animation(tmp_path / "in.webp", frames, DURATIONS)


def test_frames_and_times(webp: Path) -> None:
    assert is_animated_webp(str(webp)) and not is_still(str(webp))
    info = probe(str(webp))
    assert (info.width, info.height, info.pix_fmt) == (151, 101, "bgr0")
    shown = list(pictures(webp))
    assert [1000 * picture.duration for picture in shown] == DURATIONS
    assert [1000 * picture.time for picture in shown] == [0, 50, 150, 300, 370]
    for picture, frame in zip(shown, photos.animation(webp)[0], strict=True):
        assert np.array_equal(picture.frame.to_ndarray(format="bgr24"), frame[..., :3])


def test_a_run(webp: Path) -> None:
    done = segment(webp, effect="mask", invert=True, mode="baseline")
    assert done.output == str(webp.with_name("in.segmented.webp")) and done.frames == 5
    assert photos.animation(Path(done.output))[1:] == (DURATIONS, 0)


def test_a_file_that_is_cut_off(webp: Path, capfd: pytest.CaptureFixture[str]) -> None:
    webp.write_bytes(webp.read_bytes()[:-100])
    with pytest.raises(InputError, match="is cut off"):
        open_input(str(webp))
    webp.write_bytes(webp.read_bytes()[:25])
    with pytest.raises(InputError, match="is cut off"):
        open_input(str(webp))
    assert capfd.readouterr() == ("", "")


def test_files_that_claim_too_much(webp: Path) -> None:
    data = bytearray(webp.read_bytes())
    data[24:30] = b"\xff\x3f\x00" * 2  # 16384x16384
    webp.write_bytes(data)
    with pytest.raises(InputError, match="its frames of 16384x16384 take 5120 MiB"):
        open_input(str(webp))


def test_still_pictures_are_no_animations(tmp_path: Path) -> None:
    rgb = photos.photo(61, 40)
    still = photos.write(tmp_path / "a.webp", np.dstack([rgb, rgb[..., 0]]), orientation=6)
    assert not is_animated_webp(str(still)) and is_still(str(still)) and not is_animated_webp(str(tmp_path / "no"))
