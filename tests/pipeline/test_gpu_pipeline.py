"""The whole way on a GPU: order, count, sameness with the CPU's, faults, clean ends."""

import gc
import json
import logging
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from av import VideoFrame
from native_nvdec import nvdec
from paths import SAMPLE
from program import cli, report
from videos import Synthetic, packets, pictures, real_frames, same_packets, same_times, times

from segmentation import BackendError, Config, DeviceError, InputError, OutputError, Segmenter, segment
from segmentation.pipeline.planning.plan import make_plan

pytestmark = pytest.mark.gpu

OPTIMIZED: dict[str, Any] = {"mode": "optimized", "overwrite": True}
LOSSLESS: dict[str, Any] = {"quality": 0, "codec": "h264"}


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 frames, each different from all others, in runs of 30, with sound."""
    options = {"x264-params": "keyint=30:min-keyint=30:scenecut=0:bframes=3"}
    video = Synthetic(codec="libx264", options=options, pts=range(200), size=(320, 240), audio="aac")
    return video.write(tmp_path_factory.mktemp("clip") / "clip.mp4")


def test_the_plan_is_the_gpus() -> None:
    plan = make_plan(Config(mode="optimized"))
    assert plan.names() | {"infer": "", "encode": ""} == {
        "decode": nvdec(), "preprocess": "cuda", "infer": "", "postprocess": "cvcuda", "encode": "",
    }  # fmt: skip
    assert plan.infer.on_gpu and plan.encode.name in ("nvenc", "x264-segments")
    assert make_plan(Config()).names() == plan.names()
    assert make_plan(Config(mode="baseline")).names() == {
        "decode": "pyav", "preprocess": "opencv", "infer": "torch", "postprocess": "opencv", "encode": "x264",
    }  # fmt: skip


def test_what_is_there_can_be_printed() -> None:
    result = cli("--plan", "--optimized")
    assert result.returncode == 0
    lines = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert "NVIDIA" in lines["GPU"] and "driver" in lines["GPU"]
    assert "engines" in lines["NVDEC"] and "h264 420 8 bit" in lines["NVDEC"]
    assert lines["decode"].split()[1] == nvdec()


def test_a_codec_that_nvdec_lacks_is_decoded_on_the_cpu_and_said(corpus: Path, tmp_path: Path) -> None:
    plan = make_plan(Config(mode="optimized"))
    result = cli(corpus / "h264_10bits.mp4", "-o", tmp_path / "a.mkv", "--optimized", "--json")
    content = report(result)
    assert content["plan"]["decode"] == "pyav" and content["plan"]["preprocess"] == plan.preprocess.name
    assert "decode: pyav on the CPU" in result.stderr and "NVDEC" in result.stderr
    assert same_times(times(tmp_path / "a.mkv"), times(corpus / "h264_10bits.mp4"), Fraction(1, 1000))


def test_it_looks_as_on_the_cpu(tmp_path: Path) -> None:
    """Two thirds of a second of the sample, lossless: nearly every pixel within two levels of the CPU's."""
    for mode in ("optimized", "baseline"):
        segment(SAMPLE, tmp_path / f"{mode}.mkv", Config(mode=mode, max_frames=20, **LOSSLESS))  # type: ignore[arg-type]
    for ours, theirs in zip(pictures(tmp_path / "optimized.mkv"), pictures(tmp_path / "baseline.mkv"), strict=True):
        assert ours.time == theirs.time
        for a, b in zip(ours.planes, theirs.planes, strict=True):
            difference = np.abs(a.astype(int) - b)
            assert (difference > 2).mean() < 0.01 and difference.mean() < 0.5


def test_the_network_is_captured_while_decoders_begin(
    clip: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Decoders that are made meanwhile spoil a capture; the run is then right, but several times slower."""
    caplog.set_level(logging.INFO)
    for _ in range(10):
        segment(clip, tmp_path / "a.mp4", **OPTIMIZED)
    assert "captured" not in caplog.text


def test_sound_and_times_are_kept(clip: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.mp4"
    result = segment(clip, target, **OPTIMIZED)
    assert result.frames == 200
    assert times(target) == times(clip)
    assert same_packets(packets(target, "audio"), packets(clip, "audio"))


@pytest.mark.parametrize("interval", [3, "auto"])
def test_an_interval_gives_the_masks_of_the_cpu_whatever_runs_beside(tmp_path: Path, interval: Any) -> None:
    def run(segmenter: Segmenter, number: int) -> list[np.ndarray[Any, Any]]:
        """Returns the masks of one of several runs on the sample, which begin at different frames."""
        masks = tmp_path / f"{number}.masks.mkv"
        asked: dict[str, Any] = {"interval": interval, "max_frames": 90, "start": Fraction(number, 10)}
        report = segmenter.run(SAMPLE, tmp_path / f"{number}.mkv", save_masks=masks, overwrite=True, **asked)
        assert report.frames == 90 and report.inferred < 60
        return [picture.planes[0] for picture in pictures(masks)]

    with Segmenter(mode="optimized") as segmenter, ThreadPoolExecutor(4) as pool:
        alone = [run(segmenter, number) for number in range(4)]
        together = list(pool.map(lambda number: run(segmenter, number), range(4)))
    assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))
    with Segmenter(mode="baseline", infer="onnxruntime") as segmenter:
        expected = run(segmenter, 0)
    for ours, theirs in zip(alone[0], expected, strict=True):
        one, other = ours > 127, theirs > 127
        assert (one & other).sum() / (one | other).sum() > 0.97


@pytest.mark.parametrize("stages", [{}, {"postprocess": "opencv"}, {"infer": "onnxruntime"}], ids=str)
def test_what_is_found_is_written_and_the_output_is_right(tmp_path: Path, stages: dict[str, str]) -> None:
    """Batches of 16 and one of 4: rows of the GPU's buffers that hold no frame are not among the results."""
    areas = {}
    for mode, given in (("optimized", stages), ("baseline", {})):
        results = tmp_path / f"{mode}.jsonl"
        options: dict[str, Any] = {"mode": "auto" if given else mode, "max_frames": 20, "batch_size": 16, **given}
        run = segment(SAMPLE, tmp_path / f"{mode}.mkv", results=results, rle=True, verify=True, **options, **LOSSLESS)
        assert run.verified is not None and run.verified.frames == run.verified.compared == 20
        assert run.verified.psnr_least is None
        lines = [json.loads(line) for line in results.read_text().splitlines()]
        assert [line["index"] for line in lines] == list(range(20))
        areas[mode] = [line["area"] for line in lines]
    assert areas["optimized"] == pytest.approx(areas["baseline"], abs=0.005)


def same_pictures(one: Path, other: Path) -> bool:
    """Whether all frames and their times are the same."""
    pairs = zip(pictures(one), pictures(other), strict=True)
    return all(
        a.time == b.time and all(np.array_equal(x, y) for x, y in zip(a.planes, b.planes, strict=True))
        for a, b in pairs
    )


@pytest.mark.parametrize(
    "stages", [{}, {"postprocess": "opencv"}, {"infer": "onnxruntime"}, {"decode": "pyav"}, {"encode": "jpeg"}], ids=str
)
def test_outputs_of_one_run_are_those_of_their_own_and_saved_masks_give_them_again(
    tmp_path: Path, stages: dict[str, str]
) -> None:
    """Batches of 16 and one of 4. Networks may differ in the last bit from run to run, so masks are saved once."""
    masks, options = tmp_path / "masks.mkv", {"max_frames": 20, "batch_size": 16, "effect": "blur"}
    options |= {} if "encode" in stages else {**LOSSLESS, "verify": True}
    also = [
        ("mask", tmp_path / "mask.mkv"),
        ("blur:60", tmp_path / "soft.mkv"),
        ("color:#ff0000", tmp_path / "red.mkv"),
    ]
    first = segment(
        SAMPLE, tmp_path / "blur.mkv", save_masks=masks, also=also, results=tmp_path / "blur.jsonl", rle=True, **stages,
        **options,
    )  # fmt: skip
    assert first.frames == 20 and len(first.also) == 3 and first.plan.items() >= stages.items()
    assert times(masks) == pytest.approx(times(SAMPLE, limit=20), abs=0.0005)
    rest = {stage: name for stage, name in stages.items() if stage != "infer"}
    for effect, path in [("blur", tmp_path / "blur.mkv"), *also]:
        again, results = path.with_name(f"again.{path.name}"), tmp_path / f"{path.stem}.again.jsonl"
        report = segment(SAMPLE, again, masks=masks, results=results, rle=True, **rest, **options | {"effect": effect})
        assert report.frames == 20 and report.plan["preprocess"] == report.plan["infer"] == "masks"
        assert same_pictures(path, again)
        assert results.read_text() == (tmp_path / "blur.jsonl").read_text()


def test_saved_masks_are_those_of_the_cpu(tmp_path: Path) -> None:
    """And what one side has saved, the other renders."""
    found = {}
    for mode, other in (("optimized", "baseline"), ("baseline", "optimized")):
        masks = tmp_path / f"{mode}.mkv"
        segment(SAMPLE, tmp_path / f"{mode}.mp4", save_masks=masks, mode=mode, max_frames=20)  # type: ignore[arg-type]
        found[mode] = np.stack([picture.planes[0] for picture in pictures(masks)]).astype(int)
        done = segment(SAMPLE, tmp_path / f"{mode}.{other}.mp4", masks=masks, mode=other, max_frames=20)  # type: ignore[arg-type]
        assert done.frames == 20
    ours, theirs = found["optimized"], found["baseline"]
    assert ours.shape == theirs.shape and np.abs(ours - theirs).mean() < 2
    assert ((ours > 127) != (theirs > 127)).mean() < 0.01


def test_a_lost_device_leaves_all_outputs_and_masks(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = RuntimeError("CUDA error: an illegal memory access was encountered")
    # Of the sixth batch the first output's pictures are made, the second's not.
    monkeypatch.setattr("segmentation.stages.postprocess.cvcuda.CvCudaPostprocessor.__call__", failing(11, error))
    targets = [tmp_path / name for name in ("a.mp4", "b.mkv", "masks.mkv")]
    options: dict[str, Any] = {"save_masks": targets[2], "also": [("mask", targets[1])], "batch_size": 16, **OPTIMIZED}
    with pytest.raises(DeviceError, match=r"frames before are in .*a\.mp4, .*b\.mkv") as caught:
        segment(clip, targets[0], **options)
    (count,) = {len(times(target)) for target in targets}
    assert count >= 48 and f"the {count} frames before" in str(caught.value)
    assert sorted(tmp_path.iterdir()) == sorted(targets)


@pytest.mark.parametrize(
    ("batch_size", "stages"),
    [(1, {}), (3, {}), (16, {}), (16, {"postprocess": "opencv"}), (16, {"infer": "onnxruntime"})],
    ids=str,
)
@pytest.mark.parametrize(("pix_fmt", "rotation"), [("yuv420p", 0), ("yuv420p", 90), ("yuv420p10le", 270)])
def test_masks_in_motion_are_the_cpus(
    tmp_path: Path, corpus: Path, pix_fmt: str, rotation: int, batch_size: int, stages: dict[str, str]
) -> None:
    """Steadied and refined, over a cut, with a short last batch, turned, in 10 bits, wherever the stages are."""
    scenes = ((SAMPLE, 11), (corpus / "selfie_segmentation_web.mp4", 9))
    rgb = [f.to_ndarray() for path, n in scenes for f in real_frames(path, n, size=(640, 360), pix_fmt="rgb24")]
    stored = [np.ascontiguousarray(np.rot90(picture, -(rotation // 90))) for picture in rgb]
    frames = [VideoFrame.from_ndarray(picture, "rgb24") for picture in stored]
    video = Synthetic(frames=frames, pts=range(20), pix_fmt=pix_fmt, rotation=rotation, color=(1, 1, 1))
    clip = video.write(tmp_path / "clip.mkv")
    found = {}
    for name, options in (
        ("ours", {"mode": "auto", "batch_size": batch_size, **stages}),
        ("theirs", {"mode": "baseline"}),
        ("plain", {"mode": "baseline", "smooth": 0.0, "refine": False}),
    ):
        run = segment(clip, tmp_path / f"{name}.mkv", effect="mask", **options, **LOSSLESS)  # type: ignore[arg-type]
        assert run.frames == 20
        found[name] = [
            p.planes[0].astype(int) >> (2 if "10" in pix_fmt else 0) for p in pictures(tmp_path / f"{name}.mkv")
        ]
    for ours, theirs in zip(found["ours"], found["theirs"], strict=True):
        a, b = ours > 128, theirs > 128
        assert 0.1 < b.mean() < 0.9 and (a & b).sum() / (a | b).sum() >= 0.985  # docs/gpu.md states it
        assert np.abs(ours - theirs).mean() < 1
    difference, effect = (np.abs(np.array(found[name]) - found["theirs"]).mean() for name in ("ours", "plain"))
    assert difference < effect


@pytest.mark.parametrize("infer", ["torch-fp16", "onnxruntime"])
@pytest.mark.parametrize("postprocess", ["cvcuda", "opencv"])
@pytest.mark.parametrize("preprocess", ["cuda", "opencv"])
@pytest.mark.parametrize("decode", ["nvdec", "pyav"])
def test_any_stage_may_be_anywhere(tmp_path: Path, decode: str, preprocess: str, infer: str, postprocess: str) -> None:
    stages = {"decode": decode, "preprocess": preprocess, "infer": infer, "postprocess": postprocess}
    mixed, plain = tmp_path / "mixed.mkv", tmp_path / "plain.mkv"
    assert (
        segment(SAMPLE, mixed, max_frames=20, **stages, **LOSSLESS).plan | stages
        == segment(SAMPLE, tmp_path / "again.mkv", max_frames=20, **stages, **LOSSLESS).plan
    )
    segment(SAMPLE, plain, mode="baseline", max_frames=20, **LOSSLESS)
    for a, b in zip(pictures(mixed), pictures(plain), strict=True):
        assert np.abs(a.planes[0].astype(int) - b.planes[0]).mean() < 0.5


class Spy:
    """Keeps what the decoder hands out, as copies, to compare with what comes out in the end; dawdles at random."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
        from segmentation.stages.decode.surface_unpacker import SurfaceUnpacker
        from segmentation.stages.postprocess.cvcuda import CvCudaPostprocessor

        self.random = random.Random(seed)
        self._slow(monkeypatch, SurfaceUnpacker, "__call__", 0.002)
        self._slow(monkeypatch, CvCudaPostprocessor, "__call__", 0.02)

    def _slow(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, seconds: float) -> None:
        function = getattr(owner, name)

        def slowed(*arguments: Any) -> Any:
            time.sleep(self.random.random() * seconds)
            return function(*arguments)

        monkeypatch.setattr(owner, name, slowed)


@pytest.mark.parametrize("seed", range(4))
def test_order_and_count_whatever_the_threads_do(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """With random delays, batch sizes and room, every frame comes out once, in order and, all being kept, unchanged."""
    from segmentation.stages.decode import chunk_decoder

    spy = Spy(monkeypatch, seed)
    monkeypatch.setattr(chunk_decoder, "AHEAD", spy.random.choice([1, 1_000_000, 100_000_000]))
    monkeypatch.setattr(chunk_decoder, "LEAST_CHUNK", spy.random.choice([1, 24, 90]))
    target = tmp_path / "a.mkv"
    monkeypatch.setattr("segmentation.stages.inference.torch_fp16.probabilities", ones)
    segment(clip, target, batch_size=spy.random.choice([1, 3, 16]), encode="x264-segments", **OPTIMIZED, **LOSSLESS)
    for ours, source in zip(pictures(target), pictures(clip), strict=True):
        assert abs(ours.time - source.time) < 0.001
        assert all(np.array_equal(a, b) for a, b in zip(ours.planes, source.planes, strict=True))


@pytest.mark.parametrize("stages", [{}, {"postprocess": "opencv"}], ids=str)
def test_frames_for_x264_lie_in_page_locked_blocks(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stages: dict[str, str]
) -> None:
    """The GPU copies them to where the encoders' process reads them; frames from the host are copied there. What is
    kept comes out as it went in; memory is locked once, and in the end no longer."""
    import torch

    from segmentation.gpu.transfer import GpuTransfer
    from segmentation.stages.encode.segments import SegmentEncoder

    encode, lock = SegmentEncoder.encode, GpuTransfer._lock_pages
    batches: list[bool] = []  # whether they came in blocks
    locked: list[int] = []
    ever: list[int] = []

    def looked_at(self: SegmentEncoder, batch: Any) -> Any:
        shared = batch.shared
        batches.append(shared is not None)
        if shared is not None:
            assert shared.block.pool is self.blocks and batch.ready.query()
            assert all(torch.from_numpy(array).is_pinned() for array in shared.arrays)
            for n, frame in enumerate(batch.frames):
                for plane, rows in zip(frame.planes, shared.arrays, strict=True):
                    assert plane.ctypes.data == rows[n].ctypes.data and plane.shape == rows[n].shape
        return encode(self, batch)

    def counted(self: GpuTransfer, address: int, size: int) -> Callable[[], None]:
        unlock = lock(self, address, size)
        locked.append(address)
        ever.append(address)

        def unlocked() -> None:
            locked.remove(address)
            unlock()

        return unlocked

    monkeypatch.setattr(SegmentEncoder, "encode", looked_at)
    monkeypatch.setattr(GpuTransfer, "_lock_pages", counted)
    monkeypatch.setattr("segmentation.stages.inference.torch_fp16.probabilities", ones)
    target = tmp_path / "a.mkv"
    options: dict[str, Any] = {"batch_size": 16, "encode": "x264-segments", "overwrite": True, **stages, **LOSSLESS}
    assert segment(clip, target, **options).frames == 200
    assert len(batches) >= 13 and set(batches) == {not stages}
    assert not locked and len(set(ever)) == len(ever) <= len(batches) and bool(ever) == (not stages)
    for ours, source in zip(pictures(target), pictures(clip), strict=True):
        assert stages or all(np.array_equal(a, b) for a, b in zip(ours.planes, source.planes, strict=True))


def test_a_killed_encoders_process_is_one_line(clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from segmentation.stages.encode.segments import SegmentEncoder

    encode = SegmentEncoder.encode

    def killing(self: SegmentEncoder, batch: Any) -> Any:
        if batch.index >= 48:
            assert self._lease is not None
            os.kill(self._lease.pid, signal.SIGKILL)
        return encode(self, batch)

    monkeypatch.setattr(SegmentEncoder, "encode", killing)
    with pytest.raises(OutputError, match="signal 9"):
        segment(clip, tmp_path / "a.mp4", encode="x264-segments", **OPTIMIZED)
    assert not list(tmp_path.iterdir())


def ones(scores: Any, model: Any) -> Any:
    scores = scores[0] if isinstance(scores, (tuple, list)) else scores
    return scores[:, 0].float() * 0 + 1


def test_a_network_that_pytorch_cannot_run_falls_back_and_says_so(tmp_path: Path, corpus: Path) -> None:
    portrait = corpus.parent / "models" / "prisma-portrait.onnx"
    if not portrait.is_file():
        pytest.skip("the portrait model is not here")
    result = cli(SAMPLE, "-o", tmp_path / "a.mp4", "--model", portrait, "--max-frames", 5, "--json")
    assert report(result)["plan"]["infer"] == "onnxruntime"
    assert "infer: onnxruntime on the CPU" in result.stderr
    assert cli(SAMPLE, "-o", tmp_path / "b.mp4", "--model", portrait, "--optimized").returncode == 1


def failing(after: int, error: Exception) -> Callable[..., Any]:
    """A stage's call that fails the `after`-th time."""
    from segmentation.stages.postprocess.cvcuda import CvCudaPostprocessor

    original, calls = CvCudaPostprocessor.__call__, iter(range(10**6))

    def call(self: Any, *arguments: Any) -> Any:
        if next(calls) == after:
            raise error
        return original(self, *arguments)

    return call


def test_a_lost_device_leaves_a_playable_file_and_one_line(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = RuntimeError("CUDA error: an illegal memory access was encountered")
    monkeypatch.setattr("segmentation.stages.postprocess.cvcuda.CvCudaPostprocessor.__call__", failing(5, error))
    target = tmp_path / "a.mp4"
    with pytest.raises(DeviceError, match="frames before are in") as caught:
        segment(clip, target, batch_size=16, **OPTIMIZED)
    assert "\n" not in str(caught.value)
    assert f"the {len(times(target))} frames before" in str(caught.value) and len(times(target)) >= 48
    assert [p.name for p in tmp_path.iterdir()] == ["a.mp4"]


def test_full_memory_halves_the_batch(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With PyTorch's own error, for more memory than any GPU has, as long as batches are large."""
    import torch

    from segmentation.stages.postprocess.cvcuda import CvCudaPostprocessor

    original = CvCudaPostprocessor.__call__

    def greedy(self: Any, masked: Any) -> Any:
        if len(masked) > 16:
            torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
        return original(self, masked)

    monkeypatch.setattr(CvCudaPostprocessor, "__call__", greedy)
    result = segment(clip, tmp_path / "a.mp4", batch_size=64, **OPTIMIZED)
    assert result.frames == 200 and len(times(tmp_path / "a.mp4")) == 200
    said = [f"starting again with --batch-size {size}" in caplog.text for size in (32, 16, 8)]
    assert said == [True, True, False]


def test_an_error_ends_all_threads(clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    monkeypatch.setattr(
        "segmentation.stages.postprocess.cvcuda.CvCudaPostprocessor.__call__", failing(3, ZeroDivisionError())
    )
    with pytest.raises(ZeroDivisionError):
        segment(clip, tmp_path / "a.mp4", **OPTIMIZED)
    deadline = time.monotonic() + 240  # a thread that waits for another one would wait for ever
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= before
    assert list(tmp_path.iterdir()) == []


def test_stopping_finishes_the_file(clip: Path, tmp_path: Path) -> None:
    stop = threading.Event()
    target = tmp_path / "a.mp4"
    result = segment(clip, target, stop=stop, progress=lambda done, expected: stop.set(), batch_size=8, **OPTIMIZED)
    assert 0 < result.frames < 200
    assert len(times(target)) == result.frames


def test_damage_is_counted_or_said(corpus: Path, tmp_path: Path) -> None:
    """NVDEC conceals what it can; what it loses is counted, and nothing ends in a traceback."""
    result = cli(corpus / "corrupted.mp4", "-o", tmp_path / "a.mp4", "--optimized", "--json")
    if result.returncode in (0, 4):  # 4: more than 1 % is lost
        content = json.loads(result.stdout)
        assert content["damaged"] > 0 and content["frames"] == len(times(tmp_path / "a.mp4"))
        assert content["complete"] is (result.returncode == 0)
    else:
        assert "NVDEC" in result.stderr


@pytest.mark.whole_card
def test_memory_is_flat_over_20000_frames(tmp_path: Path) -> None:
    """Graphics memory, CV-CUDA's cache, host memory, file descriptors."""
    import cvcuda
    import torch

    options = {"preset": "ultrafast", "x264-params": "keyint=60:min-keyint=60:scenecut=0"}
    clip = Synthetic(codec="libx264", options=options, pts=range(20_000), size=(192, 128)).write(tmp_path / "long.mp4")
    seen: list[tuple[int, ...]] = []

    def look(done: int, expected: int) -> None:
        if done % 1600 == 0:
            free, total = torch.cuda.mem_get_info()
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            descriptors = len(os.listdir("/proc/self/fd"))
            seen.append((total - free, cvcuda.current_cache_size_inbytes(), resident, descriptors))

    fast: dict[str, Any] = {"batch_size": 16, "preset": "ultrafast", **OPTIMIZED}
    assert segment(clip, tmp_path / "a.mp4", progress=look, **fast).frames == 20_000
    early, late = (np.array(part).max(axis=0) for part in (seen[1:4], seen[-3:]))
    assert late[0] - early[0] <= 64 << 20
    assert late[1] <= early[1]
    assert late[2] - early[2] <= 200 << 20
    assert late[3] <= early[3]


@pytest.mark.parametrize("effect", ["blur", "pixelate", "color:#ffffff"])
def test_a_run_gives_its_memory_back(tmp_path: Path, effect: str) -> None:
    """At once, not when Python looks for garbage: frames, of which a batch takes 24 MiB, the network's 4 MiB of
    weights, and the 33 MiB in which cuBLAS works."""
    import torch

    path = Synthetic(codec="libx264", pts=range(40), size=(1280, 720)).write(tmp_path / "a.mp4")
    held = []
    gc.disable()
    try:
        for _ in range(3):
            segment(path, tmp_path / "b.mp4", effect=effect, batch_size=16, **OPTIMIZED)
            held.append(torch.cuda.memory_allocated() / 2**20)
    finally:
        gc.enable()
    assert held[2] - held[1] < 1, held


def test_strange_requests_are_refused_in_one_line(corpus: Path) -> None:
    with pytest.raises(BackendError, match="no such GPU"):
        make_plan(Config(mode="optimized", device="cuda:7"))
    with pytest.raises(BackendError, match="device cpu"):
        make_plan(Config(mode="optimized", device="cpu"))
    with pytest.raises(InputError):
        segment(corpus / "sample_audio_only.mp4", "x.mp4", mode="optimized")


def test_replacing_one_stage_keeps_the_rest() -> None:
    plan = make_plan(replace(Config(mode="optimized"), encode="x264"))
    assert plan.encode.name == "x264" and plan.decode.name == nvdec()
