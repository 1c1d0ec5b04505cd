"""The CPU's part runs where the system lacks what only Linux has, in a process without it.

Windows and macOS themselves are not here: `tests/support/bare_system` says what is taken away.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT, SAMPLE
from program import TIMEOUT
from videos import pictures

BARE = ROOT / "tests" / "support" / "bare_system"


def run(system: str, *arguments: str | Path, code: int = 0) -> str:
    """Runs the program as on a system; returns what it has said."""
    done = subprocess.run(
        [sys.executable, "-m", "segmentation", *map(str, arguments)],
        env={**os.environ, "BARE_SYSTEM": system, "PYTHONPATH": f"{BARE}{os.pathsep}{ROOT}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_the_sample_renders_without_what_windows_lacks(tmp_path: Path) -> None:
    output = tmp_path / "out.mp4"
    output.write_text("replaced")
    run("windows", SAMPLE, "-o", output, "-y", "--max-frames", "3", "--results", tmp_path / "out.jsonl")
    assert len(list(pictures(output))) == 3 and sorted(os.listdir(tmp_path)) == ["out.jsonl", "out.mp4"]


@pytest.mark.slow
@pytest.mark.parametrize("system", ["windows", "macos"])
@pytest.mark.parametrize("arguments", [("-o", "%05d.png"), ("-o", "out.gif"), ("-o", "out.webm", "--effect", "cutout")])
def test_other_outputs_are_written_too(system: str, arguments: tuple[str, ...], tmp_path: Path) -> None:
    first, name, *others = arguments
    run(system, SAMPLE, first, tmp_path / name, *others, "--max-frames", "3")
    assert len(os.listdir(tmp_path)) == (3 if "%" in name else 1) and not list(tmp_path.glob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize("system", ["windows", "macos", "no-proc"])
def test_faces_are_covered_and_the_output_is_verified(system: str, tmp_path: Path) -> None:
    said = run(system, SAMPLE, "-o", tmp_path / "out.mp4", "--anonymize", "faces", "--max-frames", "5", "--verify")
    assert "no face" not in said and len(list(pictures(tmp_path / "out.mp4"))) == 5


@pytest.mark.slow
@pytest.mark.parametrize("system", ["windows", "macos"])
def test_a_run_at_its_own_pace_ends_with_a_whole_file(system: str, tmp_path: Path) -> None:
    run(system, SAMPLE, "-o", tmp_path / "out.mkv", "--pace", "--duration", "1", "--status", ":0")
    assert len(list(pictures(tmp_path / "out.mkv"))) > 10


@pytest.mark.slow
@pytest.mark.parametrize("system", ["windows", "macos"])
@pytest.mark.parametrize("option", ["--workers=local:2", "--encode=x264-segments"])
def test_one_line_names_what_needs_linux(system: str, option: str, tmp_path: Path) -> None:
    (line,) = run(system, SAMPLE, "-o", tmp_path / "out.mp4", option, code=3).splitlines()
    assert re.search("needs? Linux", line) and not os.listdir(tmp_path)


@pytest.mark.slow
def test_the_doctor_finds_the_cpus_side_working() -> None:
    assert "all that is on this machine works" in run("windows", "doctor", "--device", "cpu")
