"""Frames in which something is found are counted, and a run that finds nothing says so."""

import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
from drawn import batch_of
from marks import DEVICES
from networks import RED, make_model
from program import cli, report
from videos import Synthetic

from segmentation import Config, Segmenter, segment
from segmentation.frames.instances import FrameInstances, Instance
from segmentation.frames.sinks import FinishedBatch
from segmentation.pipeline.found import FoundSink

BRIGHT = [4, 5, 6, 11]  # frames of 25


def clip(path: Path, bright: Sequence[int] = BRIGHT) -> Path:
    """A dark video of 96x64 pixels, in some of whose frames there is a bright square."""
    frames = []
    for number in range(25):
        planes = np.full((96, 96), 128, np.uint8)
        planes[:64] = 60
        if number in bright:
            planes[16:48, 32:64] = 220
        frames.append(av.VideoFrame.from_ndarray(planes, "yuv420p"))
    return Synthetic(frames=frames).write(path)


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """The mask is the red: above the threshold in the square alone."""
    return make_model(tmp_path / "network.onnx", RED, size=(64, 96), metadata={"labels": '["person"]'})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"invert": True},
        {"refine": False},
        {"effect": "mask", "feather": 20.0},
        {"save_masks": "masks.mkv"},
        {"results": "a.jsonl", "video": False},
        {"effect": "overlay", "also": [("mask", "also.mkv")]},
        {"count": ("zone:0,0,96,0,96,64,0,64",), "video": False},
        {"effect": "blur@person"},
    ],
    ids=str,
)
def test_frames_are_counted_whatever_is_made_of_them(
    device: str,
    batch_size: int,
    options: dict[str, Any],
    network: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    source = clip(tmp_path / "in.mkv")
    session: dict[str, Any] = {"activation": "none", "device": device, "smooth": 0.0, "batch_size": batch_size}
    with Segmenter(model=network, **session) as segmenter:
        made = segmenter.run(source, tmp_path / "out.mkv" if options.get("video", True) else None, **options)
    assert (made.frames, made.found) == (25, len(BRIGHT))


def test_what_is_found_is_what_results_have(network: Path, tmp_path: Path) -> None:
    """Also where masks are smoothed over time, or propagated to frames that the network has not seen."""
    source = clip(tmp_path / "in.mkv")
    for options in ({"smooth": 0.8}, {"interval": 3}):
        lines = tmp_path / f"{len(options)}{next(iter(options))}.jsonl"
        made = segment(source, None, video=False, results=lines, model=network, refine=False, device="cpu", **options)
        areas = [json.loads(line)["area"] for line in lines.read_text().splitlines()]
        assert made.found == np.count_nonzero(areas) > 0


@pytest.mark.parametrize("bright", [[], BRIGHT])
def test_saved_masks_have_it_too(
    bright: list[int], network: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = clip(tmp_path / "in.mkv", bright)
    options: dict[str, Any] = {"device": "cpu", "overwrite": True}
    segment(source, tmp_path / "out.mkv", model=network, save_masks=tmp_path / "m.mkv", **options)
    caplog.clear()
    assert segment(source, tmp_path / "out.mkv", masks=tmp_path / "m.mkv", **options).found == len(bright)
    assert ("in.mkv: nobody was found in 25 of 25 frames" in caplog.text) == (not bright)


@pytest.mark.parametrize("options", [[], ["--workers", "local:2"], ["--processes", "2"], ["--pace"]], ids=str)
def test_the_command_says_that_nobody_was_found(options: list[str], network: Path, tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mkv", [])
    common = ["-o", tmp_path / "out.mkv", "--model", network, "--json", "--device", "cpu", *options]
    done = cli(source, *common, cwd=tmp_path)
    made = report(done)
    assert made["found"] == 0 < made["frames"]
    assert f"nobody was found in {made['frames']} of {made['frames']} frames" in done.stderr
    assert f", nothing found in {made['frames']}, " in done.stderr  # the last line is about this too


@pytest.mark.slow
def test_the_command_counts_the_frames_of_pieces(network: Path, tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mkv")
    options = ["--model", network, "--smooth", "0", "--device", "cpu", "--workers", "local:2", "--json"]
    done = cli(source, "-o", tmp_path / "out.mkv", *options)
    assert report(done)["found"] == len(BRIGHT)
    assert "25 frames in " in done.stderr and f", nothing found in {25 - len(BRIGHT)}, " in done.stderr


def test_pictures_and_folders(network: Path, tmp_path: Path) -> None:
    """The summary of a folder names the inputs in which nothing was found."""
    folder = tmp_path / "in"
    folder.mkdir()
    square = np.zeros((64, 96, 3), np.uint8)
    cv2.imwrite(str(folder / "dark.png"), square)
    square[16:48, 32:64] = 220
    cv2.imwrite(str(folder / "square.png"), square)
    done = cli(folder, "-o", tmp_path / "out", "--model", network, "--json", "--device", "cpu")
    found = {Path(line["input"]).name: line["found"] for line in map(json.loads, done.stdout.splitlines())}
    assert found == {"dark.png": 0, "square.png": 1}
    assert f"\nnothing found: {folder / 'dark.png'}\n" in done.stderr and "square.png\n" not in done.stderr
    assert "dark.png: nobody was found in 1 of 1 frames" in done.stderr


@pytest.mark.parametrize(
    ("keep", "found", "line"),
    [
        ("id:1", 25, ""),
        ("id:99", 0, "id 99 never appeared (there were 1)"),
        ("id:7,1,99", 25, "ids 7, 99 never appeared (there were 1)"),
    ],
)
def test_ids_that_never_appear_are_named(
    keep: str, found: int, line: str, network: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = clip(tmp_path / "in.mkv", range(25))
    made = segment(source, tmp_path / "out.mkv", model=network, keep=keep, device="cpu")
    assert made.found == found
    assert [record.message for record in caplog.records] == ([f"{source}: {line}"] if line else [])


def frame(*labels: str, kept: bool = True) -> FrameInstances:
    instances = tuple(
        Instance(label=label, score=1.0, box=(0, 0, 1, 1), id=number, kept=kept)
        for number, label in enumerate(labels, 1)
    )
    return FrameInstances(instances=instances, first_map=np.zeros((2, 2), np.uint8))


def sink_of(frames: Sequence[FrameInstances], *, above: bool = True, **options: Any) -> FoundSink:
    sink = FoundSink("in.mkv", ("person",), Config(**options))
    planes = (np.zeros((4, 4), np.uint8),) * 3
    for one in frames:
        sink.write(FinishedBatch(frames=batch_of(planes), found=np.array([above]), instances=(one,)))
    repeated = replace(batch_of(planes), repeated=True)  # while a live source is lost
    sink.write(FinishedBatch(frames=repeated, instances=(frame(),)))
    sink.finish(Fraction(0))
    return sink


@pytest.mark.parametrize(
    ("options", "frames", "found", "line"),
    [
        ({"effect": "blur@face"}, [frame("person", "face:frontal"), frame("person")], 1, ""),
        ({"effect": "blur@face"}, [frame("person")] * 2, 0, "no face was found in 2 of 2 frames"),
        ({"effect": "blur@person"}, [frame()], 0, "nobody was found in 1 of 1 frames"),
        ({"also": [("blur@face", "a.mkv")]}, [frame("person")], 1, "no face was found in 1 of 1 frames"),
        ({"then": ("hat=hat.onnx@person",)}, [frame("person")], 1, "no hat was found in 1 of 1 frames"),
        ({"keep": "nearest"}, [frame("person", kept=False)], 0, "nobody was kept in 1 of 1 frames"),
        ({"keep": "id:30"}, [frame(*["person"] * 22)], 1, "id 30 never appeared (there were {} and 2 more)"),
    ],
    ids=str,
)
def test_labels_and_networks_that_find_nothing_are_named(
    options: dict[str, Any],
    frames: list[FrameInstances],
    found: int,
    line: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink = sink_of(frames, **options)
    assert sink.frames == found
    wanted = line.format(", ".join(map(str, range(1, 21))))
    assert caplog.messages == ([f"in.mkv: {wanted}"] if line else [])


def test_who_is_not_there_is_named_by_the_classes_that_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    for classes, wanted in {
        ("person",): "nobody was found in 1 of 1 frames",
        ("cat", "dog"): "no cat or dog was found in 1 of 1 frames",
        tuple("abcd"): "none of 4 classes was found in 1 of 1 frames",
        ("regions",): "nothing was covered in 1 of 1 frames: no region has a time among them",
    }.items():
        caplog.clear()
        sink = FoundSink("in.mkv", classes, Config())
        planes = (np.zeros((4, 4), np.uint8),) * 3
        sink.write(FinishedBatch(frames=batch_of(planes), found=np.array([False])))
        sink.finish(None)
        assert caplog.messages == [f"in.mkv: {wanted}"]
