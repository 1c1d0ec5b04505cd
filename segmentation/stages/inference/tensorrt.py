"""Inference with TensorRT or TensorRT-RTX, whichever serves the GPU."""

from typing import ClassVar

import torch

from segmentation.config import Config
from segmentation.errors import BackendError
from segmentation.frames import Memory, VideoInfo
from segmentation.gpu.context import Gpu
from segmentation.gpu.discovery import GpuInfo, find_gpu
from segmentation.models.model import Model
from segmentation.models.sidecar import load_plan
from segmentation.stages.inference import Inference, InferenceResult, wants_class_map
from segmentation.stages.inference.onnx_to_torch import likeliest, probabilities
from segmentation.tensorrt.build import obtain
from segmentation.tensorrt.session import EngineSession
from segmentation.tensorrt.spec import EngineOptions, EngineSpec, check_machine
from segmentation.tensorrt.variant import Variant, choose, installed


class TensorRTInference(Inference):
    """See `segmentation.stages.inference`. The next call overwrites the masks that were returned.

    An engine is built from an ONNX, and found by the next run; see `segmentation.tensorrt.build`.
    """

    memory: ClassVar[Memory] = "cuda"
    workers = 1  # one stream; the network itself fills the GPU

    def __init__(self, model: Model, config: Config, gpu: Gpu, preloaded: None = None) -> None:
        device, variant = _gpu(gpu.device), _variant(gpu.device)
        path = model.path
        if path.suffix != ".engine":
            batch = EngineOptions().batch if model.batch is None else (model.batch,) * 3
            spec = EngineSpec(model=model, options=EngineOptions(batch=batch), variant=variant, gpu=device)
            path, _ = obtain(spec)
        plan, sidecar = load_plan(path)
        check_machine(path, sidecar, variant, device)
        kernels = path.with_suffix(f".sm{device.capability[0]}{device.capability[1]}.kernels")
        self._model = model
        self._session = EngineSession(plan, sidecar, gpu.device, gpu.stream, kernels)
        count = config.batch_size or 1
        shape = (count, *self._session.output.shape[2:])
        self._masks = torch.empty(shape, dtype=torch.float32, device=gpu.device)
        wanted = wants_class_map(model, config)
        self._class_map = torch.empty(shape, dtype=torch.uint8, device=gpu.device) if wanted else None

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        device = _device(config)
        return f"{_variant(device)}, {_gpu(device)}, engine"

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def __call__(self, tensor: torch.Tensor) -> InferenceResult:
        session, class_map = self._session, self._class_map
        with torch.cuda.stream(session.stream):
            for begin in range(0, len(tensor), session.largest):
                part = tensor[begin : begin + session.largest]
                session.input[: len(part)].copy_(part)
                session.run(len(part))
                masks = probabilities(session.output[: len(part)], self._model)
                self._masks[begin : begin + len(part)].copy_(masks)
                if class_map is not None:
                    class_map[begin : begin + len(part)].copy_(likeliest(session.output[: len(part)], self._model))
            masks = self._masks[: len(tensor)]
            return InferenceResult(masks, None if class_map is None else class_map[: len(tensor)].clone())


def _device(config: Config) -> torch.device:
    """Returns the CUDA device. Raises `BackendError` if PyTorch has no such device."""
    device = torch.device(config.device or "cuda:0")
    if device.type != "cuda":
        raise BackendError(f"device {config.device}: TensorRT runs on an NVIDIA GPU; use --device cuda:0")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (device.index or 0) >= count:
        raise BackendError(f"TensorRT needs an NVIDIA GPU, PyTorch sees {count}; use --infer onnxruntime or torch")
    return torch.device("cuda", device.index or 0)


def _gpu(device: torch.device) -> GpuInfo:
    """Returns the driver's description of a GPU that PyTorch uses."""
    gpu = find_gpu(device.index)
    assert gpu is not None, "PyTorch uses this GPU, so the driver has it"
    return gpu


def _variant(device: torch.device) -> Variant:
    """Returns the variant that serves the GPU. Raises `BackendError` if none does."""
    return choose(_gpu(device), installed())
