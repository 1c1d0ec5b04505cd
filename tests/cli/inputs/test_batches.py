"""Batches: which files are taken, how outputs are named, and what is said about each input."""

import json
import os
import shutil
import signal
import threading
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import photos
import pytest
from fake_session import FakeSegmenter
from paths import SAMPLE
from rich.console import Console
from videos import Synthetic

from segmentation import Config, ConfigError, InputError
from segmentation.cli import progress
from segmentation.cli.inputs.find_inputs import can_be_input, find_inputs
from segmentation.cli.inputs.jobs import make_jobs
from segmentation.cli.main import main
from segmentation.errors import Stopped
from segmentation.frames.source import Source

Session = type[FakeSegmenter]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def touch(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(b"v")


def found(*arguments: str, recursive: bool = False) -> list[str]:
    return [found.source.text for found in find_inputs(arguments, recursive=recursive).sources]


def targets(*arguments: str, output: str | None = None, recursive: bool = False) -> list[str]:
    sources = find_inputs(arguments, recursive=recursive).sources
    return [str(job.target) for job in make_jobs(sources, output, Config())]


def test_folders_are_searched_as_deep_as_asked(here: Path) -> None:
    touch("in/b.mp4", "in/a.MOV", "in/deep/er/c.webm", "in/.hidden/d.mp4", "in/.e.mp4", "in/b.segmented.mp4")
    os.symlink(here / "in", here / "in" / "deep" / "loop")
    assert found("in") == ["in/a.MOV", "in/b.mp4"]
    assert found("in", recursive=True) == ["in/a.MOV", "in/b.mp4", "in/deep/er/c.webm"]
    assert found("in", "in/b.mp4", "./in/b.mp4") == ["in/a.MOV", "in/b.mp4"]  # each once


def test_whatever_can_be_a_video_or_picture_is_tried(here: Path) -> None:
    """Known suffixes are trusted, so that a damaged video fails with a message; unknown ones are looked into."""
    touch("in/broken.vob", "in/photo.jpg", "in/notes.txt", "in/sound.mp3", "in/old.zip", "in/random", "in/dump.bin")
    Path("in/list.x").write_text("#EXTM3U\nclip.mp4\n")
    Path("in/art.nfo").write_text("a text that FFmpeg would draw\n" * 99)
    shutil.copy(SAMPLE, "in/nameless")
    shutil.copy(SAMPLE, "in/clip.download")
    Synthetic(codec="png", size=(16, 16), pts=range(1), pix_fmt="rgb24", format="image2").write(Path("in/picture.x"))
    inputs = find_inputs(["in"])
    expected = ["in/broken.vob", "in/clip.download", "in/nameless", "in/photo.jpg"]
    assert [found.source.text for found in inputs.sources] == expected
    assert len(inputs.no_videos) == 8
    assert inputs.left_out == "left out 8 (no video or picture: art.nfo, dump.bin, list.x and 5 more)"
    assert not can_be_input(Path("nowhere"))


def test_pictures_get_pictures(here: Path) -> None:
    touch("a.jpg", "a.png", "b.HEIC", "c.gif", "f/001.png", "f/002.png", "v.mp4", "f/shot_1.jpg")
    assert targets("a.jpg", "a.png", "v.mp4") == ["a.segmented.jpg", "a.segmented.png", "v.segmented.mp4"]
    assert targets("b.HEIC", "c.gif", output="o/") == ["o/b.segmented.png", "o/c.segmented.gif"]
    assert targets("f/%03d.png", "f/shot_%d.jpg") == ["f/video.segmented.mp4", "f/shot.segmented.mp4"]
    cutouts = make_jobs(find_inputs(["a.jpg", "a.png", "c.gif"]).sources, None, Config(effect="cutout"))
    assert [str(job.target) for job in cutouts] == ["a.jpg.segmented.png", "a.png.segmented.png", "c.segmented.webp"]
    also = make_jobs(find_inputs(["a.jpg", "c.gif"]).sources, "o", Config(also=[("cutout@face", "o"), ("mask", "o")]))
    assert [path.name for job in also for path in job.written] == [
        *("a.segmented.jpg", "a.segmented.cutout.png", "a.segmented.mask.jpg"),
        *("c.segmented.gif", "c.segmented.cutout.webp", "c.segmented.mask.gif"),
    ]


def test_outputs_of_earlier_runs_are_left_out_of_several_inputs(here: Path) -> None:
    touch("a.mp4", "a.segmented.mp4", "b.mov.segmented.mkv")
    assert found("a.mp4", "a.segmented.mp4", "b.mov.segmented.mkv") == ["a.mp4"]  # as a shell expands *.m*
    assert found("*") == ["a.mp4"]
    assert found("a.segmented.mp4") == ["a.segmented.mp4"]
    assert "is an output" in str(find_inputs(["a.segmented.mp4", "b.mov.segmented.mkv"]).missing[0][1])


def test_folders_in_folders_are_said_unless_they_are_searched(here: Path) -> None:
    touch("in/a.mp4", "in/deep/b.mp4", "in/.hidden/c.mp4")
    assert find_inputs(["in"]).left_out == "left out 1 (folder, which -r searches too: deep)"
    assert find_inputs(["in"], recursive=True).left_out == ""


def test_links_that_lead_nowhere_are_said(here: Path) -> None:
    touch("in/a.mp4")
    os.symlink("gone.mp4", "in/b.mp4")
    os.symlink("gone.mp4", "in/.c.mp4")
    for pattern in ("in", "in/*.mp4", "in/*"):
        assert find_inputs([pattern]).left_out == "left out 1 (link that leads nowhere: b.mp4)"
        assert found(pattern) == ["in/a.mp4"]


def test_names_that_clash_keep_their_suffix(here: Path) -> None:
    touch("a.mp4", "a.mov", "b.mp4", "c/a.mp4", "c.mp4", "c.mov", "c.mp4.avi")
    assert targets("a.mp4", "a.mov", "b.mp4") == ["a.mp4.segmented.mp4", "a.mov.segmented.mp4", "b.segmented.mp4"]
    assert targets("a.mp4", "c/a.mp4") == ["a.segmented.mp4", "c/a.segmented.mp4"]
    assert len(set(targets("c.mp4", "c.mov", "c.mp4.avi"))) == 3
    with pytest.raises(ConfigError, match="another input has the file"):
        targets("a.mp4", "c/a.mp4", output="out/")


def test_missing_folders_are_made_as_the_inputs_folders(here: Path, session: Session) -> None:
    touch("in/a.mp4", "in/deep/a.mp4")
    assert targets("in", output="out", recursive=True) == ["out/a.segmented.mp4", "out/deep/a.segmented.mp4"]
    assert not Path("out").exists()
    options = ["--results", "out/results", "--also", "mask:out/masks"]
    assert main(["in", "-r", "-o", "out", "-q", *options]) == 0
    assert Path("out/deep/a.segmented.mp4").is_file() and Path("out/masks/deep/a.segmented.mask.mp4").is_file()
    assert [run["results"] for run in session.made[0].runs] == [
        Path("out/results/a.segmented.jsonl"),
        Path("out/results/deep/a.segmented.jsonl"),
    ]
    assert main(["in/a.mp4", "-o", "new/", "-q"]) == 0
    assert Path("new/a.segmented.mp4").is_file()


@pytest.mark.parametrize(("form", "name"), [("coco", ".json"), ("cvat", ".xml"), ("yolo", "/%06d.txt")])
def test_results_in_a_folder_are_named_by_their_format(here: Path, form: str, name: str) -> None:
    touch("a.mp4", "b.mp4")
    config = Config(video=False, results="out", results_format=form)  # type: ignore[arg-type]
    jobs = make_jobs(find_inputs(["a.mp4", "b.mp4"]).sources, None, config)
    assert [str(path) for job in jobs for path in job.written] == [f"out/{x}.segmented{name}" for x in "ab"]
    touch(f"out/a.segmented{name.replace('%06d', '000007')}", "out/b.segmented/note.txt")
    assert [job.done for job in jobs] == [True, False]


def test_numbered_files_of_a_stopped_run_are_fragments(
    here: Path, session: Session, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    touch("a.mp4")
    (here / "ids" / "a.segmented").mkdir(parents=True)

    def stop(stop: threading.Event) -> None:
        touch("ids/a.segmented/000001.png", "ids/a.segmented/000002.png")
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(240)

    monkeypatch.setattr(session, "during", staticmethod(stop))
    options = ["a.mp4", "--results", "ids/", "--results-format", "png", "--skip-existing"]
    main(options)
    assert sorted(path.name for path in (here / "ids" / "a.segmented").iterdir()) == [
        "000001.partial.png",
        "000002.partial.png",
    ]
    assert "a.segmented.partial.mp4: stopped" in capfd.readouterr().err


def test_an_input_without_a_frame_at_the_signal_is_stopped_not_failed(
    here: Path, session: Session, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    touch("a.mp4", "b.mp4", "c.mp4")

    def during(stop: threading.Event) -> None:
        if len(session.made[0].runs) == 1:
            raise InputError("a.mp4: is no video")
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(240)
        raise Stopped("b.mp4: stopped before the first frame; nothing was written")

    monkeypatch.setattr(session, "during", staticmethod(during))
    assert main(["*.mp4", "--json"]) == 130
    out, err = capfd.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[0]["exit_code"] == 1
    assert lines[1] == {
        "input": "b.mp4",
        "stopped": True,
        "reason": "b.mp4: stopped before the first frame; nothing was written",
    }
    assert "0 done, 1 stopped, 1 failed, 1 not begun: " in err and "failed: b.mp4" not in err


def test_a_batch_goes_on_where_it_was_interrupted(
    here: Path, session: Session, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    touch("a.mp4", "b.mp4", "c.mp4")

    def stop_second(stop: threading.Event) -> None:
        if len(session.made[0].runs) == 2:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.wait(240)

    monkeypatch.setattr(session, "during", staticmethod(stop_second))
    main(["*.mp4"])
    err = capfd.readouterr().err
    assert "b.segmented.partial.mp4: stopped, 1 frame" in err and "1 done, 1 stopped, 1 not begun: 2 frames" in err
    assert sorted(p.name for p in here.glob("*.segmented.*")) == ["a.segmented.mp4", "b.segmented.partial.mp4"]
    monkeypatch.setattr(session, "during", staticmethod(lambda stop: None))
    assert main(["*.mp4", "--skip-existing", "--json"]) == 0
    out, err = capfd.readouterr()
    assert [run["source"] for run in session.made[1].runs] == ["b.mp4", "c.mp4"]
    assert "2 done, 1 skipped: 2 frames" in err
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[0] == {"input": "a.mp4", "output": "a.segmented.mp4", "skipped": True}
    assert [line.get("frames") for line in lines] == [None, 1, 1]


def test_dropped_frames_are_said_at_the_end(
    here: Path, session: Session, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = session.run

    def slow(*arguments: Any, **options: Any) -> Any:
        return replace(run(*arguments, **options), dropped={"end": 3, "late": 13, "undecodable": 7})

    monkeypatch.setattr(session, "run", slow)
    touch("a.mp4")
    assert main(["a.mp4"]) == 0
    assert "1 frame in 1.0 s (1.0 fps), 20 dropped (late 13, undecodable 7), " in capfd.readouterr().err


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_each_input_has_a_line_and_the_end_a_summary(
    here: Path, session: Session, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], jobs: str
) -> None:
    touch("in/a.mp4", "in/b.mp4", "in/notes.txt")

    run = session.run

    def broken(self: Any, source: str, target: Path, **options: Any) -> Any:  # with two jobs, either may begin first
        if source == "in/a.mp4":
            raise InputError("in/a.mp4: is broken")
        return run(self, source, target, **options)

    monkeypatch.setattr(session, "run", broken)
    assert main(["in", "nowhere.mp4", "--json", "--jobs", jobs]) == 1
    out, err = capfd.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert {"input": "nowhere.mp4", "error": "nowhere.mp4: no such file", "exit_code": 1} in lines
    assert {"input": "in/a.mp4", "error": "in/a.mp4: is broken", "exit_code": 1} in lines
    assert len(lines) == 3 and sum("frames" in line for line in lines) == 1
    assert "left out 1 (no video or picture: notes.txt)" in err
    assert "1 done, 2 failed: 1 frame in " in err
    assert "\nfailed: in/a.mp4: is broken" in err and "\nfailed: nowhere.mp4: no such file" in err


def test_a_line_from_time_to_time_without_a_terminal(
    here: Path, session: Session, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    touch("a.mp4", "b.mp4")
    assert main(["a.mp4", "b.mp4"]) == 0
    err = capfd.readouterr().err
    assert "segmentation: 0 of 2 inputs done, a.mp4: 1 of 2 frames\n" in err  # how long the others take shows later
    assert "segmentation: 1 of 2 inputs done, b.mp4: 1 of 2 frames" in err
    assert main(["a.mp4", "-y", "-q"]) == 0
    assert capfd.readouterr().err == ""


def test_the_time_left_counts_from_the_first_frame(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not from before, when a network was loaded or an engine built. What was done already took no time."""
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    clock = iter([0.0, 1000.0, 1010.0, 1020.0, 1030.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    a, b = map(Source.parse, ("https://x/a.mp4", "https://x/b.mp4"))
    bars = progress.BatchProgress([a, b], quiet=False)
    advance, _ = bars.begin(a)
    for done in (10, 20, 40):
        advance(done, 100)
    bars.skip(b)
    advance(60, 100)
    lines = capfd.readouterr().err.splitlines()
    left = [line.partition("frames")[2] for line in lines]
    assert left == ["", ", 0:03:00 left", ", 0:01:47 left", ", 0:00:24 left"]


def test_lines_of_unknown_length_have_no_question_mark(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    hall = Source.parse("hall=rtsp://camera/")
    advance, _ = progress.BatchProgress([hall], quiet=False).begin(hall)
    advance(1, 0)
    advance(7, 0)
    assert capfd.readouterr().err.splitlines() == ["segmentation: hall: 1 frame", "segmentation: hall: 7 frames"]


def test_the_bar_shows_all_inputs(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes in bytes weigh the inputs; an address counts as an input of mean size."""
    Path("a.mp4").write_bytes(bytes(300))
    Path("b.mp4").write_bytes(bytes(100))
    screen = StringIO()
    monkeypatch.setattr(progress, "console", Console(file=screen, force_terminal=True, width=150))
    sources = [Source.parse(text) for text in ("a.mp4", "b.mp4", "https://x/c.mp4")]
    with progress.BatchProgress(sources, quiet=False) as bars:
        advance, end = bars.begin(sources[0])
        advance(75, 150)
        bars._bars.refresh()
        assert "0 of 3" in screen.getvalue() and "25%" in screen.getvalue() and "75/150" in screen.getvalue()
        end()
        advance, end = bars.begin(sources[2])
        advance(10, 0)
        bars._bars.refresh()
        assert "1 of 3" in screen.getvalue() and "50%" in screen.getvalue() and "10/?" in screen.getvalue()
        end()
        bars.skip(sources[1])
        bars._bars.refresh()
    assert "3 of 3" in screen.getvalue() and "100%" in screen.getvalue()


def test_pictures_are_left_out_where_an_option_is_of_videos_alone(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("in").mkdir()
    Synthetic(codec="libx264", pts=range(3)).write(Path("in/clip.mp4"))
    for number in range(5):
        photos.write(Path("in", f"{number}.jpg"), photos.photo(32, 32))
    options = ["--model", "person", "--json"]
    assert main(["in", "--no-video", "--results", "r/", "--results-format", "yolo", *options]) == 0
    out, err = capfd.readouterr()
    assert "left out 5 (picture, which --no-video is not for: 0.jpg, 1.jpg, 2.jpg and 2 more)" in err
    assert "failed" not in err and len(out.splitlines()) == 1
    assert [path.name for path in Path("r").iterdir()] == ["clip.segmented"]
    assert main(["in", "-o", "out/", "--anonymize", "faces", "--audit", "out/", *options[2:]]) == 0
    assert "picture, which --audit is not for" in capfd.readouterr().err
    assert sorted(path.name for path in Path("out").iterdir()) == ["clip.segmented.audit.html", "clip.segmented.mp4"]


def test_no_empty_folder_of_numbered_results_stays(here: Path) -> None:
    touch("in/broken.mp4")
    assert main(["in", "-o", "out", "--results", "r", "--results-format", "yolo"]) == 1
    assert not list(Path("r").glob("*"))


def test_the_folder_of_a_pattern_is_made() -> None:
    (job,) = make_jobs(find_inputs(["hall=rtsp://h/1"]).sources, "z/{name}/{name}.mkv", Config())
    assert job.target == Path("z/hall/hall.mkv") and job.folders == {Path("z/hall")}
    (job,) = make_jobs(find_inputs(["hall=rtsp://h/1"]).sources, "z/%Y/{name}.mkv", Config(cut_every=60))
    assert not job.folders, "the parts make it, with the year in its name"
