"""Videos that are encoded anew for training: their frames, times, keyframes, and what is refused."""

import threading
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from barcode import read
from numbered import all_frames, damage, numbered
from videos import Synthetic

from segmentation.clips import ClipDataset
from segmentation.clips.index import index_of
from segmentation.clips.transcode import Recipe, transcode
from segmentation.errors import ConfigError, InputError, OutputError
from segmentation.frames.orientation import UPRIGHT

UNEVEN = tuple(n + n // 3 + 4 * (n > 20) for n in range(40))


def numbers(path: Path) -> list[int]:
    """Which frames of the source a video shows."""
    frames = all_frames(path)
    return [read(frame.to_ndarray(format="gray"))[0] for frame in frames]


@pytest.mark.parametrize("codec", ["h264", "hevc", "vp9", "av1"])
def test_frames_and_times_stay_and_keyframes_are_near(codec: str, tmp_path: Path) -> None:
    source = numbered(tmp_path / "a.mkv", 40, options={"g": "99", "bf": "3"}, times=UNEVEN)
    recipe = Recipe(codec=codec, keyframes=8)
    made = transcode(str(source), target := tmp_path / f"b{recipe.suffix}", recipe, threads=1)
    assert (made.frames, made.bytes, made.source_bytes) == (40, target.stat().st_size, source.stat().st_size)
    assert numbers(target) == list(range(40))
    index = index_of(str(target))
    assert np.allclose(index.seconds, index_of(str(source)).seconds, atol=1e-3)
    assert index.timed and np.flatnonzero(np.diff(index.keys)).tolist() == [7, 15, 23, 31]


def test_frames_of_avi_get_their_times_in_order(tmp_path: Path) -> None:
    """Its B-frames have the times at which they are decoded."""
    source = numbered(tmp_path / "a.avi", 24, "mpeg4", {"bf": "2", "g": "12"})
    transcode(str(source), target := tmp_path / "b.mp4", Recipe())
    assert numbers(target) == list(range(24))
    assert np.allclose(np.diff(index_of(str(target)).seconds), 1 / 30, atol=1e-3)


def test_a_rate_that_leaves_no_frame_is_an_error(tmp_path: Path) -> None:
    """The file could not be read."""
    source = Synthetic(codec="libx264", pts=(0,)).write(tmp_path / "a.mp4")  # 40 ms
    with pytest.raises(InputError, match="is shorter than half a frame at 10 a second; name another rate"):
        transcode(str(source), tmp_path / "b.mp4", Recipe(rate=Fraction(10)))
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"]
    assert transcode(str(source), tmp_path / "c.mp4", Recipe(rate=Fraction(13))).frames == 1


def test_frames_at_another_rate_and_size(tmp_path: Path) -> None:
    source = numbered(tmp_path / "a.mp4", 60, size=(320, 192))
    transcode(str(source), target := tmp_path / "b.mp4", Recipe(rate=Fraction(10), size=(96, 200)))
    frames = all_frames(target)
    assert len(frames) == 20 and {(frame.width, frame.height) for frame in frames} == {(160, 96)}
    assert all(abs(number - 3 * place) <= 1 for place, number in enumerate(numbers(target)))
    assert np.allclose(index_of(str(target)).seconds, np.arange(20) / 10)


@pytest.mark.parametrize(
    ("size", "picture", "fitted"),
    [
        (None, (1080, 1920), (1080, 1920)),
        (None, (121, 161), (120, 160)),
        ((540, 960), (1080, 1920), (540, 960)),
        ((540, 960), (1920, 1080), (960, 540)),  # upright
        ((540, 960), (1080, 1080), (540, 540)),
        ((540, 960), (360, 640), (360, 640)),  # not enlarged
        ((540, 960), (540, 1920), (270, 960)),
    ],
)
def test_pictures_keep_their_shape(
    size: tuple[int, int] | None, picture: tuple[int, int], fitted: tuple[int, int]
) -> None:
    assert Recipe(size=size).fitted(*picture) == fitted


def test_turned_videos_stand_upright(corpus: Path, tmp_path: Path) -> None:
    source = index_of(str(corpus / "video_90.mov"))
    assert source.orientation.sideways and source.size[0] > source.size[1]
    transcode(source.path, target := tmp_path / "a.mp4", Recipe(size=(320, 180)))
    made = index_of(str(target))
    assert made.orientation == UPRIGHT and made.size == (320, 180) and len(made) == len(source)


def test_colors_stay(corpus: Path, tmp_path: Path) -> None:
    source = corpus / "bt709_full_range.mp4"
    transcode(str(source), target := tmp_path / "a.mp4", Recipe(crf=10))
    before, after = all_frames(source)[3], all_frames(target)[3]
    assert (after.colorspace, after.color_range) == (before.colorspace, before.color_range)
    assert abs(before.to_ndarray(format="gray").astype(int) - after.to_ndarray(format="gray")).mean() < 1.5


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    source, target = numbered(tmp_path / "a.mp4", 20), tmp_path / "b.mp4"
    first = transcode(str(source), target, Recipe())
    state = target.stat().st_mtime_ns
    again = transcode(str(source), target, Recipe())
    assert again.skipped and not first.skipped and (again.frames, again.bytes) == (first.frames, first.bytes)
    assert target.stat().st_mtime_ns == state
    for other in (Recipe(keyframes=4), Recipe(crf=30)):
        with pytest.raises(OutputError, match="exists already"):
            transcode(str(source), target, other)
    assert not transcode(str(source), target, Recipe(keyframes=4), overwrite=True).skipped
    numbered(source, 24)
    with pytest.raises(OutputError, match="exists already"):
        transcode(str(source), target, Recipe(keyframes=4))


def test_masks_of_the_source_fit(tmp_path: Path) -> None:
    source = numbered(tmp_path / "a.mkv", 24, options={"bf": "2"})
    numbered(tmp_path / "a.segmented.masks.mkv", 24, "ffv1", size=(80, 48), pix_fmt="gray")
    (tmp_path / "small").mkdir()
    transcode(str(source), target := tmp_path / "small" / "a.mp4", Recipe(size=(48, 80)))
    assert len(ClipDataset(target, length=4, masks=tmp_path)) == 6


def test_damage_leaves_nothing_behind(tmp_path: Path) -> None:
    source = numbered(tmp_path / "a.mp4", 40, options={"g": "10", "bf": "0"}, size=(320, 240))
    damage(source, 15)
    with pytest.raises(InputError, match=r"a\.mp4: (frame \d+|has \d+ frames)"):
        transcode(str(source), tmp_path / "b.mp4", Recipe())
    stop = threading.Event()
    numbered(tmp_path / "c.mp4", 40)
    with pytest.raises(InputError, match="was not finished"):
        transcode(str(tmp_path / "c.mp4"), tmp_path / "b.mp4", Recipe(), stop=stop, advance=lambda *_: stop.set())
    assert {path.name for path in tmp_path.iterdir()} == {"a.mp4", "c.mp4"}


def test_what_has_fields_or_a_lock_is_refused(corpus: Path, tmp_path: Path) -> None:
    for name, reason in {"fixture-raw.mts": "is interlaced", "bear-640x360-v_frag-cbcs.mp4": "is encrypted"}.items():
        with pytest.raises(InputError, match=reason):
            transcode(str(corpus / name), tmp_path / "a.mp4", Recipe())


@pytest.mark.parametrize("scenes", [False, True])
def test_keyframes_at_cuts(scenes: bool, tmp_path: Path) -> None:
    with av.open(str(tmp_path / "a.mp4"), "w") as container:
        stream = container.add_stream("libx264", rate=30, options={"crf": "10"})
        stream.width, stream.height, stream.pix_fmt = 160, 96, "yuv420p"  # type: ignore[union-attr]
        for number in range(40):
            dice = np.random.default_rng(number // 20)  # one cut
            frame = av.VideoFrame.from_ndarray(dice.integers(0, 255, (96, 160, 3), np.uint8), format="rgb24")
            container.mux(stream.encode(frame))  # type: ignore[union-attr,arg-type]
        container.mux(stream.encode(None))  # type: ignore[union-attr]
    transcode(str(tmp_path / "a.mp4"), target := tmp_path / "b.mp4", Recipe(keyframes=99, scenes=scenes))
    assert np.flatnonzero(np.diff(index_of(str(target)).keys)).tolist() == ([19] if scenes else [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"codec": "mpeg2"}, "codec 'mpeg2': must be one of h264, hevc, vp9, av1"),
        ({"keyframes": 0}, "keyframes 0"),
        ({"codec": "av1", "scenes": True}, "does not look for cuts"),
        ({"size": (8, 8)}, "size 8x8"),
        ({"rate": Fraction(0)}, "rate 0"),
        ({"crf": 52}, "crf 52: must lie in 0 to 51 for h264"),
        ({"crf": 64, "codec": "vp9"}, "0 to 63 for vp9"),
    ],
)
def test_what_can_not_be_is_one_line(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Recipe(**options)  # type: ignore[arg-type]
