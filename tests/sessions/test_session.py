"""A session serves many runs: nothing is made twice, and no run disturbs another."""

import hashlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from current_device import fake_cuda
from paths import SAMPLE
from quick import NETWORK
from videos import Synthetic

from segmentation import Config, ConfigError, InputError, Segmenter, segment
from segmentation.models import model as models
from segmentation.pipeline import resources
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference
from segmentation.system import child_process

SEGMENTS: dict[str, Any] = {"mode": "baseline", "infer": "onnxruntime", "encode": "x264-segments", "model": NETWORK}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[None]:
    """Grows by one with each call."""
    calls: list[None] = []
    original = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        calls.append(None)
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, call)
    return calls


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    """Three videos of other sizes and codecs, each of the shape of the others."""
    kinds = [((64, 48), "ffv1", "yuv420p"), ((128, 96), "mpeg4", "yuv420p"), ((96, 72), "libx264", "yuv422p")]
    return [
        Synthetic(size=size, codec=codec, pix_fmt=pix_fmt).write(tmp_path / f"{i}.mkv")
        for i, (size, codec, pix_fmt) in enumerate(kinds)
    ]


def test_nothing_is_made_twice(three: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = counted(monkeypatch, resources, "load_model")
    networks = counted(monkeypatch, OnnxRuntimeInference, "__init__")
    processes = counted(monkeypatch, child_process.subprocess, "Popen")
    with Segmenter(**SEGMENTS) as segmenter:
        reports = [
            segmenter.run(path, tmp_path / f"{path.stem}.mp4", codec=codec)
            for path, codec in zip(three, ("h264", "hevc", "h264"), strict=True)
        ]
    assert [report.frames for report in reports] == [25, 25, 25]
    assert (len(loads), len(networks), len(processes)) == (1, 1, 1)


def test_each_run_is_what_it_is_alone(three: list[Path], tmp_path: Path) -> None:
    with Segmenter(**SEGMENTS) as segmenter:
        together = [digest(Path(segmenter.run(path, tmp_path / f"a{path.stem}.mp4").output)) for path in three]
    alone = [digest(Path(segment(path, tmp_path / f"b{path.stem}.mp4", **SEGMENTS).output)) for path in three]
    assert together == alone


@pytest.mark.slow
def test_runs_may_overlap(three: list[Path], tmp_path: Path) -> None:
    begun = threading.Barrier(3, timeout=240)

    def run(segmenter: Segmenter, path: Path) -> str:
        waited: list[None] = []

        def progress(done: int, total: int) -> None:
            if not waited:  # all three are under way
                waited.append(None)
                begun.wait()

        return digest(Path(segmenter.run(path, tmp_path / f"a{path.stem}.mp4", progress=progress).output))

    with Segmenter(**SEGMENTS) as segmenter, ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda path: run(segmenter, path), three))
    alone = [digest(Path(segment(path, tmp_path / f"b{path.stem}.mp4", **SEGMENTS).output)) for path in three]
    assert together == alone


def test_the_size_that_suits_each_video(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The built-in network has several: it is loaded once for each that is needed, but read once."""
    loads = counted(monkeypatch, resources, "load_model")
    networks = counted(monkeypatch, OnnxRuntimeInference, "__init__")
    wide, tall = (
        Synthetic(size=size, pts=range(3)).write(tmp_path / f"{size[0]}.mkv") for size in ((128, 72), (72, 128))
    )
    with Segmenter(mode="baseline", infer="onnxruntime") as segmenter:
        for number, path in enumerate((wide, tall, wide)):
            segmenter.run(path, tmp_path / f"{number}.mp4")
    assert (len(loads), len(networks)) == (1, 2)
    assert len(models.load_model(Config()).sizes) > 1


def test_a_failed_run_leaves_the_next_unharmed(three: list[Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.mkv"
    broken.write_bytes(three[0].read_bytes()[:200])
    stop = threading.Event()
    with Segmenter(**SEGMENTS) as segmenter:
        with pytest.raises(InputError, match=r"broken\.mkv"):
            segmenter.run(broken, tmp_path / "a.mp4")
        stopped = segmenter.run(SAMPLE, tmp_path / "b.mp4", stop=stop, progress=lambda done, _: stop.set())
        done = segmenter.run(three[1], tmp_path / "c.mp4")
    assert 0 < stopped.frames < 150 and done.frames == 25
    segment(three[1], tmp_path / "d.mp4", **SEGMENTS)
    assert digest(tmp_path / "c.mp4") == digest(tmp_path / "d.mp4")


@pytest.mark.parametrize("begun", [False, True])
def test_a_stopped_run_of_a_pipe_says_so(begun: bool, tmp_path: Path) -> None:
    """Without a writer, and with the beginning of a video."""
    os.mkfifo(pipe := tmp_path / "in.mp4")
    held = os.open(pipe, os.O_RDWR)
    stop = threading.Event()
    stop.set()
    try:
        if begun:
            os.write(held, SAMPLE.read_bytes()[:4096])
        with Segmenter() as segmenter, pytest.raises(InputError, match=r"in\.mp4: stopped before the first frame"):
            segmenter.run(pipe, tmp_path / "out.mp4", stop=stop)
    finally:
        os.close(held)
    assert list(tmp_path.iterdir()) == [pipe]


def test_misspelt_keywords_are_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"efect: is no option of segment\(\); did you mean effect\?"):
        segment(SAMPLE, tmp_path / "a.mp4", efect="mask")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"batchsize: is no option of Segmenter\(\); did you mean batch_size\?"):
        Segmenter(batchsize=4)  # type: ignore[call-arg]


def test_options_of_a_run_are_for_that_run(three: list[Path], tmp_path: Path) -> None:
    with Segmenter(mode="baseline", infer="onnxruntime", effect="mask", codec="ffv1") as segmenter:
        segmenter.run(three[0], tmp_path / "a.mkv", max_frames=3)
        whole = segmenter.run(three[0], tmp_path / "b.mkv")
        assert whole.frames == 25
        with pytest.raises(TypeError, match="model: belongs to the whole session"):
            segmenter.run(three[0], tmp_path / "c.mkv", model="other.onnx")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match=r"efect: is no option of run\(\); did you mean effect\?"):
            segmenter.run(three[0], tmp_path / "c.mkv", efect="mask")  # type: ignore[call-arg]
        with pytest.raises(ConfigError, match="threshold"):
            segmenter.run(three[0], tmp_path / "c.mkv", threshold=2)


@pytest.mark.slow
@pytest.mark.parametrize("encode", ["x264", "x264-segments"])
def test_memory_is_flat_over_many_files(tmp_path: Path, encode: str) -> None:
    """A frame of the input is 0.46 MB, so that even a kept plane would show."""
    clip = Synthetic(size=(640, 480), codec="libx264", pts=range(2)).write(tmp_path / "a.mp4")
    seen: dict[int, tuple[int, int, int]] = {}
    with Segmenter(**SEGMENTS | {"encode": encode}, overwrite=True) as segmenter:
        for number in range(1, 121):
            segmenter.run(clip, tmp_path / "out.mp4")
            if number in (30, 120):
                resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
                seen[number] = resident, len(os.listdir("/proc/self/fd")), threading.active_count()
        (early, files, threads), (late, more_files, _) = seen[30], seen[120]
        deadline = time.monotonic() + 240
        while threading.active_count() > threads and time.monotonic() < deadline:
            time.sleep(0.01)  # a run's idle threads are not waited for at its end
        assert threading.active_count() <= threads
    assert late - early < 9 << 20  # a tenth of a megabyte a file
    assert more_files <= files


def test_the_programs_current_device_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a session works on the calling thread, as it enters its GPU there."""
    cuda = fake_cuda(monkeypatch, initialized=True)
    entered: list[int] = []
    original = resources.Resources.batch_size

    def entering(*arguments: Any, **options: Any) -> int:
        cuda.current = 1
        entered.append(threading.get_ident())
        return original(*arguments, **options)

    monkeypatch.setattr(resources.Resources, "batch_size", entering)
    picture = np.zeros((64, 64, 3), np.uint8)

    def stayed() -> bool:
        here, device = threading.get_ident() in entered, cuda.current
        entered.clear()
        return here and device == 0

    with Segmenter(**SEGMENTS) as segmenter:
        segmenter.masks(picture)
        assert stayed()
        segmenter.apply(picture)
        assert stayed()
        segmenter.run(SAMPLE, tmp_path / "out.mp4", max_frames=3)
        assert stayed()
        frames = segmenter.frames(SAMPLE, max_frames=3)
        next(frames)
        assert stayed()
        frames.close()
        assert cuda.current == 0
