"""Inference with TensorRT or TensorRT-RTX, whichever serves the GPU. Device memory and streams are PyTorch's.

What is queued on the stream does not wait, and allocates nothing once a batch size has been seen: shapes are set and
the CUDA graph is captured when it first comes.
"""

import logging
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from segmentation.atomic_file import write_atomically
from segmentation.config import Config
from segmentation.errors import BackendError, EngineError, one_line
from segmentation.frames import Memory, VideoInfo
from segmentation.gpu.context import Gpu
from segmentation.gpu.discovery import GpuInfo, find_gpu
from segmentation.gpu.errors import translate_gpu_error
from segmentation.models.model import Model
from segmentation.models.sidecar import Sidecar, load_plan
from segmentation.stages.inference import Inference, InferenceResult, wants_class_map
from segmentation.stages.inference.onnx_to_torch import likeliest, probabilities
from segmentation.tensorrt.build import obtain
from segmentation.tensorrt.spec import EngineOptions, EngineSpec, check_machine
from segmentation.tensorrt.variant import Variant, choose, installed, logger

log = logging.getLogger(__name__)

_PACKAGES = {"tensorrt": "tensorrt-cu13", "tensorrt_rtx": "tensorrt-rtx", "tensorrt_lean": "tensorrt-lean-cu13"}


@dataclass(frozen=True, slots=True)
class _Step:
    """One batch size: a context whose shapes are set, and its CUDA graph if it could be captured."""

    context: Any
    graph: torch.cuda.CUDAGraph | None


class Network:
    """An engine on one stream, with buffers for its largest batch.

    `input` and `output` are CUDA tensors (largest, ...) that are made once; write the first pictures of `input` on
    `stream`, call `run`, read as many of `output` on `stream`. Raises `EngineError` if the plan can't be loaded or is
    not what its sidecar says.
    """

    def __init__(
        self, plan: bytes, sidecar: Sidecar, device: torch.device, stream: torch.cuda.Stream, kernels: Path | None
    ) -> None:
        lean = bool(sidecar.ingredients["options"]["version_compatible"])  # other versions' plans run on that alone
        module = "tensorrt_lean" if lean else sidecar.variant
        try:
            self._trt: Any = import_module(module)
        except ImportError as exc:
            raise BackendError(
                f"{module}, which runs this engine, is not installed: pip install {_PACKAGES[module]}"
            ) from exc
        self._rtx = sidecar.variant == "tensorrt_rtx"
        self._least, _, self.largest = sidecar.batch
        self._input_name, self._output_name = sidecar.input["name"], sidecar.output["name"]
        self._kernels = kernels
        self._device, self.stream = device, stream
        self._steps: dict[int, _Step] = {}
        messages = logger(self._trt)
        messages.errors.clear()
        self._runtime = self._trt.Runtime(messages)
        self._engine = self._runtime.deserialize_cuda_engine(plan)
        if self._engine is None:
            reason = messages.errors[-1] if messages.errors else "it gave no reason"
            raise translate_gpu_error(RuntimeError(reason)) or EngineError(
                f"the engine can't be loaded by {sidecar.variant} {sidecar.variant_version} on this GPU "
                f"({one_line(reason)}); build it again here"
            )
        self._compare_with(sidecar)
        self.input = self._buffer(sidecar.input)
        self.output = self._buffer(sidecar.output)
        self._cache: Any = None  # of TensorRT-RTX: the kernels that it compiled for this GPU

    def run(self, count: int) -> None:
        """Queues the network for the first `count` pictures of `input`, at most `largest`."""
        size = max(count, self._least)  # what lies in the buffer behind them is computed too, and not read
        step = self._steps.get(size)
        if step is None:
            step = self._steps[size] = self._prepare(size)
        if step.graph is not None:
            with torch.cuda.stream(self.stream):
                step.graph.replay()
        else:
            self._execute(step.context)

    def _prepare(self, size: int) -> _Step:
        """Runs once and captures. A context each: a graph holds on to the memory of its context."""
        context = self._context(size)
        self._execute(context)  # loads what is loaded lazily, which can't be captured
        self.stream.synchronize()
        if self._rtx:  # captures by itself, see `_rtx_context`
            self._keep_kernels()
            return _Step(context, None)
        graph = torch.cuda.CUDAGraph()
        try:
            # The mode leaves other threads' work alone: decoders allocate when they please.
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                self._execute(context)
        except (RuntimeError, EngineError) as exc:
            log.info("batch %d: the engine can't be captured as a CUDA graph (%s)", size, one_line(exc))
            return _Step(self._context(size), None)
        return _Step(context, graph)

    def _execute(self, context: Any) -> None:
        if not context.execute_async_v3(self.stream.cuda_stream):
            errors = logger(self._trt).errors
            reason = RuntimeError(errors[-1] if errors else "no reason given")
            raise translate_gpu_error(reason) or EngineError(f"the engine does not run ({one_line(reason)})")

    def _context(self, size: int) -> Any:
        """A context for batches of `size`, bound to the buffers."""
        context = self._rtx_context() if self._rtx else self._engine.create_execution_context()
        if context is None:
            raise EngineError("the engine does not fit into the GPU's memory; build it with a smaller --batch")
        shape = (size, *self.input.shape[1:])
        if not context.set_input_shape(self._input_name, shape):
            raise EngineError(f"the engine does not take an input of {shape}; build it again with a larger --batch")
        context.set_tensor_address(self._input_name, self.input.data_ptr())
        context.set_tensor_address(self._output_name, self.output.data_ptr())
        return context

    def _rtx_context(self) -> Any:
        """TensorRT-RTX compiles kernels when they are needed: it keeps them, and knows when it can be captured."""
        config = self._engine.create_runtime_config()
        if self._cache is None:
            self._cache = config.create_runtime_cache()
            if self._kernels is not None and self._kernels.is_file():
                self._cache.deserialize(self._kernels.read_bytes())
        config.set_runtime_cache(self._cache)
        config.cuda_graph_strategy = self._trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
        return self._engine.create_execution_context(config)

    def _keep_kernels(self) -> None:
        """Writes what TensorRT-RTX compiled, for the next start; without it, that only takes longer."""
        if self._kernels is None:
            return
        try:
            write_atomically(self._kernels, bytes(self._cache.serialize()))
        except OSError as exc:
            log.warning("%s: the compiled kernels cannot be written (%s)", self._kernels, exc.strerror)

    def _compare_with(self, sidecar: Sidecar) -> None:
        """Raises `EngineError` if the engine's tensors are not those that the sidecar states."""
        mode = self._trt.TensorIOMode
        wanted = {t["name"]: (m, t["shape"]) for t, m in ((sidecar.input, mode.INPUT), (sidecar.output, mode.OUTPUT))}
        names = [self._engine.get_tensor_name(i) for i in range(self._engine.num_io_tensors)]
        found = {n: (self._engine.get_tensor_mode(n), list(self._engine.get_tensor_shape(n))) for n in names}
        if found != wanted:
            raise EngineError(f"the engine's tensors are {found}, its sidecar says {wanted}; build it again")

    def _buffer(self, tensor: dict[str, Any]) -> torch.Tensor:
        dtype = getattr(torch, tensor["dtype"])
        return torch.zeros((self.largest, *tensor["shape"][1:]), dtype=dtype, device=self._device)


class TensorRTInference(Inference):
    """See `segmentation.stages.inference`. The masks returned are written again by the next call.

    A model that is no engine yet is built into one, which the next run finds; see `segmentation.tensorrt.build`.
    """

    memory: ClassVar[Memory] = "cuda"
    workers = 1  # one stream; the network itself fills the GPU

    def __init__(self, model: Model, config: Config, gpu: Gpu, preloaded: Any = None) -> None:
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
        self._network = Network(plan, sidecar, gpu.device, gpu.stream, kernels)
        count = config.batch_size or 1
        shape = (count, *self._network.output.shape[2:])
        self._masks = torch.empty(shape, dtype=torch.float32, device=gpu.device)
        wanted = wants_class_map(model, config)
        self._class_map = torch.empty(shape, dtype=torch.uint8, device=gpu.device) if wanted else None

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        device = _device(config)
        return f"{_variant(device)}, {_gpu(device)}, engine"

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def __call__(self, tensor: torch.Tensor) -> InferenceResult:
        network, class_map = self._network, self._class_map
        with torch.cuda.stream(network.stream):
            for begin in range(0, len(tensor), network.largest):
                part = tensor[begin : begin + network.largest]
                network.input[: len(part)].copy_(part)
                network.run(len(part))
                masks = probabilities(network.output[: len(part)], self._model)
                self._masks[begin : begin + len(part)].copy_(masks)
                if class_map is not None:
                    class_map[begin : begin + len(part)].copy_(likeliest(network.output[: len(part)], self._model))
            masks = self._masks[: len(tensor)]
            return InferenceResult(masks, None if class_map is None else class_map[: len(tensor)].clone())


def run_plan(plan: bytes, sidecar: Sidecar, model: Model, pictures: NDArray[Any]) -> NDArray[np.float32]:
    """Masks (N, h, w) of a plan that has not been written yet, for pictures (N, 3, H, W), on the current GPU."""
    device = torch.device("cuda", torch.cuda.current_device())
    network = Network(plan, sidecar, device, torch.cuda.Stream(device), None)
    parts = []
    with torch.cuda.stream(network.stream), torch.inference_mode():
        for begin in range(0, len(pictures), network.largest):
            part = torch.from_numpy(pictures[begin : begin + network.largest])
            network.input[: len(part)].copy_(part)
            network.run(len(part))
            parts.append(probabilities(network.output[: len(part)], model).cpu().numpy())
    return np.concatenate(parts)


def _device(config: Config) -> torch.device:
    """The CUDA device. Raises `BackendError` if PyTorch sees none."""
    device = torch.device(config.device or "cuda:0")
    if device.type != "cuda":
        raise BackendError(f"device {config.device}: TensorRT runs on an NVIDIA GPU; use --device cuda:0")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (device.index or 0) >= count:
        raise BackendError(f"TensorRT needs an NVIDIA GPU, PyTorch sees {count}; use --infer onnxruntime or torch")
    return torch.device("cuda", device.index or 0)


def _gpu(device: torch.device) -> GpuInfo:
    gpu = find_gpu(device.index)
    assert gpu is not None, "PyTorch sees the GPU"
    return gpu


def _variant(device: torch.device) -> Variant:
    return choose(_gpu(device), installed())
