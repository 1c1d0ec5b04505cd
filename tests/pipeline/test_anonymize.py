"""`--anonymize` as users run it: faces are black in each frame, and names stay out of the file."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from marks import DEVICES
from numpy.typing import NDArray
from paths import ROOT, SAMPLE
from program import cli, running
from videos import Synthetic

FACE = slice(130, 210), slice(300, 340)  # in each frame of the sample


def pictures(path: Path) -> list[NDArray[np.uint8]]:
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def test_the_face_is_black_in_every_frame_and_the_rest_stays(tmp_path: Path) -> None:
    target, results = tmp_path / "out.mp4", tmp_path / "results.json"
    options = ["--json", "--results", results, "--results-format", "mot", "--max-frames", "50"]
    done = cli(SAMPLE, "-o", target, "--anonymize", "faces", *options)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["found"] == 50
    before, after = pictures(SAMPLE)[:50], pictures(target)
    assert max(int(picture[FACE].max()) for picture in after) < 30
    changed = [np.abs(a.astype(int) - b).max(axis=2) > 60 for a, b in zip(before, after, strict=True)]
    assert max(float(one.mean()) for one in changed) < 0.25
    assert len({line.split(",")[0] for line in results.read_text().splitlines()}) == 50


@pytest.mark.parametrize("kind", ["faces", "people"])
def test_a_killed_run_leaves_no_uncovered_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    with running(
        tmp_path, SAMPLE, "-o", tmp_path / "out.ts", "--anonymize", kind, "--mute", "--quality", "5"
    ) as process:
        (left,) = tmp_path.glob(".*.part*")
        process.until(lambda: left.stat().st_size > 20_000)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [left], "nothing has the output's name"
    covered = pictures(left)
    assert covered and max(int(picture[FACE].max()) for picture in covered) < 30


FULL = """
mount -t tmpfs -o size=50k none "$0" && mkdir "$0/temporary" || exit 1
TMPDIR="$0/temporary" "$@"
code=$?
find "$0" -type f
exit $code
"""


@pytest.mark.parametrize("workers", [[], ["--workers", "local:2"]], ids=["alone", "with workers"])
def test_a_full_disk_leaves_nothing(tmp_path: Path, workers: list[str]) -> None:
    """Neither a file that is covered in part nor a temporary one, of which the disk has those of the system too."""
    full = ["unshare", "-rm", "sh", "-c", FULL, tmp_path]
    if shutil.which("unshare") is None or subprocess.run([*full, "true"], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    program = [sys.executable, "-m", "segmentation", SAMPLE, "-o", tmp_path / "out.ts", "--max-frames", "10"]
    options = ["--anonymize", "faces", "--quality", "1", *workers]
    done = subprocess.run([*full, *program, *options], capture_output=True, text=True, cwd=ROOT, timeout=240)
    assert done.returncode == 1 and "No space left on device" in done.stderr, done.stderr
    assert done.stdout == "", "files are left"


@pytest.mark.parametrize("track", [[], ["--track", "fast"]], ids=["alone", "with ids"])
def test_people_are_covered_as_their_masks_show_them(tmp_path: Path, track: list[str]) -> None:
    target, masks = tmp_path / "out.mp4", tmp_path / "masks.mkv"
    options = ["--anonymize", "people", "--effect", "color:white", "--max-frames", "20", "--save-masks", masks]
    done = cli(SAMPLE, "-o", target, *options, *track)
    assert done.returncode == 0, done.stderr
    assert min(int(picture[FACE].min()) for picture in pictures(target)) > 225
    levels = pictures(masks)[0]
    assert len(np.unique(levels)) > 5, "the network's own mask, and no ellipse"


def test_who_is_named_stays_and_ids_that_never_appear_are_said(tmp_path: Path) -> None:
    target = tmp_path / "out.mp4"
    options = ["--anonymize", "faces", "--max-frames", "6", "--json"]
    done = cli(SAMPLE, "-o", target, *options, "--except", "at 320,170@0.1", "--except", "id:9")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["found"] == 0 and ", nothing covered in 6, " in done.stderr
    assert "id 9 never appeared (there were 1" in done.stderr
    assert "nothing that was found is covered in 6 of 6 frames: all of it is to be left" in done.stderr
    assert min(int(picture[FACE].max()) for picture in pictures(target)) > 150


def test_several_networks_look_at_the_same_frames(tmp_path: Path) -> None:
    target, picture = tmp_path / "out.mp4", tmp_path / "in.png"
    network = ROOT / "segmentation" / "models" / "face.onnx"
    done = cli(SAMPLE, "-o", target, "--anonymize", f"people,plates={network}", "--max-frames", "3")
    assert done.returncode == 0, done.stderr
    body = slice(320, 350), slice(260, 380)
    assert all(
        made[FACE].max() < 30 and made[body].max() < 30 and made[60:160, 120:200].min() > 120
        for made in pictures(target)
    )
    cv2.imwrite(str(picture), cv2.cvtColor(pictures(SAMPLE)[0], cv2.COLOR_RGB2BGR))
    done = cli(picture, "-o", tmp_path / "out.png", "--anonymize", "heads,people")
    assert done.returncode == 0, done.stderr
    made = cv2.imread(str(tmp_path / "out.png"))
    assert made is not None and made[FACE].max() == 0 and made[body].max() == 0 and made[60:160, 120:200].min() > 120


def test_a_picture_is_covered_too(tmp_path: Path) -> None:
    picture = tmp_path / "in.png"
    cv2.imwrite(str(picture), cv2.cvtColor(pictures(SAMPLE)[0], cv2.COLOR_RGB2BGR))
    done = cli(picture, "-o", tmp_path / "out.png", "--anonymize", "faces")
    assert done.returncode == 0, done.stderr
    made = cv2.imread(str(tmp_path / "out.png"))
    assert made is not None and made[FACE].max() == 0 and made[:, :100].max() > 200


def named(path: Path) -> Path:
    """A video of nobody, with a title, chapters, subtitles and sound."""
    return Synthetic(
        pts=range(10),
        audio="aac",
        subtitles=[(0, 0.3, "Erika speaks")],
        chapters=[(0, 0.4, "Erika")],
        metadata={"title": "Erika at home"},
    ).write(path)


@pytest.mark.parametrize("keep", [False, True])
def test_names_stay_out_of_the_file_unless_they_are_asked_for(tmp_path: Path, keep: bool) -> None:
    source, target = named(tmp_path / "in.mkv"), tmp_path / "out.mkv"
    done = cli(source, "-o", target, "--anonymize", "faces", *["--keep-metadata"] * keep)
    assert done.returncode == 0, done.stderr
    assert "no face was found in 10 of 10 frames" in done.stderr
    with av.open(str(target)) as container:
        kinds = [stream.type for stream in container.streams]
        kept = bool(container.chapters()), "subtitle" in kinds, "title" in container.metadata
    assert kept == (keep, keep, keep) and "audio" in kinds
    assert ("left out, since they may name people" in done.stderr) != keep


def test_sound_is_left_out_where_that_is_asked_for(tmp_path: Path) -> None:
    done = cli(named(tmp_path / "in.mkv"), "-o", tmp_path / "out.mkv", "--mute", "--max-frames", "5")
    assert done.returncode == 0 and "is left out: --mute" in done.stderr
    with av.open(str(tmp_path / "out.mkv")) as container:
        assert not container.streams.audio


def test_workers_do_not_divide_what_is_linked_over_time(tmp_path: Path) -> None:
    done = cli(SAMPLE, "-o", tmp_path / "out.mp4", "--anonymize", "people", "--workers", "local:2", "--max-frames", "5")
    assert "go on from frame to frame" in done.stderr, done.stderr


@pytest.mark.parametrize("device", DEVICES)
def test_a_region_is_covered_while_it_is_asked_for_and_no_more(device: str, tmp_path: Path) -> None:
    target = tmp_path / "out.mp4"
    options = ["--region", "100,40,80,60@0.4-0.8", "--max-frames", "30", "--json", "--device", device]
    done = cli(SAMPLE, "-o", target, *options)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["plan"]["infer"] == ("function" if device == "cpu" else "nothing")
    made, before = pictures(target), pictures(SAMPLE)
    rate = av.open(str(SAMPLE)).streams.video[0].average_rate
    assert rate is not None
    times = [float(number / rate) for number in range(30)]
    inside, beside = (slice(40, 100), slice(100, 180)), (slice(40, 100), slice(190, 270))
    covered = [0.4 <= time < 0.8 for time in times]
    assert [int(picture[inside].max()) < 30 for picture in made] == covered and any(covered)
    for picture, old in zip(made, before, strict=False):
        assert np.abs(picture[beside].astype(int) - old[beside]).mean() < 5
    assert json.loads(done.stdout)["found"] == sum(covered)


def test_nobody_found_is_said_in_spite_of_a_region(tmp_path: Path) -> None:
    done = cli(named(tmp_path / "in.mkv"), "-o", tmp_path / "out.mkv", "--anonymize", "faces", "--region", "0,0,9,9")
    assert done.returncode == 0 and "no face was found in 10 of 10 frames" in done.stderr
    assert max(int(picture[:9, :9].max()) for picture in pictures(tmp_path / "out.mkv")) < 30


def test_a_region_of_a_picture_and_one_outside(tmp_path: Path) -> None:
    picture = tmp_path / "in.png"
    cv2.imwrite(str(picture), np.full((120, 160, 3), 200, np.uint8))
    done = cli(picture, "-o", tmp_path / "out.png", "--region", "0%,0%,50%,0%,0%,50%")
    assert done.returncode == 0, done.stderr
    made = cv2.imread(str(tmp_path / "out.png"))
    assert made is not None and made[5, 5].max() == 0 and made[100, 100].min() > 190
    done = cli(picture, "-o", tmp_path / "far.png", "--region", "200,0,10,10")
    assert done.returncode == 2 and "lies outside of the picture, which is 160x120" in done.stderr
    assert not (tmp_path / "far.png").exists()
