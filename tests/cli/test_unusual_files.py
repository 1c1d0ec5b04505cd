"""Names, places and streams that are no ordinary files: one line, and nothing lost."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from marks import first
from paths import ROOT, SAMPLE
from program import TIMEOUT, start
from quick import cli
from videos import Synthetic, times

FEW = ("--max-frames", 3)


def shell(line: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command with its streams led elsewhere; `{}` in `line` stands for it."""
    command = subprocess.list2cmdline([sys.executable, "-m", "segmentation", *map(str, arguments)])
    bash = ["bash", "-o", "pipefail", "-c", line.format(command)]
    return subprocess.run(bash, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT)


def test_a_pipe_is_not_made_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    done = cli(SAMPLE, "-o", tmp_path / "a.mp4", "--trace", pipe, "-y", *FEW)
    assert done.returncode == 1 and f"{pipe}: is no regular file" in done.stderr
    assert stat.S_ISFIFO(pipe.stat().st_mode) and list(tmp_path.iterdir()) == [pipe]


@pytest.mark.parametrize("place", first(2, ["input", "-o", "--results", "--masks", "--model"]))
def test_names_may_be_too_long(tmp_path: Path, place: str) -> None:
    name = tmp_path / ("n" * 300 + ".mp4")
    arguments = (name,) if place == "input" else (SAMPLE, "-o", tmp_path / "a.mp4", place, name)
    done = cli(*arguments, *FEW)
    assert done.returncode in (1, 2) and len(done.stderr.splitlines()) == 1 and name.name in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_name_that_leads_to_itself(tmp_path: Path) -> None:
    loop = tmp_path / "loop.mp4"
    loop.symlink_to(loop)
    done = cli(SAMPLE, "-o", loop, *FEW)
    assert done.returncode == 2 and "cannot be written" in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_current_folder_that_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    done = shell(f"cd {folder}; rmdir {folder}; PYTHONPATH={ROOT} {{}}", SAMPLE, "-o", "a.mp4", *FEW)
    assert done.returncode == 1
    assert done.stderr == "segmentation: error: the current folder is gone; change to another\n"


def test_a_terminal_without_columns_gets_the_lines_too(tmp_path: Path) -> None:
    done = shell("COLUMNS=0 {}", tmp_path / "nothing.mp4")
    assert done.returncode == 1 and done.stderr == f"segmentation: error: {tmp_path}/nothing.mp4: no such file\n"


@pytest.mark.parametrize("option", ["--start", "--duration"])
def test_times_have_an_end(tmp_path: Path, option: str) -> None:
    done = cli(SAMPLE, "-o", tmp_path / "a.mp4", option, "1e13")
    assert done.returncode == 2 and "1,000,000,000 seconds" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("option", "name"), [("--results", "clip.segmented.jsonl"), ("--also", "clip.segmented.mask")])
def test_no_two_inputs_have_one_file(tmp_path: Path, option: str, name: str) -> None:
    for folder in ("one", "two", "out"):
        (tmp_path / folder).mkdir()
    clips = [Synthetic(codec="libx264").write(tmp_path / folder / "clip.mp4") for folder in ("one", "two")]
    value = f"mask:{tmp_path / 'out'}" if option == "--also" else tmp_path / "out"
    done = cli(*clips, option, value)
    assert done.returncode == 2 and f"another input has the file {tmp_path / 'out' / name}" in done.stderr
    assert not list((tmp_path / "out").iterdir()) and len(list((tmp_path / "one").iterdir())) == 1


def test_a_cutout_beside_another_output_has_a_name_that_holds_alpha(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    done = cli(SAMPLE, "-o", tmp_path / "a.mp4", "--also", f"cutout:{tmp_path / 'out'}", *FEW)
    assert done.returncode == 0 and [p.name for p in (tmp_path / "out").iterdir()] == ["a.cutout.mov"]


def test_folders_of_pictures_may_have_percent_signs(tmp_path: Path) -> None:
    folder = tmp_path / "50%d"
    folder.mkdir()
    for _ in range(2):
        done = cli(SAMPLE, "--effect", "cutout", "-o", folder / "100%%_%d.png", "-q", *FEW)
    assert done.returncode == 1 and "100%_1.png: exists already" in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == [f"100%_{n}.png" for n in (1, 2, 3)]


@pytest.mark.parametrize("line", first(2, ["{} >&-", "{} 2>/dev/full", "{} 2>&-", "{} --json | cat"]))
def test_a_video_is_made_whoever_listens(tmp_path: Path, line: str) -> None:
    done = shell(line, SAMPLE, "-o", tmp_path / "a.mp4", *FEW)
    assert done.returncode == 0 and "Traceback" not in done.stderr and len(times(tmp_path / "a.mp4")) == 3
    assert "json" not in line or json.loads(done.stdout)["frames"] == 3


@pytest.mark.parametrize(
    ("before", "kept"), [("os.close(0), os.close(2)", os.devnull), ("os.dup2(os.open('/dev/zero', 1), 2)", "/dev/zero")]
)
def test_no_file_gets_the_number_of_a_closed_stderr(before: str, kept: str) -> None:
    """Libraries print there, which would end up in a video."""
    code = f"import os; from segmentation.__main__ import hold_descriptors; {before}; hold_descriptors()"
    code += "; print(os.fstat(2).st_rdev)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.stdout == f"{os.stat(kept).st_rdev}\n"


def test_a_report_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    done = shell("{} >/dev/full", SAMPLE, "-o", tmp_path / "a.mp4", "--json", "-q", *FEW)
    assert done.returncode == 1 and done.stderr.startswith("segmentation: error: standard output: cannot be written")
    assert "No space left" in done.stderr and len(done.stderr.splitlines()) == 1 and len(times(tmp_path / "a.mp4")) == 3


def test_a_report_whose_reader_has_gone_ends_as_other_programs_do(tmp_path: Path) -> None:
    done = shell("{} | true", SAMPLE, "-o", tmp_path / "a.mp4", "--json", "-q", *FEW)
    assert done.returncode == 141 and not done.stderr and len(times(tmp_path / "a.mp4")) == 3


@pytest.mark.slow
@pytest.mark.parametrize("ignored", [False, True])
def test_a_closed_terminal_finishes_the_file(people: Path, tmp_path: Path, ignored: bool) -> None:
    target = tmp_path / "a.mp4"
    arguments = (
        people,
        "-o",
        target,
        "--effect",
        "overlay",
        "--quality",
        "high",
        "--max-frames",
        150,
        "--trace",
        tmp_path / "t.json",
    )
    before = f"import signal; signal.signal(signal.SIGHUP, signal.{'SIG_IGN' if ignored else 'SIG_DFL'})"
    with start(*arguments, before=before) as process:
        process.until(lambda: any(path.stat().st_size > 100_000 for path in tmp_path.glob(".a.*.mp4")))
        process.send_signal(signal.SIGHUP)
        _, stderr = process.communicate(timeout=TIMEOUT)
    assert process.returncode == (0 if ignored else 129), stderr
    assert {path.name for path in tmp_path.iterdir()} == {"a.mp4", "t.json"}
    count = len(times(target))
    assert count == 150 if ignored else 0 < count < 150


def test_nothing_is_written_to_the_home_folder(tmp_path: Path) -> None:
    """ONNX Runtime would leave an identifier there, and look up a host."""
    home = tmp_path / "home"
    home.mkdir()
    inherited = {name: os.environ[name] for name in os.environ if not name.startswith(("ORT_", "XDG_"))}
    command = [sys.executable, "-m", "segmentation", SAMPLE, "-o", tmp_path / "a.mp4", "--device", "cpu"]
    done = subprocess.run(
        [*map(str, command), "--max-frames", "3"], cwd=ROOT, env={**inherited, "HOME": str(home)}, timeout=TIMEOUT
    )
    assert done.returncode == 0 and not list(home.rglob("*"))


@pytest.mark.parametrize(("library", "later"), [("numpy", 0), ("libavcodec", 0), ("libavcodec", 0.3)])
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="tells from /proc what a process has loaded")
def test_an_early_end_is_a_silent_one(tmp_path: Path, library: str, later: float) -> None:
    """While libraries are being imported, or a moment later."""
    with start(SAMPLE, "-o", tmp_path / "a.mp4") as process:
        process.until(lambda: library in Path(f"/proc/{process.pid}/maps").read_text())
        time.sleep(later)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=TIMEOUT)
    assert process.returncode in (-signal.SIGINT, 1, 130)
    assert "Traceback" not in stderr
    assert all(path.name == "a.mp4" for path in tmp_path.iterdir())


@pytest.mark.parametrize(("suffix", "said"), first(2, [("avi", 1), ("mkv", 0), ("ts", 1), ("mp4", 0)]))
def test_containers_that_keep_less_say_so(tmp_path: Path, suffix: str, said: int) -> None:
    done = cli(Synthetic(codec="libx264").write(tmp_path / "clip.mkv"), "-o", tmp_path / f"a.{suffix}", *FEW)
    assert done.returncode == 0 and done.stderr.count("don't keep all timestamps and rotations") == said
