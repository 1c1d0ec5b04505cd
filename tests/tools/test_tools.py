"""The programs in tools/ and samples/: they run, and what they make is what they promise."""

import json
import sys
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
from paths import ROOT, SAMPLE
from program import run_tool
from videos import Synthetic, packets, real_frames

from segmentation import segment

# The tools are programs, not a package.
sys.path[:0] = [str(ROOT / "tools" / folder) for folder in ("benchmarks", "quality", "samples")]


def decoded(path: Path) -> list[np.ndarray]:
    """All frames of a video, (H, W, 3) uint8 RGB."""
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def test_sample_is_small_tagged_and_has_sound() -> None:
    assert SAMPLE.stat().st_size < 500_000
    with av.open(str(SAMPLE)) as container:
        video, audio = container.streams.video[0], container.streams.audio[0]
        context = video.codec_context
        assert (context.name, context.pix_fmt, audio.codec_context.name) == ("h264", "yuv420p", "aac")
        assert (video.width, video.height, video.frames, video.average_rate) == (640, 360, 150, 30)
        # BT.709 and limited range, by their code points.
        tags = (context.colorspace, context.color_primaries, context.color_trc, context.color_range)
        assert tuple(map(int, tags)) == (1, 1, 1, 1)
        for stream in (video, audio):
            assert stream.start_time == 0
            assert float(stream.duration * stream.time_base) == pytest.approx(5, abs=0.03)  # one AAC frame: 21 ms


def test_sound_of_the_sample_has_a_note_at_each_second() -> None:
    with av.open(str(SAMPLE)) as container:
        sound = np.concatenate([frame.to_ndarray()[0] for frame in container.decode(audio=0)])
    loudness = np.square(sound[: 5 * 48_000]).reshape(-1, 4_800).mean(axis=1)  # of each tenth of a second
    rises = np.flatnonzero(loudness[1:] > 1.5 * loudness[:-1]) + 1
    assert {10, 20, 30, 40} <= set(rises)
    assert np.abs(sound).max() < 1


def test_make_sample_makes_the_committed_pictures() -> None:
    pytest.importorskip("skimage", reason="scikit-image, which has the photograph, is not installed")
    import make_sample

    photo = make_sample.photograph()
    made = list(make_sample.frames(photo))
    assert all(np.array_equal(a, b) for a, b in zip(made, make_sample.frames(photo), strict=True))
    committed = decoded(SAMPLE)
    assert len(made) == len(committed)
    for a, b in zip(made[::30], committed[::30], strict=True):
        assert cv2.PSNR(a, b) > 35  # dB; what x264 at crf 20 and 4:2:0 leave


@pytest.mark.slow
def test_sample_program_runs(tmp_path: Path) -> None:
    target = tmp_path / "out.mp4"
    assert "150 frames" in run_tool("samples/segment.py", SAMPLE, target)
    assert len(decoded(target)) == 150


def test_the_minimal_pipeline_makes_the_packets_of_a_run_without_smoothing(tmp_path: Path) -> None:
    frames = real_frames(SAMPLE, 22, size=(640, 360), pix_fmt="yuv420p")  # batches of 4, and a last one of 2
    source = Synthetic(frames=frames, pts=range(22), audio="aac", codec="libx264").write(tmp_path / "in.mp4")
    ours, theirs = tmp_path / "ours.mp4", tmp_path / "theirs.mp4"
    assert run_tool("samples/minimal.py", source, ours).endswith("22 frames\n")
    segment(source, theirs, smooth=0, encode="x264", device="cpu")
    for kind in ("video", "audio"):
        assert packets(ours, kind) == packets(theirs, kind)


@pytest.mark.slow
def test_pictures_are_measured_against_the_network(tmp_path: Path) -> None:
    run_tool("tools/benchmarks/pictures.py", "--repeats", "2", "-o", tmp_path / "out.json")
    results = json.loads((tmp_path / "out.json").read_text())
    assert {"date", "command", "hardware", "versions", "warm_up"} < results.keys()
    for row in results["sizes"].values():
        assert row["masks"]["of_network"]["cpu_median_ms"] > 1


@pytest.mark.parametrize("extra", [[], ["--successive", "--start", "1"]], ids=["spread", "successive"])
def test_contact_sheet_has_a_row_for_each_frame(tmp_path: Path, extra: list[str]) -> None:
    sheet = tmp_path / "sheet.png"
    part = ["--frames", "2", "--crop", "10,20,100,60", "--zoom", "2"]
    run_tool("tools/quality/contact_sheet.py", SAMPLE, "-o", sheet, *part, *extra)
    import contact_sheet

    picture = cv2.imread(str(sheet))
    height, width = 2 * 60 + contact_sheet.LABEL_HEIGHT + contact_sheet.GAP, 2 * 100 + contact_sheet.GAP
    assert picture.shape == (2 * height, 3 * width, 3)


@pytest.mark.slow
def test_contact_sheet_takes_raw_h264_whose_size_changes(corpus: Path, tmp_path: Path) -> None:
    """Without timestamps or a length: the frames are still spread, each shown at the size of the first (848x464)."""
    import contact_sheet

    from segmentation.media.opening.probe import probe

    clip, sheet = corpus / "test_res_change.h264", tmp_path / "sheet.png"
    assert contact_sheet.extent(str(clip), probe(str(clip))) == (96, pytest.approx(95 / 30))
    run_tool("tools/quality/contact_sheet.py", clip, "-o", sheet, "--frames", "2", "--zoom", "0.25")
    cell = (116 + contact_sheet.LABEL_HEIGHT + contact_sheet.GAP, 212 + contact_sheet.GAP)
    picture = cv2.imread(str(sheet))
    assert picture.shape == (2 * cell[0], 3 * cell[1], 3)
    large, small = (picture[row * cell[0] + contact_sheet.LABEL_HEIGHT :][:116, :212] for row in (0, 1))
    assert 10 < cv2.PSNR(large, small) < 30  # dB: the same scene later, filling the same cell


@pytest.mark.parametrize("name", ["one.ts", "one.h264"])
def test_contact_sheet_shows_a_single_frame_once(tmp_path: Path, name: str) -> None:
    import contact_sheet

    clip, sheet = tmp_path / name, tmp_path / "sheet.png"
    with av.open(str(clip), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        grey = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 128, np.uint8), format="rgb24")
        container.mux([*stream.encode(grey), *stream.encode()])
    run_tool("tools/quality/contact_sheet.py", clip, "-o", sheet, "--zoom", "1")
    row = (48 + contact_sheet.LABEL_HEIGHT + contact_sheet.GAP, 3 * (64 + contact_sheet.GAP), 3)
    assert cv2.imread(str(sheet)).shape == row


def test_typical_workflow_keeps_every_frame(tmp_path: Path) -> None:
    from typical_workflow import blur_background, on_cpu

    from segmentation import Config
    from segmentation.models.model import load_model

    target = tmp_path / "typical.mp4"
    assert blur_background(str(SAMPLE), str(target), on_cpu(load_model(Config())), max_frames=12) == 12
    frames = decoded(target)
    assert len(frames) == 12 and frames[0].shape == (360, 640, 3)


def test_clips_of_the_benchmark_repeat_their_source(tmp_path: Path) -> None:
    from clips import make_clip

    clip = make_clip(str(SAMPLE), 160, (320, 180), tmp_path)  # the source has 150
    with av.open(str(clip)) as container:
        times = [frame.pts * frame.time_base * 30 for frame in container.decode(video=0)]
        context = container.streams.video[0].codec_context
        assert (int(context.colorspace), int(context.color_range)) == (1, 1)
    assert times[:150] == list(range(150)) and len(times) == 160
    assert times == sorted(set(times))


@pytest.mark.slow
def test_benchmark_writes_what_it_promises(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    small = ["--size", "320x180", "--frames", "12", "--lengths", "12,24", "--repeats", "1"]
    printed = run_tool("tools/benchmarks/benchmark.py", SAMPLE, *small, "--work", tmp_path / "work", "-o", output)
    results = json.loads(output.read_text())

    assert results["hardware"].keys() == {"cpu", "cores", "memory_gib"}
    packages = {"segmentation", "git", "python", "av", "ffmpeg", "onnxruntime", "opencv", "numpy"}
    assert results["versions"].keys() == packages
    assert str(tmp_path) not in output.read_text() and "tools/benchmarks/benchmark.py" in results["command"]

    (throughput,), (stages,) = results["throughput"], results["stages"]
    for side in ("pipeline", "typical"):
        assert throughput[side]["frames"] == 12
        assert throughput[side]["fps"].keys() == {"median", "min", "max"}
        assert throughput[side]["cpu_seconds_per_1000_frames"] > 0
        assert throughput[side]["peak_memory_mib"] > 20
    names = {"decode", "preprocess", "infer", "postprocess", "encode"}
    assert throughput["pipeline"]["stage_busy_seconds"].keys() == stages["alone"].keys() == names
    assert stages["limit_fps"] > 0 and throughput["speed_ratio"] > 0
    assert [row["frames"] for row in results["memory"]] == [12, 24]
    assert "pipeline" in printed and "peak memory" in printed


@pytest.mark.slow
def test_benchmark_of_outputs_measures_every_kind_of_run(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    small = ["--frames", "10", "--repeats", "1"]
    printed = run_tool("tools/benchmarks/benchmark_outputs.py", SAMPLE, *small, "-o", output)
    runs = json.loads(output.read_text())["runs"]
    names = ["1 in one run", "2 in one run", "3 in one run", "mask alone", "blur:60 alone"]
    assert list(runs) == [*names, "masks saved too", "from saved masks"]
    assert all(row["frames"] == 10 and row["cpu_seconds_per_1000_frames"] > 0 for row in runs.values())
    assert printed.splitlines()[0].startswith("1 in one run: ")


def test_clips_of_the_gpu_benchmark_are_repeated_without_a_seam(tmp_path: Path) -> None:
    from clips import make_clip

    clip = make_clip(str(SAMPLE), 160, (320, 180), tmp_path, rate=25, gop=20, encode=60)  # 60 + 60 + 40
    with av.open(str(clip)) as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
        assert (stream.frames, stream.average_rate) == (160, 25)
        shown = sorted(packet.pts * stream.time_base * 25 for packet in packets)
        assert [packet.dts for packet in packets] == sorted({packet.dts for packet in packets})
        assert shown == list(range(160)) != [packet.pts * stream.time_base * 25 for packet in packets]  # B-frames
        keys = [packet.pts * stream.time_base * 25 for packet in packets if packet.is_keyframe]
    assert keys == list(range(0, 160, 20))
    pictures = decoded(clip)
    assert len(pictures) == 160 and np.array_equal(pictures[7], pictures[67])


ROWS: list[dict[str, Any]] = [
    {"name": name, "clip": "gop30", "model": model, "gpu_memory_mib": 3000.0, "peak_memory_mib": 1.0,
     "cpu_seconds_per_1000_frames": 1.0, "fps": {"median": fps, "min": fps, "max": fps}}
    | ({"steady_fps": {"median": steady}} if steady else {})
    for name, model, fps, steady in (
        ("6 independent decoders", "", 2000.0, 2000.0),
        ("7 independent decoders", "", 1900.0, 1900.0),
        ("x264 ultrafast alone", "person", 900.0, 1000.0),
        ("null", "person", 1600.0, 1900.0),
        ("jpeg", "person", 1500.0, 1700.0),
        ("x264 ultrafast", "person", 750.0, 800.0),
        ("x264 default", "person", 400.0, 500.0),
        ("typical workflow", "person", 15.0, None),
        ("sample, x264 ultrafast", "person", 50.0, None),
        ("sample, null", "person", 200.0, None),
    )
]  # fmt: skip


def test_the_steady_rate_leaves_out_how_a_run_begins_and_ends() -> None:
    from benchmark import steady_rate

    slow_start = [(16 * n, 2 + n / 10) for n in range(1, 31)]
    assert steady_rate(slow_start) == pytest.approx(160)
    assert steady_rate([*slow_start, (496, 99.0)]) == pytest.approx(160)
    assert steady_rate([(n, 3 * n / 40) for n in range(1, 11)] + [(n, n - 9.25) for n in range(11, 41)]) == 1


def test_figures_of_the_gpu_benchmark_are_put_against_their_limits() -> None:
    from gpu_targets import derive

    null, jpeg, ultrafast, default = derive(ROWS)
    assert (null["of_limit"], null["of_limit_whole"], null["times_sample"]) == (0.95, 0.8, 8.0)
    assert jpeg["of_limit"] == 0.85 and "times_sample" not in jpeg
    assert (ultrafast["of_limit"], ultrafast["of_limit_whole"]) == (0.8, 0.833)
    assert (ultrafast["times_typical"], ultrafast["times_sample"]) == (50.0, 15.0)
    assert "of_limit" not in default  # its encoders alone were not measured
    assert null["gpu_gb"] == 3.15


def test_targets_are_judged_by_the_worst_figure() -> None:
    from gpu_targets import TARGETS, derive, judge, table

    cold = {"seconds": {"median": 2.5}}
    judged = judge(derive(ROWS), cold)
    assert [row["met"] for row in judged] == [False, False, True, True, True, True]
    assert (judged[0]["figure"], judged[0]["of"]) == (0.85, "jpeg gop30 person")
    assert [row["met"] for row in judge([], None)] == [None] * len(TARGETS)
    lines = list(table({"runs": ROWS, "derived": derive(ROWS), "targets": judged, "errors": ["flat: no"]}))
    assert any("0.85 (jpeg gop30 person): MISSED" in line for line in lines) and lines[-1] == "failed: flat: no"


def test_cases_of_the_gpu_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmark_gpu import parser
    from gpu_cases import PARTS, cases

    options = parser().parse_args(["a.mp4"])
    assert (options.frames, options.gops, options.only) == (4800, [30, 250], PARTS)
    options = parser().parse_args(["a.mp4", "--gops", "60", "--only", "decode,null"])
    assert (options.gops, options.only) == ([60], ("decode", "null"))
    with pytest.raises(SystemExit):
        parser().parse_args(["a.mp4", "--only", "decode,nul"])
    assert "nul: choose from cold, decode" in capsys.readouterr().err

    clips = {"gop30": Path("a.mp4"), "gop250": Path("b.mp4")}
    models = {"person": "person", "fcn_resnet50": "fcn_resnet50-224x224-random.onnx"}
    some, all_ = (cases(clips, models, 4800, full=full, long=Path("c.mp4")) for full in (False, True))
    assert {case.part for case in some} == {case.part for case in all_} == set(PARTS) - {"cold"}
    assert len(set(all_)) == len(all_) and set(some) < set(all_)
    assert [(case.clip, case.model) for case in some if case.part == "null"] == [
        ("gop30", "person"), ("gop30", "fcn_resnet50"), ("gop250", "person"),
    ]  # fmt: skip
    assert {case.arguments[1] for case in some if case.part == "typical"} == {"person", "fcn_resnet50"}


@pytest.mark.slow
def test_gpu_benchmark_writes_what_could_be_measured(tmp_path: Path) -> None:
    """Where there is no GPU: a cold start on the CPU, and why the others failed."""
    output = tmp_path / "results.json"
    small = ["--size", "320x180", "--frames", "64", "--gops", "30", "--models", "person", "--repeats", "1"]
    printed = run_tool(
        "tools/benchmarks/benchmark_gpu.py", SAMPLE, *small, "--only", "cold,null", "--revision", "abc", "-o", output
    )
    results = json.loads(output.read_text())
    cold = results["cold_start"]
    assert 0 < cold["seconds"]["median"] <= cold["seconds_to_end"]["median"]
    assert len(results["runs"]) + len(results["errors"]) == 1
    assert results["versions"]["git"] == "abc" and {"gpu", "driver", "cpu"} <= results["hardware"].keys()
    assert results["clip"]["closed_gops"] == [30] and str(tmp_path) not in output.read_text()
    assert "a cold process's first frames, finished" in printed and len(results["targets"]) == 6


@pytest.mark.gpu
@pytest.mark.parametrize("model", ["person", "fcn_resnet50"])
def test_peers_on_the_gpu_keep_every_frame(tmp_path: Path, model: str) -> None:
    import torch
    from gpu_peers import run_sample
    from torch_network import TorchNetwork
    from typical_workflow import blur_background, on_gpu

    from segmentation.media.opening.probe import probe

    network = TorchNetwork(model, probe(str(SAMPLE)), torch.device("cuda"), half=True)
    sample, typical = tmp_path / "sample.mp4", tmp_path / "typical.mp4"
    assert run_sample(str(SAMPLE), str(sample), network, max_frames=14) == 14  # three and a half batches
    assert run_sample(str(SAMPLE), None, network) == 150
    assert blur_background(str(SAMPLE), str(typical), on_gpu(model, str(SAMPLE)), max_frames=4) == 4
    source = decoded(SAMPLE)[:14]
    for original, shown in zip(source, decoded(sample), strict=True):
        assert cv2.PSNR(original, shown) > 15  # dB: the same picture, blurred
    assert len(decoded(typical)) == 4


@pytest.mark.gpu
def test_decoders_of_the_gpu_benchmark_give_every_frame(tmp_path: Path) -> None:
    from clips import make_clip
    from gpu_decoders import Independent

    from segmentation.media.opening.probe import probe

    clip = make_clip(str(SAMPLE), 300, (640, 360), tmp_path, rate=30, gop=30, encode=150)
    with Independent(probe(str(clip)), 3) as decoders:  # it compares packets and frames itself
        assert decoders.decode(1000) >= 1000


def test_the_parts_of_a_start(tmp_path: Path) -> None:
    output = tmp_path / "parts.json"
    printed = run_tool("tools/lab/experiments/start_parts.py", SAMPLE, "--repeats", "1", "-o", output)
    ((tree, runs),) = json.loads(output.read_text())["runs"].items()
    (run,) = runs
    marks = {what: (at, at + seconds) for what, _, at, seconds in run["marks"]}
    assert 0 < marks["import numpy"][1] < marks["main.main"][0] < marks["run.Run.drive"][0]
    assert marks["run.Run.drive"][1] <= marks["main.main"][1] <= run["ended"] and f"{tree}: " in printed
