"""Networks on crops find on a GPU what ONNX Runtime finds, whichever runs bring crops at the same time.

On the host they run as they are converted, without a CUDA graph.
"""

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from converter import need_onnx2torch
from detectors import color_classifier, make_detector, outputs_of, red_box
from networks import shared_network
from numpy.typing import NDArray
from references import SIZE

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("cuda.core", reason="cuda-core is not installed")

from mask_sides import SIDES, gpu_of  # noqa: E402
from plain_network import load_plainly  # noqa: E402

from segmentation.errors import BackendError  # noqa: E402
from segmentation.models.model import Model  # noqa: E402
from segmentation.models.secondary import SecondaryNetwork  # noqa: E402
from segmentation.options.then import Then  # noqa: E402
from segmentation.stages.inference.crop_network import CropNetwork  # noqa: E402
from segmentation.stages.inference.instances.fixed_batch import AGREES  # noqa: E402
from segmentation.stages.preprocess.crops import AT_ONCE  # noqa: E402


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[..., CropNetwork]:
    """Loads a network on a side."""
    need_onnx2torch()

    def load(side: str, model: Model, turn: Any = None) -> CropNetwork:
        if side == "host":
            load_plainly(monkeypatch)
        gpu = gpu_of(side)
        gpu.enter()
        return CropNetwork(model, AT_ONCE, gpu, turn or nullcontext())

    return load


def ask(network: CropNetwork, side: str, pictures: NDArray[np.float32]) -> list[list[NDArray[Any]]]:
    """Returns what the network says of pictures (n, 3, H, W)."""
    gpu = gpu_of(side)
    gpu.enter()

    def write(target: Any) -> None:
        assert target.shape == pictures.shape and target.dtype == torch.float32
        with torch.inference_mode(), torch.cuda.stream(gpu.stream):
            target.copy_(torch.from_numpy(pictures))

    return network(len(pictures), write)


def secondary(path: Path) -> SecondaryNetwork:
    return SecondaryNetwork(Then("thing", str(path), "person"))


NETWORKS: dict[str, Callable[[Path], SecondaryNetwork]] = {
    "a class": lambda folder: secondary(color_classifier(folder / "m.onnx")),
    "a batch of two": lambda folder: secondary(color_classifier(folder / "m.onnx", batch=2)),
    "boxes": lambda folder: secondary(red_box(folder / "m.onnx")),
    "queries with masks": lambda folder: secondary(
        make_detector(folder / "m.onnx", outputs_of("rf-detr"), size=(SIZE, SIZE))
    ),
    "faces": lambda folder: secondary(shared_network("faces-yunet.onnx")),
    "one at a time": lambda folder: secondary(color_classifier(folder / "m.onnx", batch=1)),
    "an old opset": lambda folder: secondary(shared_network("faces-masked-rfb640.onnx")),
}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "an old opset" else ()) for name in NETWORKS]
)
def test_outputs_are_those_of_onnx_runtime(
    side: str, name: str, tmp_path: Path, load: Callable[..., CropNetwork], caplog: pytest.LogCaptureFixture
) -> None:
    network = NETWORKS[name](tmp_path)
    ours = load(side, network.model)
    within = AGREES if side == "gpu" else 1e-3  # a GPU may take FP16
    size = network.model.height, network.model.width
    pictures = np.random.default_rng(1).random((2, 3, *size), np.float32) * 255
    for given in (pictures, pictures[1:]):
        theirs = list(network.outputs(given))
        found = ask(ours, side, given)
        assert len(found) == len(theirs) == len(given)
        for one, other in zip(found, theirs, strict=True):
            assert [array.shape for array in one] == [array.shape for array in other]
            for array, wanted in zip(one, other, strict=True):
                most = max(1.0, float(np.abs(wanted).max()))
                assert array == pytest.approx(wanted, rel=within, abs=within * most)
    assert "captured" not in caplog.text, "without a graph it is several times slower"


@pytest.mark.parametrize("side", SIDES)
def test_crops_of_several_runs_go_through_together(
    side: str, tmp_path: Path, load: Callable[..., CropNetwork], monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = threading.RLock()
    network = load(side, secondary(color_classifier(tmp_path / "m.onnx")).model, turn)
    runs = 0
    run = network._network.run

    def counted() -> Any:
        nonlocal runs
        runs += 1
        return run()

    monkeypatch.setattr(network._network, "run", counted)

    def work(number: int) -> None:
        pictures = np.zeros((1 + number % 3, 3, 32, 32), np.float32)
        pictures[:, number % 3] = 0.1 * (number + 1)
        for scores, *_ in ask(network, side, pictures):
            assert scores == pytest.approx(pictures[0].mean((1, 2)) * 10, abs=1e-4)

    with ThreadPoolExecutor(8) as pool:
        with turn:  # so that all others wait for their turn
            calls = [pool.submit(work, number) for number in range(8)]
            deadline = threading.Event()
            while len(network._gather._waiting) < 8 and not deadline.wait(0.01):
                assert not any(call.done() for call in calls)
        for call in calls:
            call.result()
    assert runs <= 3, "1 + 2 + 3 + 1 + 2 + 3 + 1 + 2 crops are two or three batches of eight"
    assert network.at_once == AT_ONCE


@pytest.mark.parametrize("side", SIDES)
def test_a_network_in_fp16_takes_the_same_pictures(side: str, tmp_path: Path, load: Callable[..., CropNetwork]) -> None:
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    path = color_classifier(tmp_path / "m.onnx")
    onnx.save(convert_float_to_float16(onnx.load(path)), path)
    network = secondary(path)
    assert network.model.dtype is np.float16
    pictures = np.random.default_rng(2).random((3, 3, 32, 32), np.float32)
    theirs = list(network.outputs(pictures.astype(np.float16)))
    for (ours,), (wanted,) in zip(ask(load(side, network.model), side, pictures), theirs, strict=True):
        assert ours == pytest.approx(wanted.astype(np.float32), abs=0.02)


def test_layouts_without_a_fixed_shape_are_for_the_cpu(tmp_path: Path) -> None:
    path = make_detector(tmp_path / "m.onnx", outputs_of("mask-rcnn"), size=(SIZE, SIZE))
    with pytest.raises(BackendError, match="mask-rcnn returns as many things as it has found, not a fixed number"):
        CropNetwork.describe(secondary(path).model)
    boxes = secondary(red_box(tmp_path / "r.onnx")).model
    assert "FP32" in CropNetwork.describe(boxes)
    with pytest.raises(BackendError, match="takes one picture, not a batch"):
        CropNetwork.describe(replace(boxes, form=replace(boxes.form, single=True)))


@pytest.mark.parametrize("side", SIDES)
def test_its_memory_comes_back_at_once_and_not_when_python_looks_for_garbage(
    side: str, load: Callable[..., CropNetwork], tmp_path: Path
) -> None:
    network = load(side, secondary(color_classifier(tmp_path / "m.onnx")).model)
    ask(network, side, np.zeros((3, 3, 32, 32), np.float32))
    network.close()
    seen = weakref.ref(network)
    gc.disable()
    try:
        del network
        assert seen() is None
    finally:
        gc.enable()
