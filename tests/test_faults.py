"""What GPU libraries raise: what users are told, what serves instead, and what a second attempt finds."""

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_model import make_model

from segmentation import Config, DeviceError, segment
from segmentation.errors import DeviceMemoryError
from segmentation.faults import explain
from segmentation.plan import instead, make_plan
from segmentation.postprocess.opencv import OpenCVPostprocessor
from segmentation.source import probe

SAMPLE = Path(__file__).parent.parent / "samples" / "astronaut.mp4"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB", DeviceMemoryError),
        ("cuvidCreateDecoder(&m_hDecoder, &info) returned error 2", DeviceMemoryError),
        ("CUDA_ERROR_OUT_OF_MEMORY where an event is made", DeviceMemoryError),
        ("cuvidMapVideoFrame returned error 201", DeviceError),
        ("cuCtxPushCurrent returned error 700 at file NvDecoder.cpp", DeviceError),
        ("CUDA error: an illegal memory access was encountered", DeviceError),
        ("cuvidDecodePicture returned error 1", None),
        ("cuvidMapVideoFrame returned error 205", None),
        ("shapes don't match", None),
    ],
)
def test_what_is_behind_an_error(text: str, kind: type[DeviceError] | None) -> None:
    found = explain(RuntimeError(text))
    assert type(found) is (type(None) if kind is None else kind)
    assert found is None or "\n" not in str(found)


def test_one_stage_is_served_by_another_after_all() -> None:
    """The others stay what they were, also those that were replaced before."""
    config, info = Config(mode="baseline", infer="onnxruntime"), probe(str(SAMPLE))
    first = instead(make_plan(config, info), "encode", "x264-segments", config, info)
    second = instead(first, "infer", "onnxruntime", config, info)
    assert second.names() == make_plan(config, info).names() | {"encode": "x264-segments"}
    assert second.decode is first.decode and second.encode is first.encode


@pytest.fixture
def rare_collections() -> Iterator[None]:
    """As in the command."""
    before = gc.get_threshold()
    gc.set_threshold(50_000)
    yield
    gc.set_threshold(*before)


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

    def greedy(self: Any, batch: Any, masks: Any) -> Any:
        if len(batch) > 2 and batch.number == 2:
            raise DeviceMemoryError("the GPU's memory is full") if own else RuntimeError("CUDA out of memory")
        return call(self, batch, masks)

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
