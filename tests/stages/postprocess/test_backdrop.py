"""Images and videos behind the subject: their colors, where they lie, and which picture is shown when."""

import random
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
from drawn import ORIENTATIONS, display_matrix, shown
from marks import first
from numpy.typing import NDArray
from paths import SAMPLE
from program import cli, report
from videos import Synthetic, pictures, video_info

from segmentation.errors import InputError
from segmentation.frames import FORMATS, FULL, LIMITED, Color
from segmentation.frames.orientation import UPRIGHT, Orientation
from segmentation.options.config import Config
from segmentation.options.effect import Effect
from segmentation.stages.postprocess.backdrop import Backdrop

RED, BLUE, WHITE = (200, 30, 40), (20, 40, 210), (255, 255, 255)


def backdrop(file: Path, pix_fmt: str = "yuv444p", *, kind: str = "image", contain: bool = False, **info: Any) -> Any:
    effect = Effect(kind, file=str(file), contain=contain)
    return Backdrop(video_info(**info), pix_fmt, effect, Config(effect=f"{kind}:{file}"))


def write_image(path: Path, rgb: NDArray[np.uint8]) -> Path:
    assert cv2.imwrite(str(path), rgb[..., ::-1])
    return path


def halves(width: int, height: int) -> NDArray[np.uint8]:
    """Red above blue, and white in the top left corner."""
    picture = np.empty((height, width, 3), np.uint8)
    picture[: height // 2], picture[height // 2 :] = RED, BLUE
    picture[: height // 4, : width // 4] = WHITE
    return picture


@pytest.mark.parametrize("pix_fmt", FORMATS)
@pytest.mark.parametrize("color", [Color(1, LIMITED), Color(6, FULL), Color(9, LIMITED), Color(2, 0)], ids=str)
@pytest.mark.parametrize("frame", ORIENTATIONS, ids=str)
def test_an_image_stands_upright_in_its_own_colors(
    tmp_path: Path, frame: Orientation, color: Color, pix_fmt: str
) -> None:
    size = frame.size(97, 65)  # as stored
    file = write_image(tmp_path / "a.png", halves(97, 65))
    planes = backdrop(file, pix_fmt, size=size, rotation=90 * frame.turns, mirrored=frame.mirrored, color=color)(0)
    layout = FORMATS[pix_fmt]
    assert planes[0].shape == size[::-1] and {p.dtype.type for p in planes} == {layout.dtype}
    assert planes[1].shape == (-(-size[1] >> layout.shift_y), -(-size[0] >> layout.shift_x))
    rgb = frame.upright(shown(planes, pix_fmt, color))
    for place, expected in (((5, 5), WHITE), ((20, 80), RED), ((60, 5), BLUE), ((60, 90), BLUE)):
        assert np.abs(rgb[place] - expected).max() <= 4


@pytest.mark.parametrize(
    ("contain", "aspect", "box"),
    [
        (False, None, (0, 0, 160, 90)),
        (True, None, (60, 0, 100, 90)),  # left, top, right, bottom of what is not black: a picture of 40x90
        (True, Fraction(2), (70, 0, 90, 90)),  # in pixels twice as wide
    ],
)
def test_a_tall_image_covers_or_fits(
    tmp_path: Path, contain: bool, aspect: Fraction | None, box: tuple[int, ...]
) -> None:
    file = write_image(tmp_path / "a.png", np.full((450, 200, 3), 200, np.uint8))
    color = Color(1, LIMITED)
    planes = backdrop(file, contain=contain, size=(160, 90), sample_aspect_ratio=aspect, color=color)(0)
    rgb = shown(planes, "yuv444p", color)
    expected = np.zeros((90, 160))
    expected[box[1] : box[3], box[0] : box[2]] = 200
    assert np.abs(rgb - expected[..., None]).max() <= 2


def test_cover_shows_the_middle(tmp_path: Path) -> None:
    picture = np.zeros((300, 100, 3), np.uint8)
    picture[100:200] = 250
    file = write_image(tmp_path / "a.png", picture)
    planes = backdrop(file, size=(100, 100))(0)
    assert planes[0].min() > 200


@pytest.mark.parametrize("frame", [UPRIGHT, Orientation(1, mirrored=True)], ids=str)
@pytest.mark.parametrize("file", ORIENTATIONS, ids=str)
def test_a_photograph_is_turned_as_its_camera_says(tmp_path: Path, file: Orientation, frame: Orientation) -> None:
    """A rotated or mirrored video: the same display matrix that photographs have."""
    frames = [av.VideoFrame.from_ndarray(halves(64, 48), format="rgb24")]
    video = Synthetic(frames=frames, pts=[0], codec="mpeg4", matrix=display_matrix(file)).write(tmp_path / "a.mp4")
    color, size = Color(6, LIMITED), frame.size(*file.size(64, 48))
    planes = backdrop(video, size=size, rotation=90 * frame.turns, mirrored=frame.mirrored, color=color)(0)
    rgb = frame.upright(shown(planes, "yuv444p", color))
    assert np.abs(rgb.astype(int) - file.upright(halves(64, 48)))[4:-4, 4:-4].mean() < 8


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A video of 10 pictures at 10 a second, keyframes 4 apart: picture n is of the grey 20 n + 20."""
    frames = [av.VideoFrame.from_ndarray(np.full((48, 64), 20 * n + 20, np.uint8), format="gray") for n in range(10)]
    clip = Synthetic(frames=frames, pts=range(10), time_base=Fraction(1, 10), codec="libx264", gop=4)
    clip.options = {"qp": "0", "bf": "2"}
    return clip.write(tmp_path_factory.mktemp("video") / "counting.mp4")


def number(planes: Any) -> int:
    """Which picture of `counting` is shown."""
    grey = (float(np.median(planes[0][:20, -20:])) - 16) * 255 / 219
    return round((grey - 20) / 20)


@pytest.mark.parametrize("rate", [30, 10, 4])
def test_a_video_keeps_its_own_time_and_begins_again(counting: Path, rate: int) -> None:
    info: dict[str, Any] = dict(time_base=Fraction(1, rate), rate=Fraction(rate), color=Color(6, LIMITED))
    behind = backdrop(counting, kind="video", **info)
    found = [number(behind(pts)) for pts in range(3 * rate)]
    assert found == [pts * 10 // rate % 10 for pts in range(3 * rate)]
    behind.close()


def test_threads_may_ask_in_any_order(counting: Path) -> None:
    behind = backdrop(counting, kind="video", time_base=Fraction(1, 10), rate=Fraction(10), color=Color(6, LIMITED))
    wanted = list(range(60))
    random.Random(1).shuffle(wanted)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda pts: number(behind(pts)), wanted))
    assert found == [pts % 10 for pts in wanted]
    assert len(behind._recent) <= 4
    behind.close()


def test_time_counts_from_the_beginning_of_the_stretch(counting: Path) -> None:
    info = video_info(time_base=Fraction(1, 10), rate=Fraction(10), start=Fraction(5), color=Color(6, LIMITED))
    behind = Backdrop(info, "yuv420p", Effect("video", file=str(counting)), Config(start=2.0))
    assert [number(behind(70 + n)) for n in (0, 1, 2)] == [0, 1, 2]
    behind.close()


def test_before_a_late_first_picture_that_one_is_shown(tmp_path: Path) -> None:
    frames = [av.VideoFrame.from_ndarray(np.full((48, 64), 20 * n + 20, np.uint8), format="gray") for n in range(5)]
    clip = Synthetic(frames=frames, pts=range(5, 10), time_base=Fraction(1, 10), audio="aac", codec="libx264")
    behind = backdrop(
        clip.write(tmp_path / "late.mkv"),
        kind="video",
        time_base=Fraction(1, 10),
        rate=Fraction(10),
        color=Color(6, LIMITED),
    )
    once = [0, 0, 0, 0, 0, 0, 1, 2, 3, 4]
    assert [number(behind(pts)) for pts in range(30)] == once * 3
    behind.close()


def test_a_still_image_may_be_a_video(tmp_path: Path) -> None:
    file = write_image(tmp_path / "a.png", halves(96, 64))
    behind = backdrop(file, kind="video")
    assert behind(0) is behind(1000)
    behind.close()


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("missing.jpg", None, "no such file"),
        ("text.jpg", b"no picture at all", "holds no frame that can be decoded"),
        ("empty.png", b"", "the file is empty"),
    ],
)
@pytest.mark.parametrize("option", first(1, [[], ["--plan"]]))
def test_a_bad_file_is_one_line_before_any_work(
    tmp_path: Path, name: str, content: bytes | None, hint: str, option: list[str]
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    result = cli(SAMPLE, "-o", tmp_path / "out.mp4", "--effect", f"image:{tmp_path / name}", *option)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert f"effect image: {tmp_path / name}" in result.stderr and hint in result.stderr
    assert not (tmp_path / "out.mp4").exists()


def test_what_is_too_long_and_thin_to_cover(tmp_path: Path) -> None:
    file = write_image(tmp_path / "a.png", np.zeros((1, 20000, 3), np.uint8))
    with pytest.raises(InputError, match="can't cover"):
        backdrop(file, size=(1920, 1080))


def test_the_whole_way(tmp_path: Path, counting: Path) -> None:
    arguments = ["--effect", f"video:{counting}", "--codec", "ffv1", "--json", "--max-frames", "40", "--verify"]
    done = report(cli(SAMPLE, "-o", tmp_path / "out.mkv", *arguments))
    assert done["verified"]["psnr_least"] is None
    assert [number(p.planes) for p in pictures(tmp_path / "out.mkv")] == [n // 3 % 10 for n in range(40)]
