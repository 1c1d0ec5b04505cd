"""Inference with OpenVINO: on CPUs in FP32, on other devices in the one that OpenVINO chooses.

On CPUs with BF16 that would be BF16, whose 8 bits of each factor move masks by more than is allowed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import openvino
from numpy.typing import NDArray

from segmentation.errors import BackendError
from segmentation.frames import VideoInfo
from segmentation.models.model import Model
from segmentation.models.tensor_form import Session
from segmentation.options.config import Config
from segmentation.stages.inference.onnxruntime import frame_a_thread
from segmentation.stages.inference.processors import ProcessorInference

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu


class OpenVinoInference(ProcessorInference):
    """See `segmentation.stages.inference`. Takes and returns NumPy arrays. Each thread works on a frame of its own."""

    def __init__(self, model: Model, config: Config, gpu: Gpu | None = None, preloaded: object = None) -> None:
        super().__init__(model, config, gpu, preloaded)
        self.workers = self._network.workers

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        device, core = _device(config), openvino.Core()
        if device not in core.available_devices:
            there = ", ".join(core.available_devices)
            raise BackendError(f"OpenVINO {_version()} finds no {device} here, but {there}")
        name = core.get_property(device, "FULL_DEVICE_NAME")
        precision = "FP32" if device == "CPU" else _precision(core, device)
        return f"OpenVINO {_version()}, {device} ({name}), {precision}"

    @classmethod
    def _open(cls, model: Model, config: Config) -> Session:
        return _Session(model, _device(config))


class _Session:
    """A compiled network with the call of ONNX Runtime's sessions."""

    def __init__(self, model: Model, device: str) -> None:
        core = openvino.Core()
        threads = 1 if model.form.recurrent else frame_a_thread()[0]
        options: dict[str, object] = {}
        if device == "CPU":
            options = {"NUM_STREAMS": threads, "INFERENCE_NUM_THREADS": frame_a_thread()[0]}
            options |= {"INFERENCE_PRECISION_HINT": openvino.Type.f32}
        self._network = core.compile_model(core.read_model(model.path), device, options)
        self._threads = threading.local()  # a request computes one picture at a time

    def run(self, outputs: Sequence[str], inputs: Mapping[str, NDArray[np.generic]]) -> Sequence[NDArray[np.generic]]:
        if not hasattr(self._threads, "request"):
            self._threads.request = self._network.create_infer_request()
        request = self._threads.request
        request.infer(dict(inputs), share_inputs=True)
        return [np.array(request.get_tensor(name).data) for name in outputs]


def _device(config: Config) -> str:
    """Returns OpenVINO's name of the device."""
    return (config.device or "").partition(":")[2] or "CPU"


def _precision(core: openvino.Core, device: str) -> str:
    """Returns the precision in which OpenVINO computes on a device, such as "FP32"."""
    found: str = core.get_property(device, "INFERENCE_PRECISION_HINT").to_string()
    return {"f32": "FP32", "f16": "FP16", "bf16": "BF16"}.get(found, found)


def _version() -> str:
    return str(openvino.__version__).partition("-")[0]
