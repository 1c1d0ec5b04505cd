"""The ladder: what it measures on which machine, and that it measures here."""

import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import av
import pytest
from paths import ROOT, SAMPLE
from program import run_tool

from segmentation import Config
from segmentation.options.config import STAGES
from segmentation.pipeline.planning.implementations import candidates

sys.path[:0] = [str(ROOT / "tools" / folder) for folder in ("benchmarks", "support")]  # programs, not a package

BASELINE = {stage: candidates(stage, "baseline") for stage in STAGES}
OPTIMIZED = {stage: candidates(stage, "optimized") for stage in STAGES}
ON_CPU = {stage: names[-1] for stage, names in BASELINE.items()}
PLANS = {  # what `ladder_runs.plans` says on an H200, and on a machine without a GPU
    True: {
        "gpu": True,
        "baseline": {stage: names[0] for stage, names in BASELINE.items()},
        "best": {stage: names[-1] for stage, names in OPTIMIZED.items()} | {"encode": "x264-segments"},
    },
    False: {"gpu": False, "baseline": ON_CPU, "best": ON_CPU},
}  # fmt: skip


def cases(gpu: bool) -> dict[str, list[Any]]:
    """All cases of a machine, by part."""
    import ladder

    machine = ladder.Machine(PLANS[gpu], "ultrafast")
    options = ladder.parser().parse_args(["a.mp4", "--rung", "decode=pyav,preset=medium"])
    found: dict[str, list[Any]] = {}
    for case in ladder.chosen(machine, options):
        found.setdefault(case.part, []).append(case)
    return found


@pytest.mark.parametrize("gpu", [True, False])
def test_cases_have_names_of_their_own_and_options_that_exist(gpu: bool) -> None:
    from ladder_cases import PARTS

    by_part = cases(gpu)
    assert tuple(by_part) == PARTS
    every = [case for part in by_part.values() for case in part]
    assert len({str(case) for case in every}) == len(every)
    known = {field.name for field in fields(Config)}
    options = [argument for case in every for argument in case.arguments if isinstance(argument, dict)]
    assert len(options) > 12 and all(given.keys() <= known for given in options)
    assert all(Config(**given) for given in options)


def test_each_rung_on_a_gpu_moves_one_stage_more() -> None:
    plans = [
        {stage: case.arguments[1].get(stage) for stage in STAGES}
        for case in cases(True)["ladder"]
        if case.work == "pipeline"
    ]
    _, baseline, batched, *rungs, jpeg, null, asked = plans
    assert baseline == batched == PLANS[True]["baseline"]
    moved = []
    for before, after in zip([batched, *rungs], rungs, strict=False):
        ((stage, name),) = after.items() - before.items()
        assert name == PLANS[True]["best"][stage]
        moved.append(stage)
    assert moved == ["infer", "preprocess", "postprocess", "decode", "encode"]
    assert (jpeg["encode"], null["encode"], asked["decode"]) == ("jpeg", "null", "pyav")


def test_lengths_codecs_sizes_and_batches() -> None:
    by_part = cases(True)
    frames = {
        name: [case.clip.frames for case in by_part["lengths"] if case.name == name]
        for name in ("baseline", "optimized")
    }
    assert frames == {"baseline": [960, 9300], "optimized": [960, 5520, 9300]}
    assert {case.clip.codec for case in by_part["codecs"]} == {"h264", "hevc", "vp9"}
    assert {case.clip.size for case in by_part["sizes"]} == {"540p", "720p", "1080p", "4K"}
    assert [case.arguments[1]["batch_size"] for case in by_part["batches"]] == [1, 2, 4, 8, 16, 32]
    assert all(case.arguments[1]["encode"] == "null" for case in by_part["batches"])
    assert {case.name for case in cases(False)["lengths"]} == {"baseline"}


@pytest.mark.parametrize(
    ("option", "message"), [("--only=laddr", "laddr: choose from ladder"), ("--rung=decode", "write OPTION=VALUE")]
)
def test_what_cannot_be_measured_is_refused(option: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    import ladder

    with pytest.raises(SystemExit):
        ladder.parser().parse_args(["a.mp4", option])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("codec", "name", "container"), [("hevc", "hevc", "mov,mp4"), ("vp9", "vp9", "matroska,webm")])
def test_clips_in_other_codecs_have_every_frame(tmp_path: Path, codec: str, name: str, container: str) -> None:
    from clips import make_clip

    clip = make_clip(str(SAMPLE), 80, (320, 180), tmp_path, codec=codec, rate=30, gop=20, encode=40)
    with av.open(str(clip)) as opened:
        stream = opened.streams.video[0]
        assert opened.format.name.startswith(container) and stream.codec_context.name == name
        packets = [packet for packet in opened.demux(stream) if packet.size]
        assert [i for i, packet in enumerate(packets) if packet.is_keyframe] == [0, 20, 40, 60]
    with av.open(str(clip)) as opened:
        times = [float(frame.pts * frame.time_base) for frame in opened.decode(video=0)]
    assert times == pytest.approx([i / 30 for i in range(80)], abs=0.0011)  # WebM counts milliseconds


@pytest.mark.slow
def test_ladder_measures_and_goes_on(tmp_path: Path) -> None:
    output = tmp_path / "ladder.json"
    command = [SAMPLE, "--frames", "24", "--lengths", "24", "--work", tmp_path / "work", "-o", output]
    rung = ["--rung", "encode=x264,preset=superfast"]
    run_tool("tools/benchmarks/ladder.py", *command, "--only", "ladder", "--repeats", "1", *rung)
    first = json.loads(output.read_text())
    run_tool("tools/benchmarks/ladder.py", *command, "--only", "ladder,trace", "--repeats", "1", "--resume")
    results = json.loads(output.read_text())

    assert results["rows"][: len(first["rows"])] == first["rows"] and not results["errors"]
    assert str(tmp_path) not in output.read_text()
    names = [row["name"] for row in results["rows"] if row["part"] == "ladder"]
    assert names == ["typical workflow", "baseline, in turn", "baseline", "encode x264-segments", "x264 superfast"]
    for row in results["rows"]:
        (figures,) = row["runs"]
        assert figures["frames"] == row["frames"] == (48 if row["part"] == "trace" else 24)
        assert figures["seconds"] > 0 and figures["cpu_seconds_per_1000_frames"] > 0
        if row["name"].startswith("baseline") and row["part"] == "ladder":
            assert figures["stages"].keys() == set(STAGES) and row["plan"]["encode"] == "x264"
            assert sum(figures["stages"].values()) > 0
    timeline = next(row["timeline"] for row in results["rows"] if row["part"] == "trace")
    assert {name for track in timeline for name, *_ in track["slices"]} <= {*STAGES, "mux"}
    assert all(0 <= begin <= end for track in timeline for *_, begin, end in track["slices"])
    batches = {batch for track in timeline for _, batch, *_ in track["slices"]}
    assert 0 < len(batches) < 48  # some of them: how many, depends on what else the cores do


def test_commands_are_kept_without_folders_of_one_machine() -> None:
    from circumstances import circumstances

    arguments = ["../shared/a.mp4", "/tmp/b.mp4", ".hidden/clips/c.mp4", "--output=/tmp/x/d.json"]
    command = circumstances("tool.py", arguments)["command"]
    assert command == "python tools/tool.py ../shared/a.mp4 b.mp4 c.mp4 --output=d.json"


def test_resuming_with_another_revision_is_refused(tmp_path: Path) -> None:
    from ladder import Sheet

    output = tmp_path / "ladder.json"
    output.write_text(json.dumps({"versions": {"git": "abc"}, "rows": [], "errors": []}))
    Sheet(output, {"versions": {"git": "abc"}}, resume=True)
    with pytest.raises(SystemExit, match="other versions"):
        Sheet(output, {"versions": {"git": "def"}}, resume=True)


@pytest.mark.gpu
def test_ladder_measures_on_the_gpu(tmp_path: Path) -> None:
    output = tmp_path / "ladder.json"
    parts = ["--only", "alone,trace,batches", "--batches", "16", "--repeats", "1"]
    clip = [SAMPLE, "--frames", "64", "--lengths", "256"]
    run_tool("tools/benchmarks/ladder.py", *clip, *parts, "--work", tmp_path, "-o", output)
    results = json.loads(output.read_text())
    assert not results["errors"]
    names = {row["name"] for row in results["rows"]}
    assert {"ordered decoder", "preprocess alone", "infer alone", "postprocess alone", "copy alone"} < names
    assert {"x264 ultrafast alone", "optimized", "nothing encoded", "nothing encoded, 16"} < names
    assert all(row["runs"][0]["gpu_memory_mib"] > 0 for row in results["rows"])
    assert any(track["track"].startswith("GPU") for row in results["rows"] for track in row.get("timeline", []))
