"""The command `segmentation-clips transcode`: many videos, some of which fail."""

import json
import re
import shutil
from pathlib import Path

import pytest
from numbered import all_frames, damage, numbered

from segmentation.cli.clips import main


@pytest.fixture
def videos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "videos" / "more").mkdir(parents=True)
    numbered(tmp_path / "videos" / "a.mkv", 20, options={"bf": "2"})
    numbered(tmp_path / "videos" / "more" / "b.avi", 24, "mpeg4")
    (tmp_path / "videos" / "notes.txt").write_text("no video")
    return tmp_path / "videos"


def test_folders_are_made_anew_and_gone_on_with(videos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["transcode", "videos", "small", "--keyframes", "8", "--size", "80x48", "-q"]
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert out.startswith("2 videos, 44 frames: ") and err == ""
    assert len(all_frames(Path("small/a.mp4"))) == 20 and len(all_frames(Path("small/more/b.mp4"))) == 24
    Path("small/a.mp4").unlink()
    assert main([*command, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(Path(one["target"]).name, one["frames"], one["skipped"]) for one in listed] == [
        ("a.mp4", 20, False), ("b.mp4", 24, True),
    ]  # fmt: skip
    assert main(command) == 0
    assert "2 of them were there already" in capsys.readouterr().out
    assert main(["transcode", "videos/a.mkv", "one", "--size", "80x48", "-q"]) == 0
    sizes = r"1 video, 20 frames: 0\.\d*[1-9]\d* MB became 0\.\d*[1-9]\d* MB\n"  # also of a few kilobytes
    assert re.fullmatch(sizes, capsys.readouterr().out)


def test_files_that_fail_hold_up_no_others(videos: Path, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(numbered(videos / "bad.mp4", 40, options={"g": "10", "bf": "0"}, size=(320, 240)), 15)
    shutil.copy(corpus / "fixture-raw.mts", videos)
    shutil.copy(corpus / "bear-640x360-v_frag-cbcs.mp4", videos / "locked.mp4")
    shutil.copy(videos / "a.mkv", videos / "a.mov")
    assert main(["transcode", "videos", "small", "-q", "--jobs", "2"]) == 1
    out, err = capsys.readouterr()
    errors = [line for line in err.splitlines() if line.startswith("segmentation-clips: error: ")]
    assert len(errors) == 4 and "4 failed" in out and "2 videos, 44 frames" in out
    for reason in ("bad.mp4: ", "is interlaced", "is encrypted", "would become small/a.mp4, as does videos/a.mkv"):
        assert sum(reason in line for line in errors) == 1, reason
    assert sorted(str(path) for path in Path("small").rglob("*.*")) == ["small/a.mp4", "small/more/b.mp4"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere.mp4", "small"], 1, "nowhere.mp4: no such file"),
        (["videos", "small", "--codec", "mpeg2"], 2, "codec 'mpeg2'"),
        (["videos", "small", "--jobs", "0"], 2, "--jobs 0"),
        (["videos", "videos"], 1, "no videos there that do not lie in videos"),
    ],
)
def test_bad_input_is_one_line(
    videos: Path, arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["transcode", *arguments, "-q"]) == code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("segmentation-clips: error: ") and message in lines[0]


def test_a_bad_rate_is_one_line(videos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["transcode", "videos", "small", "--rate", "fast"])
    assert "'fast': give frames a second" in capsys.readouterr().err
