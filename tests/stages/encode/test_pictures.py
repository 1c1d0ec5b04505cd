"""GIF, animated WebP and numbered pictures, in and out."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import photos
import pytest
from paths import SAMPLE
from videos import Synthetic, real_frames, times

from segmentation import ConfigError, InputError, OutputError, segment

OPTIONS: Any = {"mode": "baseline", "infer": "onnxruntime", "overwrite": True}
DURATIONS = [50, 100, 150, 70, 2000]  # milliseconds


@pytest.fixture
def gif(tmp_path: Path) -> Path:
    picture = photos.photo(151, 101)
    frames = [np.roll(picture, 10 * i, axis=1) for i in range(len(DURATIONS))]
    return photos.write_animation(tmp_path / "in.gif", frames, DURATIONS)


@pytest.mark.parametrize("suffix", [".gif", ".webp"])
def test_an_animation_keeps_size_and_times_and_is_repeated(gif: Path, tmp_path: Path, suffix: str) -> None:
    done = segment(gif, tmp_path / f"out{suffix}", effect="mask", invert=True, **OPTIONS)
    frames, durations, loops = photos.animation(tmp_path / f"out{suffix}")
    assert (done.frames, durations, loops) == (5, DURATIONS, 0) and done.plan["encode"] == "pictures"
    assert all(frame.shape[:2] == (101, 151) for frame in frames)


@pytest.mark.parametrize("suffix", [".gif", ".webp"])
def test_an_animation_shows_the_pictures(gif: Path, tmp_path: Path, suffix: str) -> None:
    """So weak a blur changes nothing: what differs is the palette of 256 colors."""
    segment(gif, tmp_path / f"out{suffix}", effect="blur:0.01", quality=100 if suffix == ".webp" else None, **OPTIONS)
    before, after = photos.animation(gif)[0], photos.animation(tmp_path / f"out{suffix}")[0]
    for a, b in zip(before, after, strict=True):
        assert np.abs(a[..., :3].astype(int) - b[..., :3]).mean() < 6


def test_frames_that_are_alike_are_shown_as_long(tmp_path: Path) -> None:
    """WebP joins them, and the last one's time is that of all that were joined."""
    gif = photos.write_animation(tmp_path / "in.gif", [photos.photo(151, 101)] * 4, [50, 100, 150, 70])
    segment(gif, tmp_path / "out.webp", also=[("blur", tmp_path / "out.gif")], smooth=0, **OPTIONS)
    assert sum(photos.animation(tmp_path / "out.gif")[1]) == 370
    frames, durations, _ = photos.animation(tmp_path / "out.webp")
    assert len(frames) == 1 or sum(durations) == 370


def test_a_stretch_and_a_turned_video(tmp_path: Path) -> None:
    frames = real_frames(SAMPLE, 6, size=(96, 64), pix_fmt="yuv420p")
    base = Fraction(1, 10)
    video = Synthetic(codec="libx264", frames=frames, pts=range(6), time_base=base, rotation=90).write(
        tmp_path / "in.mov"
    )
    segment(video, tmp_path / "a.webp", start=0.15, also=[("mask", tmp_path / "a.gif")], invert=True, **OPTIONS)
    for name in ("a.webp", "a.gif"):
        shown, durations, _ = photos.animation(tmp_path / name)
        assert shown[0].shape[:2] == (96, 64) and sum(durations) == 400, name


@pytest.mark.parametrize("suffix", [".webp", "%d.webp"])
def test_cutouts_have_alpha(tmp_path: Path, suffix: str) -> None:
    segment(SAMPLE, tmp_path / f"a{suffix}", effect="cutout", max_frames=2, **OPTIONS)
    for path in tmp_path.glob("a*.webp"):
        alpha = photos.animation(path)[0][0][..., 3]
        assert (alpha == 0).mean() > 0.2 and (alpha == 255).mean() > 0.1


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp"])
def test_numbered_pictures_in_and_out(tmp_path: Path, suffix: str) -> None:
    """From 7 on, in a folder whose name has a percent sign."""
    folder = tmp_path / "50%d"
    folder.mkdir()
    pictures = [np.roll(photos.photo(61, 41), 5 * i, axis=1) for i in range(3)]
    for number, picture in enumerate(pictures, 7):
        photos.write(folder / f"in{number:03}{suffix}", picture)
    done = segment(folder / f"in%03d{suffix}", folder / f"out%d{suffix}", effect="blur:0.01", quality=100, **OPTIONS)
    assert done.frames == 3 and done.complete
    for number, picture in enumerate(pictures, 1):
        shown = photos.read(folder / f"out{number}{suffix}")
        assert shown.shape == picture.shape and np.abs(shown.astype(int) - picture).mean() < 6


def test_numbered_pictures_are_25_a_second(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in (1, 2, 3):
        photos.write(tmp_path / f"{number}.png", photos.photo(64, 48))
    segment(tmp_path / "%d.png", tmp_path / "a.mkv", **OPTIONS)
    assert times(tmp_path / "a.mkv") == [0, Fraction(40, 1000), Fraction(80, 1000)]
    assert "numbered pictures are read as 25 frames a second" in caplog.text
    (tmp_path / "2.png").unlink()
    with pytest.raises(InputError, match="number 2 is missing between 1 and 3"):
        segment(tmp_path / "%d.png", tmp_path / "a.mkv", **OPTIONS)
    with pytest.raises(InputError, match="no pictures numbered so"):
        segment(tmp_path / "%05d.png", tmp_path / "a.mkv", **OPTIONS)


def test_transparent_parts_become_white(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pixels = np.dstack([photos.photo(64, 48), np.zeros((48, 64), np.uint8)])
    for number in (1, 2):
        photos.write(tmp_path / f"{number}.png", pixels)
    segment(tmp_path / "%d.png", tmp_path / "out%d.png", **OPTIONS)
    assert (photos.read(tmp_path / "out1.png") >= 254).all() and "transparent parts, if any, are white" in caplog.text


@pytest.mark.parametrize(
    ("name", "options", "error", "hint"),
    [
        ("a.gif", {"codec": "h264"}, ConfigError, "codec h264: .gif files have none; leave out --codec"),
        ("a.gif", {"verify": True}, ConfigError, "leave out --verify"),
        ("a.webp", {"preset": "fast"}, ConfigError, "leave out --preset"),
        ("a.gif", {"effect": "cutout"}, OutputError, "can't hold a cutout's alpha; name a .webp"),
        ("a.webp", {"quality": 0}, ConfigError, "quality 0: webp takes 100 (best) to 1"),
        ("a.mp4", {"encode": "pictures"}, ConfigError, "leave out --encode"),
        ("a.png", {}, OutputError, "holds one picture, and this is no single one"),
    ],
)
def test_what_cannot_be(tmp_path: Path, name: str, options: dict[str, Any], error: Any, hint: str) -> None:
    with pytest.raises(error) as caught:
        segment(SAMPLE, tmp_path / name, **options, **OPTIONS)
    assert hint in str(caught.value) and not list(tmp_path.iterdir())


@pytest.mark.parametrize(("rate", "suffix", "kept"), [(120, ".gif", 10), (60, ".gif", 10), (120, ".webp", 12)])
def test_fast_videos_play_at_their_speed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, rate: int, suffix: str, kept: int
) -> None:
    """For 0.2 s at 120, 0.25 s at 60 frames a second. WebP joins frames that are alike."""
    count = 24 if rate == 120 else 15
    frames = real_frames(SAMPLE, count, size=(96, 64), pix_fmt="yuv420p")
    video = Synthetic(codec="libx264", frames=frames, pts=range(count), time_base=Fraction(1, rate))
    path = video.write(tmp_path / "in.mp4")
    segment(path, tmp_path / f"a{suffix}", effect="blur:0.01", **OPTIONS)
    durations = photos.animation(tmp_path / f"a{suffix}")[1]
    assert len(durations) <= kept and min(durations) >= (20 if suffix == ".gif" else 11)
    assert abs(sum(durations) - 1000 * count / rate) <= 10 and f"{count - kept} frames are left out" in caplog.text
