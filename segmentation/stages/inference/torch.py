"""Inference with PyTorch, eager, FP32, on CUDA where there is a GPU: the baseline that faster ones are measured by."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.fx import GraphModule

from segmentation.errors import BackendError
from segmentation.frames import Memory, VideoInfo
from segmentation.gpu.discovery import TORCH_IS_SLOWER
from segmentation.models.model import Model
from segmentation.options.config import Config
from segmentation.options.devices import processor
from segmentation.stages.inference import Inference, InferenceResult, wants_class_map
from segmentation.stages.inference.compiler.onnx_to_torch import (
    cached_network,
    convert,
    likeliest,
    main_output,
    probabilities,
)

if TYPE_CHECKING:
    import onnx

    from segmentation.gpu.context import Gpu


class TorchInference(Inference):
    """See `segmentation.stages.inference`. Takes and returns NumPy arrays on the CPU."""

    memory: ClassVar[Memory] = "host"
    workers = 1  # the network itself fills the GPU, or all cores

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def __init__(self, model: Model, config: Config, gpu: Gpu | None = None, preloaded: None = None) -> None:
        self._model = model
        self._wants_class_map = wants_class_map(model, config)
        self._device = _device(config)
        self._batch = model.batch or config.batch_size or 1
        example = torch.zeros((self._batch, 3, model.height, model.width), device=self._device)
        origin = hashlib.sha256(model.path.read_bytes()).hexdigest(), replace(model, path=Path())
        self._net = cached_network(f"{model.path.stem}-fp32-b{self._batch}", origin, example, self._converted)

    def _converted(self) -> GraphModule:
        """Returns the network as onnx2torch makes it."""
        model = self._model
        return convert(model.path, self._device, _prepared(model)).float()

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        device = _device(config)
        if device.type == "cpu" and config.infer is None:
            raise BackendError(TORCH_IS_SLOWER)
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
        return f"PyTorch {torch.__version__}, {name}, eager FP32"

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def __call__(self, tensor: NDArray[Any]) -> InferenceResult:
        pictures = torch.from_numpy(tensor.astype(np.float32, copy=False))
        scores = torch.cat([self._scores(part) for part in pictures.split(self._batch)])
        masks: NDArray[np.float32] = probabilities(scores, self._model).cpu().numpy()
        class_map = likeliest(scores, self._model).cpu().numpy() if self._wants_class_map else None
        return InferenceResult(masks, class_map)

    def _scores(self, pictures: torch.Tensor) -> torch.Tensor:
        """Returns the scores (N, C, h, w) of pictures (N, 3, H, W), at most as many as the network's batch."""
        count = len(pictures)
        padded = torch.zeros((self._batch, *pictures.shape[1:]), device=self._device)
        padded[:count] = pictures
        return main_output(self._net(padded))[:count]


def _prepared(model: Model) -> onnx.ModelProto:
    """Returns the graph with the pipeline's tensors, and without what has to be computed only once."""
    from segmentation.models.graph.onnx_graph import prepare  # imports `onnx`, which other networks do without

    return prepare(model, model.batch)


def _device(config: Config) -> torch.device:
    """Returns the device that `config` names, else the first GPU, else the CPU. Raises `BackendError`."""
    if processor(config.device) is not None:
        raise BackendError(f"device {config.device}: PyTorch runs on cpu or cuda; leave out --infer")
    device = torch.device(config.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        raise BackendError(f"device {config.device}: PyTorch sees {count} CUDA devices here; use --device cpu")
    return device
