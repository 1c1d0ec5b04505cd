"""Runs without a video: the other files are those of a run with one, and nothing else is written."""

import io
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from marks import first
from numpy.typing import NDArray
from paths import SAMPLE
from quick import cli
from rtsp_server import RtspServer
from videos import Synthetic, times

from segmentation import BackendError, Config, ConfigError, Report, Segmenter, Streams, Workers, segment
from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS

COUNT = "zone:1,1,40,1,40,40,1,40"
UNEVEN = (0, 1, 4, 5, 11, 12, 20, 21, 22, 40)  # ticks
CLIPS: dict[str, Synthetic] = {
    "a.mp4": Synthetic(codec="libx264", audio="aac"),
    "ntsc.mp4": Synthetic(codec="libx264", time_base=Fraction(1001, 30000)),
    "odd.mov": Synthetic(codec="mpeg4", time_base=Fraction(1, 7)),
    "uneven.mkv": Synthetic(pts=UNEVEN, time_base=Fraction(1, 24)),
    "turned.mov": Synthetic(codec="libx264", rotation=90),
    "late.mkv": Synthetic(clock=100.5),
    "broadcast.ts": Synthetic(codec="libx264", clock=9000.25),
    "wrapping.ts": Synthetic(codec="libx264", clock=95443.3),  # MPEG-TS counts to 2^33 in 1/90000 s
    "deep.mkv": Synthetic(pix_fmt="yuv422p10le"),
    "gray.mkv": Synthetic(pix_fmt="gray"),
    "ntsc.avi": Synthetic(codec="mpeg4", time_base=Fraction(1001, 30000)),
}


def keep(batch: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns scores that differ from pixel to pixel and from frame to frame, by the brightness."""
    return batch.mean(axis=1)


OPTIONS: dict[str, Any] = {"model": keep, "device": "cpu", "input_size": (64, 64)}


@pytest.fixture(scope="module")
def segmenter() -> Iterator[Segmenter]:
    with Segmenter(**OPTIONS) as made:
        yield made


def both(segmenter: Segmenter, clip: Path, folder: Path, **options: Any) -> tuple[list[bytes], list[Report]]:
    """Returns the results and the masks of a run with a video and of one without, which must be the same bytes."""
    found, reports = [], []
    for name in ("with", "without"):
        files = {"results": folder / f"{name}.jsonl", "save_masks": folder / f"{name}.mkv"}
        given = {} if name == "with" else {"video": False}
        target = folder / "out.mp4" if name == "with" else None
        reports.append(segmenter.run(clip, target, **files, **given, **options))
        found.append([path.read_bytes() for path in files.values()])
    assert found[0] == found[1]
    return found[0], reports


@pytest.mark.parametrize("options", [{}, {"start": 0.3, "duration": 0.7, "count": (COUNT,), "rle": True}], ids=str)
@pytest.mark.parametrize("name", CLIPS)
def test_other_files_are_those_of_a_run_with_a_video(
    name: str, options: dict[str, Any], segmenter: Segmenter, tmp_path: Path
) -> None:
    clip = CLIPS[name].write(tmp_path / name)
    (results, _), (full, bare) = both(segmenter, clip, tmp_path, **options)
    lines = [json.loads(line) for line in results.splitlines()]
    assert len(lines) == bare.frames == full.frames > 3
    assert len({line["area"] for line in lines}) > 1 and len({line["pts"] for line in lines}) == len(lines)
    assert bare.counts == full.counts and bool(bare.counts) == ("count" in options)
    assert {path.name for path in tmp_path.iterdir()} == {
        name, "out.mp4", "with.jsonl", "with.mkv", "without.jsonl", "without.mkv",
    }  # fmt: skip


@pytest.mark.parametrize(
    "options",
    first(
        3,
        [
            {"results_format": "coco"},
            {"results_format": "mot"},
            {"interval": 3},
            {"refine": False},
            {"keep": "largest"},
        ],
    ),
    ids=str,
)
def test_so_they_are_in_other_formats_and_with_other_masks(options: dict[str, Any], tmp_path: Path) -> None:
    with Segmenter(device="cpu") as segmenter:
        (results, _), _ = both(segmenter, SAMPLE, tmp_path, max_frames=20, **options)
    assert results


def test_the_last_stages_are_neither_chosen_nor_run(
    segmenter: Segmenter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stage in ("postprocess", "encode"):
        for name, one in IMPLEMENTATIONS[stage].items():
            monkeypatch.setitem(IMPLEMENTATIONS[stage], name, replace(one, place="missing:Module"))
    clip = CLIPS["a.mp4"].write(tmp_path / "a.mp4")
    report = segmenter.run(clip, video=False, results=tmp_path / "a.jsonl")
    assert report.output is None and report.also == () and report.complete
    assert list(report.plan) == ["decode", "preprocess", "infer"] and report.stages["encode"] == 0
    with pytest.raises(BackendError, match="missing"):
        segmenter.run(clip, tmp_path / "out.mp4")


def test_saved_masks_give_results_again(segmenter: Segmenter, tmp_path: Path) -> None:
    clip = CLIPS["a.mp4"].write(tmp_path / "a.mp4")
    masks = tmp_path / "masks.mkv"
    segmenter.run(clip, video=False, save_masks=masks, results=tmp_path / "found.jsonl")
    report = segment(clip, video=False, masks=masks, results=tmp_path / "again.jsonl", device="cpu")
    assert report.inferred == 0 and report.frames == 25
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "found.jsonl").read_bytes()


def test_bytes_and_file_objects_are_taken(segmenter: Segmenter, tmp_path: Path) -> None:
    clip = CLIPS["uneven.mkv"].write(tmp_path / "a.mkv")
    both(segmenter, clip, tmp_path)
    lines = io.StringIO()
    report = segmenter.run(clip.read_bytes(), video=False, results=lines)
    assert report.input == "<bytes>" and lines.getvalue() == (tmp_path / "with.jsonl").read_text()


def test_an_output_and_workers_are_refused(tmp_path: Path) -> None:
    options: dict[str, Any] = {"video": False, "results": tmp_path / "a.jsonl"}
    with pytest.raises(ConfigError, match="leave out -o"):
        segment(SAMPLE, tmp_path / "a.mp4", **options)
    with Workers("local:1", device="cpu") as workers, pytest.raises(ConfigError, match="leave out --workers"):
        workers.run(SAMPLE, **options)
    assert not list(tmp_path.iterdir())


def test_a_picture_is_refused_in_a_line(segmenter: Segmenter, tmp_path: Path) -> None:
    picture = Synthetic(pts=(0,), codec="png", pix_fmt="rgb24", format="image2").write(tmp_path / "a.png")
    with pytest.raises(ConfigError, match="a picture is always written"):
        segmenter.run(picture, video=False, results=tmp_path / "a.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_a_session_without_a_video_has_pictures_and_frames(tmp_path: Path) -> None:
    with Segmenter(video=False, results=tmp_path / "a.jsonl", **OPTIONS) as segmenter:
        assert segmenter.masks(np.zeros((48, 64, 3), np.uint8)).shape == (48, 64)
        assert next(iter(segmenter.frames(SAMPLE, max_frames=1))).mask.shape == (360, 640)
        segmenter.run(CLIPS["a.mp4"].write(tmp_path / "a.mp4"))
    assert {path.name for path in tmp_path.iterdir()} == {"a.mp4", "a.jsonl"}


def test_a_stopped_run_leaves_what_was_found(segmenter: Segmenter, tmp_path: Path) -> None:
    stop = threading.Event()
    results = tmp_path / "a.jsonl"
    report = segmenter.run(
        SAMPLE, video=False, results=results, stop=stop, progress=lambda done, _: stop.set() if done > 5 else None
    )
    assert not report.complete and 5 < report.frames < 150
    assert len(results.read_text().splitlines()) == report.frames


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    clips = [CLIPS[name].write(tmp_path / name) for name in ("a.mp4", "uneven.mkv")]
    written = tmp_path / "found"
    arguments = ("--no-video", "--results", written, "--save-masks", written, "--json", "--skip-existing")
    done = cli(*clips, *arguments)
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [report["output"] for report in reports] == [None, None]
    assert "2 done: 35 frames" in done.stderr and f"{clips[0]}: 25 frames" in done.stderr
    assert {path.name for path in written.iterdir()} == {
        "a.segmented.jsonl", "a.segmented.masks.mkv", "uneven.segmented.jsonl", "uneven.segmented.masks.mkv",
    }  # fmt: skip
    again = cli(*clips, *arguments)
    assert [json.loads(line)["skipped"] for line in again.stdout.splitlines()] == [True, True]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ((), "add --results, --save-masks or --count"),
        (("--count", COUNT, "-o", "a.mp4"), "leave out -o"),
        (("--count", COUNT, "-o", "-"), "leave out -o"),
        (("--count", COUNT, "--workers", "local:1"), "leave out --workers"),
    ],
)
def test_the_command_refuses_what_needs_a_video(arguments: tuple[str, ...], hint: str) -> None:
    refused = cli(SAMPLE, "--no-video", *arguments)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1 and hint in refused.stderr


def test_the_command_says_what_it_has_counted() -> None:
    zone = "zone:0,0,640,0,640,360,0,360"
    done = cli(SAMPLE, "--no-video", "--count", zone, "--max-frames", "12", "--device", "cpu", "--json")
    counts = json.loads(done.stdout)["counts"][zone]
    assert counts["inside"] > 0
    assert f"{SAMPLE}: {zone}: inside {counts['inside']}, entered {counts['entered']}" in done.stderr.splitlines()


def test_the_plan_has_the_stages_that_run() -> None:
    shown = cli(SAMPLE, "--no-video", "--results", "a.jsonl", "--plan", "--json", "--track", "fast", "--device", "cpu")
    assert list(json.loads(shown.stdout)) == ["decode", "preprocess", "infer", "track", "jobs", "processes"]


def accounted(report: Report) -> bool:
    return report.received == report.frames + sum(report.dropped.values())


def test_live_sources_write_results_and_masks(camera: RtspServer, segmenter: Segmenter, tmp_path: Path) -> None:
    files = {"results": tmp_path / "{name}.jsonl", "save_masks": tmp_path / "{name}.mkv"}
    report = segmenter.run("hall=" + camera.url(), video=False, max_frames=40, max_delay=10.0, **files)
    lines = [json.loads(line) for line in (tmp_path / "hall.jsonl").read_text().splitlines()]
    assert report.frames == len(lines) == 40 and accounted(report) and report.output is None
    assert lines[0]["pts"] == 0 and [line["index"] for line in lines] == list(range(40))
    assert report.latency["max"] > 0 and {path.name for path in tmp_path.iterdir()} == {"hall.jsonl", "hall.mkv"}


@pytest.mark.parametrize("on_loss", ["gap", "card"])
def test_a_loss_is_as_with_a_video(on_loss: str, camera: RtspServer, segmenter: Segmenter, tmp_path: Path) -> None:
    """Frames that repeat have saved masks, but no results."""

    def watch(done: int, expected: int) -> None:
        if done == 20:
            camera.hang_up()

    results, masks = tmp_path / "a.jsonl", tmp_path / "a.mkv"
    options: dict[str, Any] = {"reconnect": "0.5..0.5", "on_loss": on_loss, "max_frames": 60, "max_delay": 10.0}
    report = segmenter.run(camera.url(), video=False, results=results, save_masks=masks, progress=watch, **options)
    assert report.reconnects == 1 and accounted(report) and (report.repeated > 0) == (on_loss == "card")
    assert len(results.read_text().splitlines()) == report.frames == 60
    assert len(times(masks)) == 60 + report.repeated


@pytest.mark.parametrize("processes", [1, 2])
def test_streams_show_no_picture_of_what_an_effect_would_hide(
    processes: int, camera: RtspServer, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"device": "cpu", "input_size": (64, 64), "processes": processes}
    with Streams(video=False, results=tmp_path / "{name}.jsonl", **options) as streams:
        url = streams.serve("127.0.0.1:0")
        streams.add("hall", camera.url(), max_delay=10.0)
        assert next(streams.events()).kind == "started"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{url}streams/hall.jpg", timeout=240)
        streams.remove("hall")
    report = streams.report["hall"]
    assert report.output is None and accounted(report) and report.frames > 0
    assert len((tmp_path / "hall.jsonl").read_text().splitlines()) == report.frames


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{}, {"track": "fast"}, {"results_format": "mot"}, {"decode": "pyav"}], ids=str)
def test_so_it_is_on_a_gpu(options: dict[str, Any], people: Path, tmp_path: Path) -> None:
    """Batches of 16 and one of 12. Networks may differ in the last bit from run to run, so areas may a little."""
    areas = {}
    for video in (True, False):
        results, masks = tmp_path / f"{video}.jsonl", tmp_path / f"{video}.mkv"
        target = tmp_path / "out.mp4" if video else None
        given: dict[str, Any] = {"video": video, "results": results, "save_masks": masks, "mode": "optimized"} | options
        report = segment(people, target, Config(**given))
        assert report.frames == 300 and ("encode" in report.plan) == video
        if options.get("results_format") is None:
            areas[video] = [json.loads(line)["area"] for line in results.read_text().splitlines()]
    if areas:
        assert len(areas[False]) == 300 and areas[False] == pytest.approx(areas[True], abs=0.005)


@pytest.mark.gpu
def test_live_sources_on_a_gpu(camera: RtspServer, tmp_path: Path) -> None:
    options: dict[str, Any] = {"mode": "optimized", "max_delay": 10.0, "video": False}
    files = {"results": tmp_path / "{name}.jsonl", "save_masks": tmp_path / "{name}.mkv"}
    with Segmenter(**options, **files) as segmenter:
        report = segmenter.run("hall=" + camera.url(), max_frames=100)
    assert report.plan["decode"] == "live-nvdec" and report.frames == 100 and accounted(report)
    assert len((tmp_path / "hall.jsonl").read_text().splitlines()) == 100
