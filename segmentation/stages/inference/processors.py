"""Inference on processors besides the CPU's own implementation: ONNX Runtime's execution providers.

Pictures and masks are on the host. Before a network serves, its masks of a photograph are compared with the CPU's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from segmentation.errors import BackendError, RefusesNetwork, SegmentationError, one_line
from segmentation.frames import Memory, VideoInfo
from segmentation.gpu.discovery import device_index
from segmentation.models.graph.comparison import MIN_IOU, compare
from segmentation.models.model import Model
from segmentation.models.sample_picture import picture_inputs
from segmentation.models.tensor_form import Session
from segmentation.options.config import Config
from segmentation.stages.inference import Inference, InferenceResult
from segmentation.stages.inference.instances.onnx_instances import InstanceInference
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """An execution provider of ONNX Runtime."""

    name: str  # ONNX Runtime's
    package: str  # that has it on the Python package index
    options: Mapping[str, str] = field(default_factory=dict)
    memory_pattern: bool = True  # whether memory is planned when a shape is first seen


class ProcessorInference(Inference):
    """See `segmentation.stages.inference`. Takes and returns NumPy arrays."""

    memory: ClassVar[Memory] = "host"
    workers = 1

    def __init__(self, model: Model, config: Config, gpu: Gpu | None = None, preloaded: object = None) -> None:
        kind = OnnxRuntimeInference if model.detection is None else InstanceInference
        try:
            self._network: Inference = kind(self._shaped(model, config), config, None, self._open(model, config))
            self._check(model, config)
        except SegmentationError:
            raise
        except Exception as exc:  # the libraries' errors have no common base
            raise RefusesNetwork(f"{model.name} can't run there ({one_line(exc)})") from exc

    def __call__(self, tensor: NDArray[np.generic]) -> InferenceResult:
        return self._network(tensor)

    def for_run(self) -> Inference:
        return self._network.for_run()

    @classmethod
    @abstractmethod
    def _open(cls, model: Model, config: Config) -> Session:
        """Loads the network's file."""

    @classmethod
    def _shaped(cls, model: Model, config: Config) -> Model:
        """Returns the model in the batches in which it runs there."""
        return model

    def _check(self, model: Model, config: Config) -> None:
        """Compares the first masks with those of the CPU. Raises `RefusesNetwork` if they differ."""
        kind = OnnxRuntimeInference if model.detection is None else InstanceInference
        pictures = picture_inputs(model).astype(model.dtype)
        found, expected = (np.asarray(run(pictures).masks) for run in (self.for_run(), kind(model, config).for_run()))
        if found.shape != expected.shape:
            raise RefusesNetwork(f"its masks of {model.name} are {found.shape}, those of the CPU {expected.shape}")
        iou = compare(expected, found).iou
        if iou < MIN_IOU:
            raise RefusesNetwork(
                f"its masks of {model.name} agree with the CPU's only to an IoU of {iou:.4f} ({MIN_IOU} is needed)"
            )


class ProviderInference(ProcessorInference):
    """A network that an execution provider of ONNX Runtime runs, in the precision of its file."""

    provider: ClassVar[Provider]

    @classmethod
    def describe(cls, config: Config, info: VideoInfo | None = None) -> str:
        there = ort.get_available_providers()
        if cls.provider.name not in there:
            raise BackendError(
                f"ONNX Runtime {ort.__version__} has no {cls.provider.name} here (it has {', '.join(there)}); "
                f"install {cls.provider.package} in place of onnxruntime"
            )
        return f"ONNX Runtime {ort.__version__}, {cls.provider.name}"

    @classmethod
    def _options(cls, config: Config) -> Mapping[str, str]:
        return cls.provider.options

    @classmethod
    def _open(cls, model: Model, config: Config) -> Session:
        options = ort.SessionOptions()
        options.log_severity_level = 4  # warnings would go to stderr; errors are raised anyway
        options.enable_mem_pattern = cls.provider.memory_pattern
        given = [(cls.provider.name, dict(cls._options(config))), ("CPUExecutionProvider", {})]
        session = ort.InferenceSession(str(model.path), options, providers=given, enable_fallback=False)
        if cls.provider.name not in session.get_providers():  # ONNX Runtime falls back by itself
            raise RefusesNetwork(f"{cls.provider.name} can't be loaded, since a library of its own is missing")
        opened: Session = session
        return opened


class CudaInference(ProviderInference):
    """CUDA by ONNX Runtime, for a GPU without PyTorch."""

    provider = Provider(name="CUDAExecutionProvider", package="onnxruntime-gpu")

    @classmethod
    def describe(cls, config: Config, info: VideoInfo | None = None) -> str:
        device_index(config)
        return super().describe(config, info)

    @classmethod
    def _options(cls, config: Config) -> Mapping[str, str]:
        if hasattr(ort, "preload_dlls"):
            ort.preload_dlls()  # CUDA's libraries from NVIDIA's packages, where those are installed
        # Trying all algorithms of cuDNN takes seconds for each shape. The heuristic's may be ten times slower.
        return {"device_id": str(device_index(config)), "cudnn_conv_algo_search": "EXHAUSTIVE"}

    @classmethod
    def _shaped(cls, model: Model, config: Config) -> Model:
        """Fills up the last batch of a run, as another shape would be tried out anew."""
        return replace(model, batch=model.batch or config.batch_size or 1)


class CoreMlInference(ProviderInference):
    """Core ML on Apple's processors."""

    provider = Provider(
        name="CoreMLExecutionProvider", package="onnxruntime for macOS", options={"ModelFormat": "MLProgram"}
    )


class DirectMlInference(ProviderInference):
    """DirectML on GPUs under Windows."""

    provider = Provider(name="DmlExecutionProvider", package="onnxruntime-directml", memory_pattern=False)


class MigraphxInference(ProviderInference):
    """MIGraphX on AMD's GPUs."""

    provider = Provider(name="MIGraphXExecutionProvider", package="onnxruntime-migraphx")


class RocmInference(ProviderInference):
    """ROCm on AMD's GPUs, in ONNX Runtime before 1.23; later releases have MIGraphX alone."""

    provider = Provider(name="ROCMExecutionProvider", package="onnxruntime-rocm")
