"""Engines for machines without TensorRT: ONNX Runtime makes their scores, spoiled in each way in which they may be."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmentation import BackendError, Config, EngineError
from segmentation.engines.build import trust
from segmentation.engines.spec import EngineOptions, EngineSpec
from segmentation.engines.trial import Measured
from segmentation.engines.variant import Variant
from segmentation.gpu.discovery import GpuInfo
from segmentation.models.graph.onnx_graph import prepare
from segmentation.models.model import Model
from segmentation.models.sidecar import load_plan, read_sidecar, write_engine
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference
from segmentation.system.cache import engine_folder

ADA = GpuInfo("NVIDIA GeForce RTX 4090", (8, 9))
RTX = Variant("tensorrt_rtx", "1.7.1.116")

Spoil = Callable[[NDArray[np.float32]], NDArray[np.float32]]  # of scores (N, C, h, w)


def without(part: float) -> Spoil:
    """Takes this part of the mask away."""

    def spoil(scores: NDArray[np.float32]) -> NDArray[np.float32]:
        spoiled = scores.copy()
        flat = spoiled[:, -1].copy()
        kept = np.flatnonzero(flat > 0.5)
        flat.flat[kept[: int(part * len(kept))]] = 0
        spoiled[:, -1] = flat
        return spoiled

    return spoil


# By the way in which the engine fails, or does not.
SPOILS: dict[str, Spoil] = {
    "right": lambda scores: scores,
    "nearly right": without(0.004),
    "NaN": lambda scores: scores * np.nan,
    "one NaN": lambda scores: np.where(np.arange(scores.size).reshape(scores.shape) == scores.size - 1, np.nan, scores),
    "zeros": np.zeros_like,
    "slightly off": without(0.01),
    "mixed up": lambda scores: scores[::-1],
}
RAISES: dict[str, Callable[[], BaseException]] = {
    "load": lambda: EngineError("the engine can't be loaded"),
    "run": lambda: RuntimeError("IExecutionContext::enqueueV3: Error Code 1:\nMyelin"),
    "fault": lambda: RuntimeError("CUDA error: an illegal memory access was encountered"),
    "assertion": AssertionError,
    "memory": lambda: RuntimeError("CUDA out of memory"),
    "interrupt": KeyboardInterrupt,
    "runtime": lambda: BackendError("the lean runtime is missing"),
}


def spec_of(model: Model, gpu: GpuInfo = ADA, **options: Any) -> EngineSpec:
    """Returns the specification of an engine as inference would have it, for a machine that is not this one."""
    return EngineSpec(model=model, options=EngineOptions(**options), variant=RTX, gpu=gpu)


def place(spec: EngineSpec) -> Path:
    """Puts an engine where the program looks for it. Its plan is the ONNX graph, and its sidecar a real one."""
    path = engine_folder() / spec.file_name
    path.parent.mkdir(parents=True, exist_ok=True)
    plan = prepare(spec.model, spec.options.fixed_batch).SerializeToString()
    path.write_bytes(plan)
    trust(path, spec)
    write_engine(path, plan, replace(read_sidecar(path), fingerprint=spec.fingerprint))
    return path


class Engine:
    """Loads and runs an engine for a trial, which takes this long for a batch."""

    def __init__(self, model: Model, way: str = "right", milliseconds: float = 1.0) -> None:
        self._model, self._way, self._milliseconds = model, way, milliseconds
        self.calls = 0

    def __call__(self, path: Path, pictures: NDArray[np.floating]) -> Measured:
        self.calls += 1
        load_plan(path)
        if self._way in RAISES:
            raise RAISES[self._way]()
        masks = OnnxRuntimeInference(self._model, Config())(pictures).masks
        if self._way == "another size":
            return Measured(masks[:, 1:], self._milliseconds)
        return Measured(SPOILS[self._way](masks[:, None])[:, 0], self._milliseconds)


class Rival:
    """Runs torch-fp16 for a trial, which takes this long for a batch; else raises the error."""

    def __init__(self, milliseconds: float | Exception = 1.0) -> None:
        self._milliseconds = milliseconds
        self.calls = 0

    def __call__(self, pictures: NDArray[np.floating]) -> Measured:
        self.calls += 1
        if isinstance(self._milliseconds, Exception):
            raise self._milliseconds
        return Measured(np.zeros((len(pictures), 1, 1), np.float32), self._milliseconds)
