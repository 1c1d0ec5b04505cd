"""Crop, size, flip, color and numbers of an output."""

from pathlib import Path

import numpy as np
import pytest
from av.video.frame import VideoFrame
from drawn import ORIENTATIONS
from numbered import all_frames
from numpy.typing import NDArray
from paths import ROOT

from segmentation.clips import Output
from segmentation.clips.output import Augmentation, Chain
from segmentation.errors import ConfigError
from segmentation.frames.orientation import UPRIGHT, Orientation
from segmentation.media.opening.stream_properties import color_of

CENTER = Augmentation(0.5, 0.5, False)


@pytest.fixture(scope="module")
def frame() -> object:
    return all_frames(ROOT / "samples" / "astronaut.mp4")[0]


def made(frame: object, output: Output, draw: Augmentation = CENTER, shown: Orientation = UPRIGHT) -> NDArray[np.uint8]:
    size = shown.size(frame.height, frame.width)  # type: ignore[attr-defined]
    return Chain(output, draw, size, shown)(frame)  # type: ignore[arg-type]


def alike(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> bool:
    """Whether two pictures are the same but for rounding."""
    return first.shape == second.shape and int(abs(first.astype(int) - second).max()) <= 1


def test_colors_are_those_of_the_standard(frame: object) -> None:
    yuv = made(frame, Output(color="ycbcr"))
    luma = np.frombuffer(frame.planes[0], np.uint8).reshape(frame.height, -1)[:, : frame.width]  # type: ignore[attr-defined]
    assert alike(yuv[..., 0], luma)
    matrix = color_of(frame).yuv_to_rgb(8)  # type: ignore[arg-type]
    true = np.clip(np.dstack([yuv, np.ones_like(luma)]) @ matrix.T, 0, 1) * 255
    error = abs(made(frame, Output()) - true)
    assert error.max() < 2 and error.mean() < 0.5


def test_a_crop_is_a_part_of_the_picture(frame: object) -> None:
    whole = made(frame, Output(color="ycbcr"))[..., 0]
    height, width = whole.shape
    output = Output(size=(100, 80), crop="random", scale=height, color="ycbcr")
    for draw, (top, left) in {
        Augmentation(0, 0, False): (0, 0),
        Augmentation(1, 1, False): (height - 100, width - 80),
        Augmentation(0.25, 0.5, False): (round((height - 100) / 2), round((width - 80) / 4)),
    }.items():
        assert alike(made(frame, output, draw)[..., 0], whole[top : top + 100, left : left + 80])
    mirrored = made(frame, Output(flip=True, color="ycbcr"), Augmentation(0, 0, True))[..., 0]
    assert alike(mirrored, whole[:, ::-1])
    assert alike(made(frame, Output(color="ycbcr"), Augmentation(0, 0, True))[..., 0], whole)


@pytest.mark.parametrize(
    ("output", "window"),
    [
        (Output(), (0, 0, 360, 640)),
        (Output(size=(10, 10)), (0, 0, 360, 640)),
        (Output(size=(224, 224), crop="center"), (0, 140, 360, 360)),
        (Output(size=(100, 400), crop="center"), (100, 0, 160, 640)),
        (Output(size=(90, 90), crop="center", scale=180), (90, 230, 180, 180)),
    ],
)
def test_windows(output: Output, window: tuple[int, int, int, int]) -> None:
    assert output.window((360, 640), CENTER) == (*window, False)


@pytest.mark.parametrize("shown", ORIENTATIONS, ids=str)
def test_pictures_stand_upright(frame: object, shown: Orientation) -> None:
    whole = made(frame, Output(color="ycbcr"))[..., 0]
    assert alike(made(frame, Output(color="ycbcr"), shown=shown)[..., 0], shown.upright(whole))


@pytest.mark.parametrize("shown", ORIENTATIONS, ids=str)
@pytest.mark.parametrize("scale", [None, 150])
def test_crops_of_turned_pictures(frame: object, shown: Orientation, scale: int | None) -> None:
    """Stored sideways or upside down, a picture gives the same crops: the part that is shown, and its mirror image."""
    output = Output(size=(90, 64), crop="random", scale=scale, flip=True, dtype="uint8")
    planes = np.asarray(made(frame, Output(color="ycbcr")))
    turned = VideoFrame.from_ndarray(shown.stored(planes).transpose(2, 0, 1).copy(), format="yuv444p")
    for draw in (Augmentation(0, 0, False), Augmentation(1, 0, False), Augmentation(0.3, 0.8, True)):
        top, left, height, width, _ = output.window(planes.shape[:2], draw, shown)
        part = planes[top : top + height, left : left + width].transpose(2, 0, 1).copy()
        true = made(VideoFrame.from_ndarray(part, format="yuv444p"), Output(size=(90, 64), flip=True), draw)
        found = made(turned, output, draw, shown)
        assert found.shape == (90, 64, 3) and alike(found, true)


@pytest.mark.parametrize("shown", ORIENTATIONS, ids=str)
def test_crops_of_ten_bits(frame: object, shown: Orientation) -> None:
    """FFmpeg's crop reads halves of two samples of chroma at odd columns."""
    deep = frame.reformat(format="yuv420p10le")  # type: ignore[attr-defined]
    for output in (Output(size=(71, 93), crop="random", scale=140), Output(size=(45, 35), crop="random")):
        for place in range(8):
            draw = Augmentation(place / 7, place / 9, False)
            found, true = (made(one, output, draw, shown).astype(int) for one in (deep, frame))
            assert abs(found - true).max() <= 3 and abs(found - true).mean() < 0.6


@pytest.mark.parametrize("shown", ORIENTATIONS, ids=str)
def test_windows_begin_at_even_places_of_the_stored_picture(shown: Orientation) -> None:
    output, size = Output(size=(71, 93), crop="random", scale=140), (361, 641)
    for place in range(50):
        window = output.window(size, Augmentation(place / 49, place / 63, False), shown)
        stored = window.stored(size, shown)
        assert stored.top % 2 == stored.left % 2 == 0 and window[2:4] == output.window(size, CENTER)[2:4]
        assert 0 <= window.top <= size[0] - window.height and 0 <= window.left <= size[1] - window.width
        plain = output.window(size, Augmentation(place / 49, place / 63, False))
        assert abs(window.top - plain.top) <= 2 and abs(window.left - plain.left) <= 2


def test_numbers_and_layout() -> None:
    pictures = [np.random.default_rng(n).integers(0, 256, (4, 6, 3), np.uint8) for n in range(2)]
    output = Output(dtype="float32", mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    expected = (np.stack(pictures) / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.3, 0.4]
    found = output.numbers(pictures)
    assert found.dtype == np.float32 and np.allclose(found, expected.transpose(0, 3, 1, 2), atol=1e-6)
    half = Output(dtype="float16").numbers(pictures)
    assert half.dtype == np.float16 and half.max() <= 1
    assert np.array_equal(Output(dtype="uint8").numbers(pictures)[1, 2], pictures[1][..., 2])
    clips = [found, found + 1, found + 2]
    assert Output(layout="NCTHW").batch(clips).shape == (3, 3, 2, 4, 6)
    assert np.array_equal(Output(layout="HWCNT").batch(clips)[1, 2, 0, 2], found[:, 0, 1, 2] + 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": (0, 4)}, r"size \(0, 4\): must be"),
        ({"crop": "random"}, "needs a size"),
        ({"crop": "left", "size": (4, 4)}, "crop 'left'"),
        ({"scale": 64, "size": (32, 32)}, "scale 64: needs a crop"),
        ({"scale": 16, "size": (32, 32), "crop": "random"}, "scale 16"),
        ({"dtype": "int8"}, "dtype 'int8'"),
        ({"color": "hsv"}, "color 'hsv'"),
        ({"layout": "NCHW"}, "layout 'NCHW'"),
        ({"std": (1, 0, 1)}, "std"),
        ({"std": 0.5}, "std 0.5: must be three numbers"),
        ({"mean": (0.4, 0.5)}, r"mean \(0\.4, 0\.5\): must be three numbers"),
    ],
)
def test_what_can_not_be_is_one_line(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        Output(**options)  # type: ignore[arg-type]
