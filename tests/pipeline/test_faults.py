"""What GPU libraries raise: what users are told, what serves instead, and what a second attempt finds."""

import gc
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from networks import make_model
from paths import SAMPLE
from videos import times

from segmentation import Config, DeviceError, InputError, OutputError, segment
from segmentation.errors import DeviceMemoryError
from segmentation.gpu.errors import translate_gpu_error
from segmentation.media.opening.probe import probe
from segmentation.pipeline.planning.plan import make_plan, with_stage
from segmentation.stages.postprocess.opencv import OpenCVPostprocessor


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB", DeviceMemoryError),
        ("cuvidCreateDecoder(&m_hDecoder, &info) returned error 2", DeviceMemoryError),
        ("CUDA_ERROR_OUT_OF_MEMORY where an event is made", DeviceMemoryError),
        ("cuvidMapVideoFrame returned error 201", DeviceError),
        ("cuCtxPushCurrent returned error 700 at file NvDecoder.cpp", DeviceError),
        ("CUDA error: an illegal memory access was encountered", DeviceError),
        ("IExecutionContext::enqueueV3: Error Code 1: Cuda Runtime (out of memory)", DeviceMemoryError),
        ("cuvidDecodePicture returned error 1", None),
        ("cuvidMapVideoFrame returned error 205", None),
        ("shapes don't match", None),
    ],
)
def test_what_is_behind_an_error(text: str, kind: type[DeviceError] | None) -> None:
    found = translate_gpu_error(RuntimeError(text))
    assert type(found) is (type(None) if kind is None else kind)
    assert found is None or "\n" not in str(found)


@pytest.mark.parametrize("name", ["CUDA error", "out of memory", "returned error 2"])
def test_names_of_files_are_no_words_of_the_gpu(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InputError, match="no such file"):
        segment(tmp_path / f"{name}.mp4", tmp_path / "a.mp4")
    target = tmp_path / f"{name}.mp4"
    target.touch()
    with pytest.raises(OutputError, match="exists already"):
        segment(SAMPLE, target)
    assert "again" not in caplog.text


@pytest.mark.parametrize("batch_size", [1, 4])
def test_what_the_caller_raises_is_not_explained(tmp_path: Path, batch_size: int) -> None:
    told: list[int] = []

    def progress(done: int, total: int) -> None:
        told.append(done)
        if done >= 8:
            raise RuntimeError("CUDA error: out of memory")  # of the caller's own use of a GPU

    with pytest.raises(RuntimeError, match=r"^CUDA error: out of memory$"):
        segment(SAMPLE, tmp_path / "a.mp4", mode="baseline", batch_size=batch_size, progress=progress)
    assert told == list(range(batch_size, 9, batch_size)) and not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("where", ["progress", "postprocess", "output", "device", "device at once"])
def test_a_failed_run_is_let_go_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Without waiting for the collector, which may not come for long: it does not see how large frames are."""
    made: list[weakref.ref[Any]] = []
    make, call = OpenCVPostprocessor.__init__, OpenCVPostprocessor.__call__

    def remembered(self: Any, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        made.append(weakref.ref(self))

    def failing(self: Any, batch: Any) -> Any:
        if where == "postprocess" and batch.frames.number == 5:
            raise ValueError("on purpose")
        if (where == "device" and batch.frames.number == 5) or where == "device at once":
            raise DeviceError("on purpose")
        return call(self, batch)

    def progress(done: int, total: int) -> None:
        if where == "progress" and done >= 5:
            raise ValueError("on purpose")
        if where == "output" and done >= 5:
            (tmp_path / "a.mp4").touch()

    monkeypatch.setattr(OpenCVPostprocessor, "__init__", remembered)
    monkeypatch.setattr(OpenCVPostprocessor, "__call__", failing)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises((ValueError, DeviceError, OutputError), match=r"on purpose|came into being"):
            segment(SAMPLE, tmp_path / "a.mp4", mode="baseline", max_frames=20, progress=progress)
        deadline = time.monotonic() + 240  # threads may be at their last item
        while any(one() is not None for one in made) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert made and all(one() is None for one in made)
    finally:
        gc.enable()


def test_one_stage_is_served_by_another_after_all() -> None:
    """The others stay what they were, also those that were replaced before."""
    config, info = Config(mode="baseline", infer="onnxruntime"), probe(str(SAMPLE))
    first = with_stage(make_plan(config, info), "encode", "x264-segments", config, info)
    second = with_stage(first, "infer", "onnxruntime", config, info)
    assert second.names() == make_plan(config, info).names() | {"encode": "x264-segments"}
    assert second.decode is first.decode and second.encode is first.encode


@pytest.fixture
def rare_collections() -> Iterator[None]:
    """As in the command."""
    before = gc.get_threshold()
    gc.set_threshold(50_000)
    yield
    gc.set_threshold(*before)


@pytest.mark.slow
@pytest.mark.usefixtures("rare_collections")
@pytest.mark.parametrize("own", [False, True], ids=["a library's error", "our own"])
def test_a_second_attempt_finds_the_memory_of_the_first_one_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    attempts: list[weakref.ref[Any]] = []
    alive: list[bool] = []
    make, call = OpenCVPostprocessor.__init__, OpenCVPostprocessor.__call__

    def made(self: Any, *arguments: Any, **options: Any) -> None:
        alive.append(any(attempt() is not None for attempt in attempts))
        attempts.append(weakref.ref(self))
        make(self, *arguments, **options)

    def greedy(self: Any, batch: Any) -> Any:
        if len(batch) > 2 and batch.frames.number == 2:
            raise DeviceMemoryError("the GPU's memory is full") if own else RuntimeError("CUDA out of memory")
        return call(self, batch)

    monkeypatch.setattr(OpenCVPostprocessor, "__init__", made)
    monkeypatch.setattr(OpenCVPostprocessor, "__call__", greedy)
    done = segment(SAMPLE, tmp_path / "a.mp4", mode="baseline", infer="onnxruntime", batch_size=4, max_frames=20)
    assert done.frames == 20 and len(attempts) == 2 and alive == [False, False]


def test_a_network_that_fixes_the_batch_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def greedy(*_: Any) -> None:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(OpenCVPostprocessor, "__call__", greedy)
    network = make_model(tmp_path / "m.onnx", [[1.0, 0, 0]], batch=4)
    with pytest.raises(DeviceMemoryError, match=r"memory is full .*m\.onnx takes 4 frames at a time"):
        segment(SAMPLE, tmp_path / "a.mp4", model=str(network), mode="baseline", infer="onnxruntime")
    assert "again" not in caplog.text and [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_with_a_fixed_batch_what_was_finished_before_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = OpenCVPostprocessor.__call__

    def greedy(self: Any, batch: Any) -> Any:
        if batch.frames.number == 4:
            raise RuntimeError("CUDA out of memory")
        return call(self, batch)

    monkeypatch.setattr(OpenCVPostprocessor, "__call__", greedy)
    network = make_model(tmp_path / "m.onnx", [[1.0, 0, 0]], batch=4)
    with pytest.raises(DeviceError, match=r"memory is full .*; the 16 frames before are in .*a\.mp4"):
        segment(SAMPLE, tmp_path / "a.mp4", model=str(network), mode="baseline", infer="onnxruntime", batch_size=4)
    assert len(times(tmp_path / "a.mp4")) == 16
