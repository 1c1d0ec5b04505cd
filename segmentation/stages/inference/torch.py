"""Inference with PyTorch, eager, FP32, on CUDA where there is a GPU: the baseline that faster ones are measured by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from segmentation.config import Config
from segmentation.errors import BackendError
from segmentation.frames import Memory, VideoInfo
from segmentation.models.model import Model
from segmentation.stages.inference import Inference, InferenceResult, wants_class_map
from segmentation.stages.inference.onnx_to_torch import convert, likeliest, probabilities

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu


class TorchInference(Inference):
    """See `segmentation.stages.inference`. Takes and returns NumPy arrays on the CPU."""

    memory: ClassVar[Memory] = "host"
    workers = 1  # the network itself fills the GPU, or all cores

    def __init__(self, model: Model, config: Config, gpu: Gpu | None = None, preloaded: Any = None) -> None:
        self._model = model
        self._wants_class_map = wants_class_map(model, config)
        self._device = _device(config)
        graph = None if model.form.plain else _prepared(model)
        self._net = convert(model.path, self._device, graph).float()

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        device = _device(config)
        if device.type == "cpu" and config.infer is None:
            raise BackendError("without a GPU, PyTorch is slower than ONNX Runtime; --infer torch asks for it")
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
        return f"PyTorch {torch.__version__}, {name}, eager FP32"

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def __call__(self, tensor: NDArray[Any]) -> InferenceResult:
        scores = self._net(torch.from_numpy(tensor.astype(np.float32, copy=False)).to(self._device))
        masks: NDArray[np.float32] = probabilities(scores, self._model).cpu().numpy()
        class_map = likeliest(scores, self._model).cpu().numpy() if self._wants_class_map else None
        return InferenceResult(masks, class_map)


def _prepared(model: Model) -> Any:
    """The graph of a network whose tensors are not those of the pipeline, with nodes that make them so."""
    from segmentation.models.onnx_graph import prepare  # with `onnx`, which others do without

    return prepare(model, model.batch)


def _device(config: Config) -> torch.device:
    device = torch.device(config.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        raise BackendError(f"device {config.device}: PyTorch sees {count} CUDA devices here; use --device cpu")
    return device
