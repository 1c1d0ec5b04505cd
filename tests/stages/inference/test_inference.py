"""Every implementation of inference gives the same masks."""

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
from converter import need_onnx2torch
from networks import make_model
from numpy.typing import NDArray
from paths import SAMPLE

from segmentation import BackendError, Config
from segmentation.gpu.discovery import require_torch
from segmentation.media.opening.probe import probe
from segmentation.models.model import Model, load_model
from segmentation.pipeline.planning.plan import make_plan
from segmentation.stages.decode.pyav import PyAVDecoder
from segmentation.stages.inference import Inference
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference
from segmentation.stages.preprocess.opencv import OpenCVPreprocessor

CONFIG = Config()

pytestmark = pytest.mark.usefixtures("folder")  # converted networks of these tests go there, and not among the user's


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model(CONFIG)


@pytest.fixture(scope="module")
def pictures(model: Model) -> NDArray[np.float32]:
    """(5, 3, H, W): frames of the sample clip, of which the network is sure in some places and not in others."""
    info = probe(str(SAMPLE))
    preprocess = OpenCVPreprocessor(info, "yuv420p", model, CONFIG)
    batches = PyAVDecoder(info, "yuv420p", CONFIG)
    tensors = [preprocess(batch) for batch in islice(batches, 0, 150, 30)]
    return np.concatenate(tensors).astype(np.float32)


def torch_inference(model: Model, device: str) -> Inference:
    if device == "cpu":  # on a GPU machine a missing package is a failure
        need_onnx2torch()
    from segmentation.stages.inference.torch import TorchInference

    return TorchInference(model, replace(CONFIG, infer="torch", device=device))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def test_torch_agrees_with_onnx_runtime(model: Model, pictures: NDArray[np.float32], device: str) -> None:
    masks = torch_inference(model, device)(pictures).masks
    expected = OnnxRuntimeInference(model, CONFIG)(pictures).masks
    assert masks.shape == expected.shape and masks.dtype == np.float32
    assert 0.02 < (expected > 0.5).mean() < 0.98  # or agreement would mean nothing
    assert ((masks > 0.5) == (expected > 0.5)).mean() > 0.995
    assert np.abs(masks - expected).max() < (1e-3 if device == "cpu" else 0.05)  # CUDA convolves in TF32


def test_without_a_gpu_pytorch_infers_only_when_asked() -> None:
    pytest.importorskip("torch", minversion="2")
    config = Config(mode="baseline", device="cpu")
    assert make_plan(config).infer.name == "onnxruntime"
    assert make_plan(replace(config, infer="torch")).infer.name == "torch"


def test_a_pytorch_that_finds_no_gpu_serves_no_stage_there() -> None:
    torch = pytest.importorskip("torch", minversion="2")
    if torch.cuda.is_available():
        require_torch()
        return
    with pytest.raises(BackendError, match="PyTorch finds no GPU: it was built for"):
        require_torch()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def test_torch_applies_the_activation(tmp_path: Any, device: str) -> None:
    config = Config(model=str(make_model(tmp_path / "m.onnx", [[10.0, 0, 0]], bias=[-5.0])))
    model = load_model(config)
    tensor = np.zeros((2, 3, 32, 48), np.float32)
    tensor[0, 0] = 1
    masks = torch_inference(model, device)(tensor).masks
    np.testing.assert_allclose(masks[0], 1 / (1 + np.exp(-5)), rtol=1e-3)
    np.testing.assert_allclose(masks[1], 1 / (1 + np.exp(5)), rtol=1e-2)


def test_one_frame_at_a_time_is_the_same_as_a_batch(model: Model, pictures: NDArray[np.float32]) -> None:
    infer = OnnxRuntimeInference(model, CONFIG)
    together = infer(pictures).masks
    for picture, mask in zip(pictures, together, strict=True):
        np.testing.assert_allclose(infer(picture[None]).masks[0], mask, atol=1e-5)
