"""The comparison of two sides finds whatever a decoder does wrong, and outlives decoders that hang or die."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from paths import ROOT, SAMPLE
from side_differences import Comparison, compare, explanation
from sides import Side
from videos import Synthetic

CLOSED = {"x264-params": "keyint=12:min-keyint=12:scenecut=0:bframes=3"}


@cache
def side(name: str) -> Side:
    return Side(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole file, one that breaks off, and one that is no video."""
    made = tmp_path_factory.mktemp("videos")
    options = {"movflags": "+faststart"}
    clip = Synthetic(codec="libx264", options=CLOSED, pts=range(40), size=(128, 96), container_options=options)
    whole = clip.write(made / "whole.mp4").read_bytes()
    (made / "cut.mp4").write_bytes(whole[: len(whole) * 3 // 4])
    (made / "text.txt").write_text("no video")
    return made


def compared(path: Path, right: str, masks: int = 0) -> Comparison:
    return compare(str(path), side("cpu"), side(right), masks)


@pytest.mark.parametrize("right", ["cpu", "one-thread", "chunks", "wrong_decoders:Right"])
def test_right_decoders_differ_in_nothing(folder: Path, right: str) -> None:
    found = compared(folder / "whole.mp4", right, masks=4)
    assert not found.kinds and (found.left.frames, found.right.frames, found.masks) == (40, 40, 4)
    assert found.left.sha256 == found.right.sha256


@pytest.mark.parametrize(
    ("decoder", "kinds", "first"),
    [
        ("Drops", ["frames", "pts", "planes"], 9),
        ("LosesLast", ["frames"], 37),
        ("Doubles", ["frames", "pts", "planes"], 1),
        ("Swaps", ["planes"], 3),
        ("Shifts", ["pts"], 6),
        ("Flips", ["planes"], 4),
        ("Garbage", ["planes"], 20),
    ],
)
def test_wrong_decoders_are_found(folder: Path, decoder: str, kinds: list[str], first: int) -> None:
    found = compared(folder / "whole.mp4", f"wrong_decoders:{decoder}")
    assert (found.kinds, found.first, found.explained) == (kinds, first, "")
    assert decoder != "Flips" or (found.planes, found.worst) == (1, 1)


def test_hidden_damage_is_found(folder: Path) -> None:
    found = compared(folder / "cut.mp4", "wrong_decoders:HidesDamage")
    assert found.kinds == ["damage"] and found.left.damaged and not found.explained


def test_other_masks_are_found() -> None:
    found = compared(SAMPLE, "wrong_decoders:Resizes", masks=40)
    assert "masks" in found.kinds and found.iou is not None and found.iou < 0.9


def test_what_nvdec_may_do_is_explained(folder: Path) -> None:
    found = compared(folder / "cut.mp4", "wrong_decoders:HidesDamage")
    found.right.decoder = "nvdec"
    assert explanation(found) == "damage, which NVDEC does not tell of"
    found.left.damaged = 0
    assert explanation(found) == ""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "tools" / "quality" / "compare_sides.py", folder, "--masks", "0", *arguments]
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "support")))
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths})


def test_a_folder_is_a_line_a_file_and_a_json(folder: Path, tmp_path: Path) -> None:
    done = run(folder, "--right", "wrong_decoders:Drops", "-o", str(tmp_path / "out.json"))
    assert done.returncode == 1 and not done.stderr, done.stderr
    states = {line.split()[1].rpartition("/")[2]: line.split()[0] for line in done.stdout.splitlines()[:-1]}
    assert states == {"cut.mp4:": "DIFFERS", "text.txt:": "same", "whole.mp4:": "DIFFERS"}
    content = json.loads((tmp_path / "out.json").read_text())
    assert {"date", "command", "hardware", "versions"} < content.keys()
    assert content["summary"]["both refuse"] == 1 and content["summary"]["DIFFERS"] == 2


def test_what_is_known_to_be_damaged_may_differ(folder: Path) -> None:
    done = run(folder, "--right", "wrong_decoders:Garbage", "--damaged", "w*.mp4")
    states = {line.split()[1].rpartition("/")[2]: line.split()[0] for line in done.stdout.splitlines()[:-1]}
    assert states == {"cut.mp4:": "DIFFERS", "text.txt:": "same", "whole.mp4:": "explained"}


@pytest.mark.parametrize(
    ("decoder", "state"), [pytest.param("Hangs", "HANGS", marks=pytest.mark.slow), ("Dies", "DIES")]
)
def test_what_hangs_or_dies_is_one_line(folder: Path, decoder: str, state: str) -> None:
    done = run(folder, "--right", f"wrong_decoders:{decoder}", "--limit", "5")
    assert done.returncode == 1
    lines = [line.split()[0] for line in done.stdout.splitlines()]
    assert lines[:3] == [state, "same", state]


def test_a_side_that_cannot_run_is_said(folder: Path) -> None:
    done = run(folder, "--right", "wrong_decoders:Missing")
    assert done.returncode == 3 and len(done.stderr.splitlines()) == 1 and "Missing" in done.stderr
