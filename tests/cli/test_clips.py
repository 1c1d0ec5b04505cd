"""The command `segmentation-clips`: what it lists, what it draws, and what it says of bad input."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from numbered import numbered

from segmentation.cli.clips import main


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def videos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "videos"
    folder.mkdir()
    numbered(folder / "a.mp4", 40, options={"g": "10", "bf": "2"})
    numbered(folder / "b.avi", 30, "mpeg4")
    (folder / "notes.txt").write_text("no video")
    return folder


def test_videos_are_listed(videos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", "videos", "--length", "8"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "videos/a.mp4: 40 frames of 160x96, 4 keyframes, 5 clips",
        "videos/b.avi: 30 frames of 160x96, decoded from the beginning for each clip, 3 clips",
        "2 videos, 70 frames, 8 clips",
    ]
    assert "videos/notes.txt is left out" in err
    assert main(["index", "videos/b.avi", "--length", "30"]) == 0
    assert capsys.readouterr().out.endswith("1 video, 30 frames, 1 clip\n")
    assert main(["index", "videos", "--length", "8", "--stride", "2", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [row["clips"] for row in listed["videos"]] == [2, 1] and list(listed["left_out"]) == ["videos/notes.txt"]
    assert listed["videos"][0]["seconds"] == 1.3


def test_a_sheet_shows_clips_and_their_masks(videos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["show", "videos/a.mp4", "--length", "8", "--size", "64x48", "--clips", "3"]
    assert main([*command, "-o", "sheet.png"]) == 0
    assert capsys.readouterr().out == "sheet.png\n"
    plain = cv2.imread("sheet.png")
    assert plain is not None and plain.shape == (3 * 52, 8 * 68, 3)
    numbered(videos / "a.masks.mkv", 40, "ffv1", pix_fmt="gray")
    command = [*command, "--masks", "videos", "-o", "sheet.png"]
    assert main(command) == 1  # it exists
    assert "sheet.png" in capsys.readouterr().err
    assert main([*command, "-y"]) == 0
    shaded = cv2.imread("sheet.png")
    assert shaded is not None and shaded.shape == plain.shape and np.abs(shaded.astype(int) - plain).mean() > 10


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["index", "nowhere.mp4"], 1, "nowhere.mp4"),
        (["index", "videos", "--length", "500"], 1, "holds no clip of 500 frames"),
        (["index", "videos", "--length", "0"], 2, "length 0: must be at least 1"),
        (["show", "videos", "--length", "8", "-o", "sheet.jpg"], 2, "a sheet is a .png"),
        (["show", "videos", "--length", "8", "-o", "nowhere/sheet.png"], 1, "does not exist"),
        (["index", "videos", "--length", "8", "--masks", "nowhere"], 1, "has no masks"),
    ],
)
def test_bad_input_is_one_line(
    videos: Path, arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == code
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if " is left out: " not in line]
    assert not out and len(lines) == 1 and lines[0].startswith("segmentation-clips: error: ") and message in lines[0]


def test_a_bad_size_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["show", "videos", "--size", "224", "-o", "a.png"])
    assert "give width and height in pixels" in capsys.readouterr().err


def test_an_unknown_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["trancode", "videos"])
    assert "did you mean transcode?" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="0"):
        main([])
    assert "transcode" in capsys.readouterr().out
