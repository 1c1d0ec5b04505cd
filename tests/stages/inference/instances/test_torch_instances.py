"""PyTorch finds the single things that ONNX Runtime finds: on the host as converted, on a GPU as captured."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Any

import cv2
import numpy as np
import onnx
import pytest
from converter import need_onnx2torch
from detectors import make_detector, outputs_of, red_box, red_yolo
from mask_sides import SIDES, gpu_of
from networks import model_of, shared_network
from onnx import numpy_helper
from references import SIZE

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("cuda.core", reason="cuda-core is not installed")

from segmentation import Config  # noqa: E402
from segmentation.errors import BackendError, RefusesNetwork, UnknownOperator  # noqa: E402
from segmentation.frames import FORMATS  # noqa: E402
from segmentation.frames.instances import EDGE  # noqa: E402
from segmentation.models.detection import Place  # noqa: E402
from segmentation.models.model import Model  # noqa: E402
from segmentation.models.sample_picture import PICTURE  # noqa: E402
from segmentation.stages.inference import InferenceResult  # noqa: E402
from segmentation.stages.inference.batched_network import BatchedNetwork  # noqa: E402
from segmentation.stages.inference.instances import fixed_batch, torch_instances  # noqa: E402
from segmentation.stages.inference.instances.onnx_instances import InstanceInference  # noqa: E402
from segmentation.stages.inference.instances.torch_instances import GpuInstances, TorchInstanceInference  # noqa: E402

OVERLAY = Config(effect="overlay", batch_size=3)


NETWORKS: dict[str, Callable[[Path], Model]] = {
    "instances": lambda folder: model_of(red_yolo(folder / "m.onnx")),
    "boxes": lambda folder: model_of(red_box(folder / "m.onnx", size=(64, 64))),
    "queries": lambda folder: model_of(make_detector(folder / "m.onnx", outputs_of("rf-detr"), size=(SIZE, SIZE))),
    "one at a time": lambda folder: model_of(red_yolo(folder / "m.onnx", batch=1)),
    "faces": lambda folder: replace(model_of(shared_network("faces-yunet.onnx")), picture=Place(0, 12, 640, 360)),
    "an old opset": lambda folder: model_of(shared_network("faces-masked-rfb640.onnx")),
}


@pytest.fixture(params=NETWORKS)
def model(request: pytest.FixtureRequest, tmp_path: Path, folder: Path) -> Model:
    return NETWORKS[request.param](tmp_path)


def photographs(model: Model, count: int) -> np.ndarray:
    """Inputs of the network: the package's picture in several crops."""
    photo = cv2.imread(str(PICTURE))
    assert photo is not None
    crops = [photo[4 * number :, 6 * number :] for number in range(count)]
    small = [cv2.resize(crop, (model.width, model.height), interpolation=cv2.INTER_AREA)[..., ::-1] for crop in crops]
    tensor = (np.stack(small).astype(np.float32) / 255 - model.mean) / model.std
    return np.ascontiguousarray(tensor.transpose(0, 3, 1, 2), np.float32)


def on_the_host(model: Model, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], InferenceResult]:
    """The network as it is loaded, without a graph, with the kernels on the host."""
    need_onnx2torch()
    gpu = gpu_of("host")
    monkeypatch.setattr(torch_instances, "kernels_on", lambda _, source: gpu.kernels(source, FORMATS["yuv420p"]))
    network = torch_instances._loaded(model, OVERLAY, gpu.device)

    def infer(tensor: Any) -> InferenceResult:
        network.input.copy_(tensor)
        found = network.run()
        return InferenceResult(found.masks, found.class_map, GpuInstances.of(found, model, gpu))

    return infer


def found_by(side: str, model: Model, pictures: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> InferenceResult:
    gpu = gpu_of(side)
    gpu.enter()
    infer = TorchInstanceInference(model, OVERLAY, gpu) if side == "gpu" else on_the_host(model, monkeypatch)
    with torch.inference_mode(), torch.cuda.stream(gpu.stream):
        result = infer(torch.from_numpy(pictures).to(gpu.device))
        class_map = None if result.class_map is None else torch.as_tensor(result.class_map).cpu().numpy()
        return InferenceResult(torch.as_tensor(result.masks).cpu().numpy(), class_map, result.instances)


def check(ours: InferenceResult, theirs: InferenceResult, count: int, *, fp16: bool = False) -> None:
    """Fails unless both results have the same instances in `count` pictures, and the same masks.

    In FP16 scores and boxes differ by up to a hundredth, and masks at edges of boxes.
    """
    within, differing = (1e-2, 0.02) if fp16 else (1e-3, 0.0)
    assert ours.instances and theirs.instances
    assert len(ours.instances) == len(theirs.instances) == count
    assert any(frame.instances for frame in theirs.instances), "so few that nothing is compared"
    masks = np.asarray(theirs.masks)
    assert (np.abs(np.asarray(ours.masks) - masks) > 1e-3).mean() <= differing
    certain = np.abs(masks - EDGE) > 1e-3  # rounding decides at the others
    for one, other, sure in zip(ours.instances, theirs.instances, certain, strict=True):
        assert [thing.label for thing in one.instances] == [thing.label for thing in other.instances]
        for thing, wanted in zip(one.instances, other.instances, strict=True):
            assert thing.score == pytest.approx(wanted.score, abs=within)
            assert thing.box == pytest.approx(wanted.box, abs=within)
        assert (one.label_map != other.label_map)[sure].mean() <= differing


@pytest.mark.parametrize("side", SIDES)
def test_the_instances_are_those_of_onnx_runtime(
    side: str, model: Model, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pictures = photographs(model, 3)
    theirs = InstanceInference(model, OVERLAY)(pictures)
    ours = found_by(side, model, pictures, monkeypatch)
    check(ours, theirs, 3, fp16=side == "gpu")
    assert "captured" not in caplog.text, "without a graph it is several times slower"
    if theirs.class_map is not None:
        certain = np.abs(np.asarray(theirs.masks) - EDGE) > 1e-3
        assert (np.asarray(ours.class_map) == theirs.class_map)[certain].all()


def test_the_second_start_imports_no_converter(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(red_yolo(tmp_path / "m.onnx"))
    pictures = photographs(model, 3)
    first = found_by("host", model, pictures, monkeypatch)
    monkeypatch.setattr(fixed_batch, "convert", None)
    again = found_by("host", replace(model, picture=Place(0, 8, 64, 48)), pictures, monkeypatch)
    assert np.array_equal(np.asarray(again.masks), np.asarray(first.masks)[:, 8:56])
    assert len(list(folder.glob("*.pt"))) == 1, "where the picture lies is no matter of the network"


def refused(model: Model) -> str:
    with pytest.raises(BackendError) as caught:
        TorchInstanceInference.known(model, Config())
    return str(caught.value)


def test_layouts_of_no_fixed_shape_are_refused(tmp_path: Path) -> None:
    for task in ("rtmdet-ins", "mask-rcnn"):
        path = make_detector(tmp_path / f"{task}.onnx", outputs_of(task), size=(SIZE, SIZE), single=task == "mask-rcnn")
        model = model_of(path, labels=tuple(f"c{i}" for i in range(7)))
        assert refused(model) == f"{task} returns as many things as it has found, not a fixed number"
    single = make_detector(tmp_path / "single.onnx", outputs_of("rf-detr"), size=(SIZE, SIZE), single=True)
    assert refused(model_of(single)) == f"{single} takes one picture, not a batch"


def test_networks_that_pytorch_cannot_run_are_refused(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that ONNX Runtime runs them: with an operator that onnx2torch lacks, and with a batch of one only."""
    graph = onnx.load(red_box(tmp_path / "m.onnx"))
    (pool,) = (one for one in graph.graph.node if one.op_type == "ReduceMean")
    pool.op_type = "GlobalLpPool"
    del pool.attribute[:]
    onnx.save(graph, tmp_path / "pool.onnx")
    with pytest.raises(UnknownOperator, match="GlobalLpPool"):
        on_the_host(model_of(tmp_path / "pool.onnx"), monkeypatch)
    graph = onnx.load(tmp_path / "m.onnx")
    (shape,) = (one for one in graph.graph.initializer if one.name == "shape")
    shape.CopyFrom(numpy_helper.from_array(np.array([1, 1, 1]), "shape"))
    onnx.save(graph, tmp_path / "one.onnx")
    with pytest.raises(RefusesNetwork, match="its batch can't be made 3"):
        on_the_host(model_of(tmp_path / "one.onnx"), monkeypatch)


@pytest.mark.gpu
def test_frames_of_several_runs_share_a_batch(tmp_path: Path, folder: Path) -> None:
    """Each gets its own masks and instances, which stay when the network runs again."""
    gpu, model = gpu_of("gpu"), model_of(red_yolo(tmp_path / "m.onnx"))
    network = BatchedNetwork(TorchInstanceInference(model, OVERLAY, gpu), 3, RLock(), gpu)
    pictures = np.zeros((3, 3, 64, 64), np.float32)
    for row in range(3):
        pictures[row, 0, : 16 * (row + 1)] = 1
    theirs = InstanceInference(model, OVERLAY)(pictures)
    assert theirs.instances
    results = []
    with torch.cuda.stream(gpu.stream):
        for row in range(3):
            tensor = torch.from_numpy(pictures[row : row + 1]).to(gpu.device)
            results.append(network(tensor, 1, lambda infer, tensor: infer(tensor)))
        for row, result in enumerate(results):
            one = InferenceResult(torch.as_tensor(result.masks).cpu().numpy(), None, result.instances)
            check(one, InferenceResult(theirs.masks[row : row + 1], None, theirs.instances[row : row + 1]), 1)
