"""Runs an engine with TensorRT or TensorRT-RTX. Device memory and streams are PyTorch's.

Work queued on the stream neither waits nor allocates once a batch size has been run: the first run of a size sets the
shapes and captures the CUDA graph.
"""

import logging
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from segmentation.engines.ready import lean_library
from segmentation.engines.variant import LEAN, TITLES, installed, logger, release
from segmentation.errors import BackendError, EngineError, one_line
from segmentation.gpu.capture_lock import capturing
from segmentation.gpu.errors import translate_gpu_error
from segmentation.models.sidecar import Sidecar, TensorSpec
from segmentation.stages.inference.compiler.cuda_graph import own_stream
from segmentation.system.atomic_file import write_atomically

log = logging.getLogger(__name__)

_PACKAGES = {"tensorrt": "tensorrt-cu13", "tensorrt_rtx": "tensorrt-rtx", LEAN: "tensorrt-lean-cu13"}
_OLDEST_PLANS = {10: 8}  # major versions: 10 runs plans from 8.6 on, each later one those of the one before


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The execution of one batch size: a context whose shapes are set, and its CUDA graph if one could be captured."""

    context: Any  # IExecutionContext
    graph: torch.cuda.CUDAGraph | None


class EngineSession:
    """An engine on one stream, with buffers for its largest batch.

    `input` and `output` are CUDA tensors (largest, ...) that stay in place. On `stream`, write the first pictures of
    `input`, call `run`, and read as many of `output`. `states` are CUDA tensors likewise, for the next frame of a
    recurrent network: `run` writes them, and so may the caller between two frames.
    """

    def __init__(
        self, plan: bytes, sidecar: Sidecar, device: torch.device, stream: torch.cuda.Stream, kernels: Path | None
    ) -> None:
        """Loads a plan. `kernels` is the file for kernels that TensorRT-RTX compiles for this GPU, if any.

        Raises `EngineError` if the plan can't be loaded or its tensors are not those of the sidecar. Raises
        `BackendError` if what runs it is not installed.
        """
        # The lean runtime alone runs version-compatible plans without host code.
        module = LEAN if sidecar.ingredients["options"]["version_compatible"] else sidecar.variant
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
        self._own = own_stream(device)
        self._prepared: dict[int, _Prepared] = {}
        messages = logger(self._trt)
        messages.errors.clear()
        self._runtime = self._trt.Runtime(messages)
        if module == LEAN:
            self._load_runtime(sidecar.variant_version)
        self._engine = self._runtime.deserialize_cuda_engine(plan)
        if self._engine is None:
            reason = messages.errors[-1] if messages.errors else "it gave no reason"
            raise translate_gpu_error(RuntimeError(reason)) or EngineError(
                f"the engine can't be loaded by {sidecar.variant} {sidecar.variant_version} on this GPU "
                f"({one_line(reason)}); build it again here"
            )
        self._compare_with(sidecar)
        self.input, self.output = (
            self._buffer([self.largest, *tensor["shape"][1:]], tensor) for tensor in (sidecar.input, sidecar.output)
        )
        self._state_specs = sidecar.states
        with torch.cuda.stream(stream):  # an output may not be written where an input is read
            self.states, self._next_states = (
                [self._buffer(state["shape"], state) for state in sidecar.states] for _ in range(2)
            )
        self._cache: Any = None  # IRuntimeCache: kernels that TensorRT-RTX compiled for this GPU

    def _load_runtime(self, version: str) -> None:
        """Takes the lean runtime of a plan's version, which a newer one loads. Raises `BackendError`."""
        here = installed()[LEAN]
        plan, own = release(version), release(here)
        if plan == own:
            return
        if plan > own or plan[0] < _OLDEST_PLANS.get(own[0], own[0] - 1):  # TensorRT 11 crashes of plans of 8.6
            raise BackendError(f"the engine was built by TensorRT {version}, and {TITLES[LEAN]} {here} runs none of it")
        library, loader = lean_library(version), _loader(self._trt)
        self._runtime = loader.load_runtime(str(library))
        if self._runtime is None:
            raise BackendError(f"{library}: can't be loaded by {TITLES[LEAN]} {here}, so the engine can't be run")

    def run(self, count: int) -> None:
        """Queues the network for the first `count` pictures of `input`, at most `largest`. Raises `EngineError`."""
        size = max(count, self._least)  # pictures behind `count` are computed too, and not read
        prepared = self._prepared.get(size)
        if prepared is None:
            prepared = self._prepared[size] = self._prepare(size)
        if prepared.graph is not None:
            with torch.cuda.stream(self.stream):
                prepared.graph.replay()
        else:
            self._execute(prepared.context)

    def reset(self) -> None:
        """Makes all states those of a first frame."""
        with torch.cuda.stream(self.stream):
            for state in self.states:
                state.zero_()

    def _prepare(self, size: int) -> _Prepared:
        """Runs a new batch size once and captures it. Each size has a context, because a graph uses its memory."""
        context = self._context(size)
        self._execute(context, advance=False)  # the first run loads kernels, which can't be captured
        self.stream.synchronize()
        if self._rtx:  # captures by itself, see `_rtx_context`
            self._keep_kernels()
            return _Prepared(context, None)
        graph = torch.cuda.CUDAGraph()
        try:
            # With the default mode, a decoder that allocates memory on another thread would end the capture.
            with capturing(), torch.cuda.graph(graph, stream=self._own, capture_error_mode="thread_local"):
                self._execute(context, captured=True)
        except (RuntimeError, EngineError) as exc:
            log.info("batch %d: the engine can't be captured as a CUDA graph (%s)", size, one_line(exc))
            return _Prepared(self._context(size), None)
        return _Prepared(context, graph)

    def _execute(self, context: Any, *, captured: bool = False, advance: bool = True) -> None:
        """Queues an IExecutionContext, as if on `stream`. Raises `EngineError`, or `DeviceError` if the GPU failed.

        It goes to the engine's own stream: what other threads queue on `stream` meanwhile would get into the graph. To
        `advance`, the new states are copied to where the next frame reads them.
        """
        if not captured:
            self._own.wait_stream(self.stream)
        if not context.execute_async_v3(self._own.cuda_stream):
            errors = logger(self._trt).errors
            reason = RuntimeError(errors[-1] if errors else "no reason given")
            raise translate_gpu_error(reason) or EngineError(f"the engine does not run ({one_line(reason)})")
        if advance:
            with torch.cuda.stream(self._own):
                for state, new in zip(self.states, self._next_states, strict=True):
                    state.copy_(new)
        if not captured:
            self.stream.wait_stream(self._own)

    def _context(self, size: int) -> Any:
        """Returns an IExecutionContext for batches of `size`, bound to the buffers. Raises `EngineError`."""
        context = self._rtx_context() if self._rtx else self._engine.create_execution_context()
        if context is None:
            raise EngineError("the engine does not fit into the GPU's memory; build it with a smaller --batch")
        shape = (size, *self.input.shape[1:])
        if not context.set_input_shape(self._input_name, shape):
            raise EngineError(f"the engine does not take an input of {shape}; build it again with a larger --batch")
        context.set_tensor_address(self._input_name, self.input.data_ptr())
        context.set_tensor_address(self._output_name, self.output.data_ptr())
        for spec, state, new in zip(self._state_specs, self.states, self._next_states, strict=True):
            context.set_tensor_address(spec["name"], state.data_ptr())
            context.set_tensor_address(spec["source"], new.data_ptr())
        return context

    def _rtx_context(self) -> Any:
        """Returns a context of TensorRT-RTX, which compiles kernels for this GPU and captures CUDA graphs by itself."""
        config = self._engine.create_runtime_config()
        if self._cache is None:
            self._cache = config.create_runtime_cache()
            if self._kernels is not None and self._kernels.is_file():
                self._cache.deserialize(self._kernels.read_bytes())
        config.set_runtime_cache(self._cache)
        config.cuda_graph_strategy = self._trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
        return self._engine.create_execution_context(config)

    def _keep_kernels(self) -> None:
        """Writes the kernels that TensorRT-RTX compiled. Without the file, the next start only takes longer."""
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
        for state in sidecar.states:
            wanted |= {state["name"]: (mode.INPUT, state["shape"]), state["source"]: (mode.OUTPUT, state["shape"])}
        names = [self._engine.get_tensor_name(i) for i in range(self._engine.num_io_tensors)]
        found = {n: (self._engine.get_tensor_mode(n), list(self._engine.get_tensor_shape(n))) for n in names}
        if found != wanted:
            raise EngineError(f"the engine's tensors are {found}, its sidecar says {wanted}; build it again")

    def _buffer(self, shape: list[int], tensor: TensorSpec) -> torch.Tensor:
        """Returns memory of a shape for an input or output."""
        return torch.zeros(shape, dtype=getattr(torch, tensor["dtype"]), device=self._device)


@cache
def _loader(trt: ModuleType) -> Any:
    """Returns the runtime that loads others. It is the process's: what it has loaded must not outlive it."""
    return trt.Runtime(logger(trt))


def run_plan(plan: bytes, sidecar: Sidecar, pictures: NDArray[np.floating]) -> NDArray[np.float32]:
    """Runs a plan on the current GPU and returns its scores (N, C, h, w) for `pictures` (N, 3, H, W).

    Raises `EngineError` if the plan can't be loaded or does not run.
    """
    device = torch.device("cuda", torch.cuda.current_device())
    session = EngineSession(plan, sidecar, device, torch.cuda.Stream(device), None)
    parts = []
    with torch.cuda.stream(session.stream), torch.inference_mode():
        for begin in range(0, len(pictures), session.largest):
            part = torch.from_numpy(pictures[begin : begin + session.largest])
            session.input[: len(part)].copy_(part)
            session.run(len(part))
            parts.append(session.output[: len(part)].float().cpu().numpy())
    return np.concatenate(parts)
