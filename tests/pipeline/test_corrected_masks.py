"""A correction changes the frames around it up to the next cut, and leaves the others as they were."""

from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from program import cli
from projects import write_project

from segmentation import Segmenter, segment
from segmentation.cli.inputs.find_inputs import find_inputs
from segmentation.cli.inputs.jobs import make_jobs
from segmentation.errors import ConfigError, InputError
from segmentation.options.config import Config

WIDTH, HEIGHT, RATE = 320, 192, 25
CORRECTED, CUT, LENGTH = 20, 30, 40
NETWORK = {"smooth": 0, "labels": ("person",), "input_size": (96, 160)}


def texture(seed: int) -> NDArray[np.uint8]:
    noise = cv2.GaussianBlur(np.random.default_rng(seed).random((HEIGHT, 2 * WIDTH)), (0, 0), 5)
    return np.asarray(np.clip(128 + 60 * (noise - noise.mean()) / noise.std(), 0, 255), np.uint8)


def half(pictures: NDArray[np.float32]) -> NDArray[np.float32]:
    """Finds a little everywhere: more where the picture is bright."""
    return np.asarray(0.3 + 0.2 * np.clip(pictures.mean(1), 0, 1), np.float32)


def left_of(number: int) -> int:
    """Returns the left side of the square in a frame."""
    return 40 + 3 * number


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A textured square that moves by 3 pixels a frame, and at frame 30 another scene."""
    path = tmp_path_factory.mktemp("corrected") / "a.mp4"
    ground, square, other = texture(1), texture(2), 255 - texture(3) // 2
    with av.open(str(path), "w") as target:
        stream: Any = target.add_stream("libx264", rate=RATE, options={"crf": "10", "g": "15"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(LENGTH):
            picture = (ground if number < CUT else other)[:, :WIDTH].copy()
            left = left_of(number)
            picture[60:130, left : left + 70] = square[60:130, 200:270]
            frame = av.VideoFrame.from_ndarray(np.repeat(picture[..., None], 3, 2), "rgb24")
            target.mux(stream.encode(frame))
        target.mux(stream.encode(None))
    return path


@pytest.fixture(scope="module")
def project(video: Path) -> Path:
    """The square is added in frame 20, and a corner removed."""
    drawn = np.zeros((HEIGHT, WIDTH), np.float32)
    drawn[60:130, left_of(CORRECTED) : left_of(CORRECTED) + 70] = 1
    drawn[:30, :30] = -1
    return write_project(video.parent / "a.json", (WIDTH, HEIGHT), {CORRECTED / RATE: drawn})


def masks(video: Path, **options: Any) -> list[NDArray[np.float32]]:
    with Segmenter(model=half, **NETWORK, **{k: v for k, v in options.items() if k == "project"}) as segmenter:
        rest = {k: v for k, v in options.items() if k != "project"}
        return [frame.small_mask for frame in segmenter.frames(video, refine=False, **rest)]


def middle(mask: NDArray[np.float32], number: int) -> float:
    """Returns the mask's value in the middle of the square."""
    height, width = mask.shape
    return float(mask[round(95 / HEIGHT * height), round((left_of(number) + 35) / WIDTH * width)])


def test_a_correction_reaches_the_frames_around_it_up_to_a_cut(video: Path, project: Path) -> None:
    before, after = masks(video), masks(video, project=project)
    assert len(after) == LENGTH
    for number in range(CUT):
        mask, (height, width) = after[number], after[number].shape
        assert middle(mask, number) > 0.95 > middle(before[number], number)
        assert mask[: height // 8, : width // 12].max() == 0
        beside = slice(height // 4, None), slice(0, width * (left_of(number) - 24) // WIDTH)
        assert np.mean(mask[beside] != before[number][beside]) < 0.01
    for number in range(CUT, LENGTH):
        assert np.array_equal(after[number], before[number])


def test_a_stretch_behind_the_correction_gets_it_too(video: Path, project: Path) -> None:
    stretch = {"start": 24 / RATE, "duration": 4 / RATE}
    whole, part = masks(video, project=project), masks(video, project=project, **stretch)
    assert len(part) == 4 and all(np.array_equal(mask, whole[24 + number]) for number, mask in enumerate(part))


def test_the_command_renders_a_project(video: Path, project: Path, tmp_path: Path) -> None:
    drawn = np.full((48, 80), -1, np.float32)
    own = write_project(tmp_path / "own.json", (WIDTH, HEIGHT), {0.4: drawn}, effect="color:#ff0000", max_frames=20)
    made = cli(video, "-o", tmp_path / "out.mkv", "--codec", "ffv1", "--project", own, "--max-frames", 12)
    assert made.returncode == 0, made.stderr
    with av.open(str(tmp_path / "out.mkv")) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(frames) == 12  # the command's own option counts
    for frame in frames:
        assert np.abs(frame.reshape(-1, 3).mean(0) - (255, 0, 0)).max() < 12


def test_what_does_not_fit_is_refused_in_one_line(video: Path, project: Path, tmp_path: Path) -> None:
    drawn = {0.4: np.ones((8, 8), np.float32)}
    other = write_project(tmp_path / "other.json", (WIDTH, WIDTH), drawn)
    with pytest.raises(InputError, match=r"other.json: is for a.mp4, 320x320; this video is 320x192"):
        segment(video, tmp_path / "a.mkv", model=half, project=other)
    behind = write_project(tmp_path / "behind.json", (WIDTH, HEIGHT), {7.0: drawn[0.4]})
    with pytest.raises(InputError, match="correction at 7 s is behind the video's end"):
        segment(video, tmp_path / "a.mkv", model=half, project=behind)
    double = write_project(tmp_path / "double.json", (WIDTH, HEIGHT), {0.4: drawn[0.4], 0.41: drawn[0.4]})
    with pytest.raises(InputError, match=r"at 0.4 s and 0.41 s are of the same frame"):
        segment(video, tmp_path / "a.mkv", model=half, project=double)
    with pytest.raises(ConfigError, match="read twice, so it must be a file"), video.open("rb") as file:
        segment(file, tmp_path / "a.mkv", model=half, project=project)
    with pytest.raises(ConfigError, match="anonymize: leave out --project"):
        segment(video, tmp_path / "a.mkv", anonymize="people", project=project)
    with pytest.raises(ConfigError, match="corrections are of videos"), Segmenter(project=project) as segmenter:
        segmenter.masks(np.zeros((64, 64, 3), np.uint8))
    assert [path.name for path in tmp_path.glob("a.*")] == []
    with pytest.raises(ConfigError, match="is of one video"):
        make_jobs(find_inputs(["https://x/a.mp4", "https://x/b.mp4"]).sources, None, Config(project=project))
