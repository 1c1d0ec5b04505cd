"""The command line: what it accepts, what it prints where, and how it ends."""

import json
import os
import pty
import shutil
import subprocess
import sys
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np
import pytest
from detectors import color_classifier, red_box
from paths import SAMPLE
from program import Program
from videos import pictures

from segmentation import InputError, Report, segment
from segmentation.cli.arguments import config_from, make_parser, parse
from segmentation.cli.main import main
from segmentation.options.config import OPTIONS

REPORT = (
    "input output also parts frames damaged retimed left_out late inferred found unknown received dropped reconnects "
    "repeated unsent latency doubtful counts complete seconds fps plan stages workers pieces redone verified"
).split()


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    return Path(shutil.copy(SAMPLE, tmp_path / "clip.mp4"))


def test_the_demo(clip: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([str(clip), "--max-frames", "5"]) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert (clip.parent / "clip.segmented.mp4").is_file()
    assert "5 frames" in err and "\x1b" not in err and len(err.splitlines()) == 1


def test_json_is_one_object_with_the_whole_report(clip: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([str(clip), "--max-frames", "5", "--json", "-q", "-o", str(clip.parent / "x.mkv")]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    report = json.loads(out)
    assert list(report) == REPORT
    assert report["frames"] == 5 and report["damaged"] == 0
    assert list(report["plan"]) == list(report["stages"]) == ["decode", "preprocess", "infer", "postprocess", "encode"]
    assert report["stages"]["infer"] > 0


def test_python_and_the_command_line_are_the_same(clip: Path, capfd: pytest.CaptureFixture[str]) -> None:
    called = asdict(segment(clip, clip.parent / "a.mp4", effect="color:#ff0000", max_frames=5, quality=30))
    arguments = ["--effect", "color:#ff0000", "--max-frames", "5", "--quality", "30"]
    assert main([str(clip), "-o", str(clip.parent / "b.mp4"), *arguments, "--json"]) == 0
    printed = json.loads(capfd.readouterr().out)
    for name in ("frames", "damaged", "plan"):
        assert printed[name] == called[name]
    assert (clip.parent / "a.mp4").read_bytes() == (clip.parent / "b.mp4").read_bytes()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--effect", "blur", "--invert"],
        ["--effect", "color:#ff0000", "--threshold", "0.3"],
        ["--effect", "color:#ff0000", "--feather", "30"],
        ["--effect", "pixelate:90"],
        ["--effect", f"image:{SAMPLE.parent.parent / 'docs' / 'demo.png'},contain"],
    ],
    ids=lambda arguments: " ".join(arguments)[:40],
)
def test_effects_and_edges_are_options(clip: Path, capfd: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    """Each does something to the picture that it would not have been without."""
    out = clip.parent / "out.mkv"
    planes = []
    for given in (arguments, arguments[:2] if arguments[2:] else []):
        options = [*given, "--codec", "ffv1", "--verify", "-y", "-q", "--max-frames", "1"]
        assert main([str(clip), "-o", str(out), *options]) == 0
        planes.append(next(pictures(out)).planes[0].astype(int))
    assert capfd.readouterr().err == ""
    assert np.abs(planes[0] - planes[1]).mean() > 0.2


def test_every_option_of_config_is_on_the_command_line() -> None:
    known = {action.dest for action in make_parser()._actions}
    assert OPTIONS.keys() <= known
    arguments = "--start 1:30 --duration 10 --classes person,cat --mean 0.5,0.5,0.5 --input-size 256x320 --baseline x"
    config = config_from(parse(arguments.split()))
    assert (config.start, config.duration, config.classes) == (90.0, 10.0, ("person", "cat"))
    assert (config.mean, config.input_size, config.mode) == ((0.5, 0.5, 0.5), (256, 320), "baseline")


def test_the_plan(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--plan", "--infer", "onnxruntime"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("GPU ") and lines[-6].startswith("inputs ")
    lines = lines[-5:]
    assert [line.split()[:2] for line in lines] == [
        ["decode", "pyav"],
        ["preprocess", "opencv"],
        ["infer", "onnxruntime"],
        ["postprocess", "opencv"],
        ["encode", "x264"],
    ]
    assert all(len(line.split()) > 2 for line in lines)  # each with what it runs on


def test_the_plan_of_steps(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    spots, colors = red_box(tmp_path / "red.onnx"), color_classifier(tmp_path / "colors.onnx")
    then = ["--then", f"spot={spots}@person", "--then", f"color={colors}@spot"]
    steps = {"track": "balanced", "then spot": f"{spots}@person", "then color": f"{colors}@spot"}
    assert main(["--plan", "--baseline", "--interval", "3", *then]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line[:12].strip() for line in lines[-8:]] == [
        *("preprocess", "infer", "interval", "track", "then spot", "then color", "postprocess", "encode")
    ]
    assert "one frame of 4" in lines[-6] and "ssd, crops at 32x32" in lines[-4] and "classifier" in lines[-3]
    assert main(["--plan", "--baseline", "--json", "--interval", "auto", *then]) == 0
    planned = json.loads(capfd.readouterr().out)
    assert list(planned)[3:-4] == ["interval", *steps] and planned["interval"] == "auto"
    assert planned.items() >= steps.items()
    assert main(["--plan", "--track", "fast", "--json"]) == 0
    planned = json.loads(capfd.readouterr().out)
    assert planned["track"] == "fast" and "interval" not in planned


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        (["--then", "spot=red.onnx@persn"], "then spot: nothing is called 'persn'; choose from person"),
        (["--then", "spot=missing.onnx@person"], "missing.onnx: no such model"),
        (["--effect", "blur@persn"], "effect blur@persn: nothing is called 'persn'; choose from person"),
        (
            ["--count", "line:9000,0,9000,9", str(SAMPLE)],
            "count line:9000,0,9000,9: lies outside of the picture, which is ",
        ),
        (["--model", "red.onnx", "--interval", "2"], "interval 2: red.onnx finds single things"),
    ],
)
def test_the_plan_refuses_what_the_run_would(
    option: list[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    red_box(tmp_path / "red.onnx")
    assert main([*option, "--plan"]) > 0
    [line] = capfd.readouterr().err.splitlines()
    assert problem in line


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        ([], 2, "no input"),
        (["clip.mp4", "--effect", "sparkle"], 2, "choose blur"),
        (["clip.mp4", "--effect", "pixelate:0"], 2, "2 to 1080"),
        (["clip.mp4", "--effect", "image:"], 2, "name the file"),
        (["clip.mp4", "--effect", "video:nowhere.mp4"], 1, "effect video: nowhere.mp4: no such file"),
        (["clip.mp4", "--effect", "image:empty"], 1, "effect image: empty: is a folder"),
        (["clip.mp4", "--effect", "cutout", "--codec", "h264"], 2, "leave out --codec"),
        (["clip.mp4", "--effect", "cutout", "-o", "x.mp4"], 1, "name a .mov"),
        (["clip.mp4", "--threshold", "1"], 2, "between 0 and 1"),
        (["clip.mp4", "--feather", "-3"], 2, "0 (a sharp edge)"),
        (["clip.mp4", "--batch-size", "0"], 2, "1 or more"),
        (["clip.mp4", "--infer", "abacus"], 2, "choose from onnxruntime"),
        (["clip.mp4", "--optimized"], 3, "--optimized"),
        (["nowhere.mp4"], 1, "nowhere.mp4: no such file"),
        ([""], 1, "'': must be the name of a file"),
        (["clip.mp4", "-o", ""], 2, "output '': must be the name of a file or a folder"),
        (["ftp://me:secret@host/a.mp4"], 1, "ftp://***@host/a.mp4: is no address that is read; those begin with http"),
        (["front door=rtsp://host/a"], 1, "rtsp://host/a: 'front door' is no name of a source; use letters, digits"),
        (
            ["clip.mp4", "--effect", "video:rtsp://me:secret@host/a"],
            1,
            "rtsp://***@host/a: is a live source, ",
        ),
        (["hall=rtmps://me:secret@host/a"], 1, "hall=rtmps://***@host/a: is no address that is read; those begin with"),
        (["hall=http://me:secret@host/a.ts"], 1, "hall=http://***@host/a.ts: a name stands before live sources alone"),
        (["*.webm"], 1, "no videos or pictures there"),
        (["empty"], 1, "no videos or pictures there"),
        (["clip.mp4", "clip.mkv", "-o", "x.mp4"], 2, "need a folder"),
        (["clip.mp4", "clip.mkv", "--results", "x.jsonl"], 2, "need a folder"),
        (["clip.mp4", "clip.mkv", "--masks", "x"], 2, "need a folder that exists"),
        (["clip.mp4", "--model", "nothing.onnx"], 1, "no such model"),
        (["clip.mp4", "--classes", "cat"], 1, "choose from person"),
        (["clip.mp4", "--start", "100"], 1, "no frame at --start 100 s"),
        (
            ["clip.mp4", "--start", "0.001", "--duration", "0.001"],
            1,
            "no frame within 0.001 s (--duration) from 0.001 s on",
        ),
        (["clip.mp4", "--pick", "5,5@nan"], 2, "'nan' is not a number of seconds"),
        (["clip.mp4", "--classes", ","], 2, "classes (): must have one at least"),
    ],
)
def test_wrong_usage_ends_in_one_line(
    clip: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    hint: str,
) -> None:
    monkeypatch.chdir(clip.parent)
    Path("empty").mkdir()
    shutil.copy("clip.mp4", "clip.mkv")
    assert main(arguments) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert hint in err and len(err.splitlines()) == 1
    assert sorted(p.name for p in Path().iterdir()) == ["clip.mkv", "clip.mp4", "empty"]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--start", "soon"], "'soon' is not a number"),
        (["--start", "nan"], "'nan' is not a number of seconds"),
        (["--mean", "0.5,"], "must be numbers with commas between"),
        (["--input-size", "256"], "must be height and width"),
        (["--codec", "vp9"], "invalid choice"),
        (["--baseline", "--optimized"], "not allowed with"),
        (["--sing"], "unrecognized"),
    ],
)
def test_what_argparse_refuses(arguments: list[str], hint: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["clip.mp4", *arguments])
    assert caught.value.code == 2
    err = capfd.readouterr().err
    assert "usage" in err and hint in err


def test_folders_and_patterns(clip: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(clip.parent)
    Path("in").mkdir()
    Path("out").mkdir()
    for name in ("a.mp4", "b.mp4", "b.segmented.mp4"):
        shutil.copy("clip.mp4", f"in/{name}")
    Path("in/notes.txt").write_text("not a video")
    assert main(["in", "-o", "out", "--max-frames", "2", "-q"]) == 0
    assert sorted(p.name for p in Path("out").iterdir()) == ["a.segmented.mp4", "b.segmented.mp4"]
    assert main(["in/a*.mp4", "clip.mp4", "--max-frames", "2", "-q"]) == 0
    assert Path("in/a.segmented.mp4").is_file() and Path("clip.segmented.mp4").is_file()
    capfd.readouterr()


def test_verbose_says_what_was_assumed(clip: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([str(clip), "--max-frames", "1", "-v"]) == 0
    err = capfd.readouterr().err
    assert "plan:" in err and "onnxruntime" in err


@pytest.mark.parametrize("source", [".", "/", ""])
def test_what_has_no_name_is_no_video(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError):
        segment(source)
    assert not list(tmp_path.iterdir())


def test_what_compile_is_not_for_is_said(clip: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([str(clip), "--max-frames", "1", "--baseline", "--compile"]) == 0
    assert "--compile is for torch-fp16 only" in capfd.readouterr().err


@pytest.mark.slow
def test_a_progress_bar_on_a_terminal(clip: Path) -> None:
    """What a person sees: frames, speed and time left, gone when it is done."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "segmentation", str(clip)]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    with Program(command, stderr=slave, stdout=subprocess.DEVNULL, env=environment) as process:
        os.close(slave)
        seen = b""
        while True:
            try:
                chunk = os.read(master, 65536)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            seen += chunk
        os.close(master)
        assert process.wait(240) == 0
    assert b"clip.mp4" in seen and b"fps" in seen and b"/150" in seen and b"0:00:" in seen


def test_report_and_json_have_the_same_fields() -> None:
    assert [field.name for field in fields(Report)] == REPORT
