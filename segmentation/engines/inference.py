"""Inference with TensorRT or TensorRT-RTX, whichever serves the GPU."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import torch

from segmentation.engines.ready import ready_spec
from segmentation.engines.session import EngineSession
from segmentation.engines.spec import EngineOptions, EngineSpec, check_machine
from segmentation.engines.variant import LEAN, Variant, choose, installed
from segmentation.engines.verdict import BEGUN, DECLINED, PROVEN, Verdict, VerdictFile
from segmentation.errors import BackendError, EngineError, NotProven
from segmentation.frames import Memory, VideoInfo
from segmentation.gpu.capture_lock import capture_unsafe
from segmentation.gpu.discovery import require_gpu
from segmentation.models.model import ENGINE, Model
from segmentation.models.sidecar import load_plan
from segmentation.options.config import Config
from segmentation.stages.inference import Inference, InferenceResult, asked_for, wants_class_map
from segmentation.stages.inference.compiler.onnx_to_torch import likeliest, probabilities
from segmentation.stages.inference.torch_fp16 import TorchFp16Inference

if TYPE_CHECKING:
    from segmentation.engines.trial import Measured, Pictures
    from segmentation.gpu.context import Gpu  # imports libraries that loading a network does not need

_SECONDS, _CALLS = 0.5, 10  # that a network is timed for at least, and batches that are queued at once for that


class TensorRTInference(Inference):
    """See `segmentation.stages.inference`. The next call overwrites the masks that were returned.

    All runs share the engine's session. The states of a recurrent network are copied to it and back for each batch.

    An engine is built from an ONNX, and found by the next run; see `segmentation.engines.build`. Before it serves, it
    goes through a trial, see `trial.py`.
    """

    memory: ClassVar[Memory] = "cuda"
    workers = 1  # one stream; the network itself fills the GPU

    def __init__(self, model: Model, config: Config, gpu: Gpu, preloaded: None = None) -> None:
        self._model = model
        if model.path.suffix == ENGINE:  # there is no ONNX to compare it with
            self._load(model.path, config, gpu)
            return
        path = self._proven(model, config, gpu)
        try:
            self._load(path, config, gpu)
        except (BackendError, EngineError) as exc:
            raise NotProven(str(exc)) from exc

    def _load(self, path: Path, config: Config, gpu: Gpu) -> None:
        """Loads the engine at `path`. Raises `EngineError`."""
        device = require_gpu(gpu.device.index)
        plan, sidecar = load_plan(path)
        check_machine(path, sidecar, _variant(gpu.device), device)
        kernels = path.with_suffix(f".sm{device.capability[0]}{device.capability[1]}.kernels")
        self._session = EngineSession(plan, sidecar, gpu.device, gpu.stream, kernels)
        count = config.batch_size or 1
        shape = (count, *self._session.output.shape[2:])
        self._masks = torch.empty(shape, dtype=torch.float32, device=gpu.device)
        wanted = wants_class_map(self._model, config)
        self._class_map = torch.empty(shape, dtype=torch.uint8, device=gpu.device) if wanted else None
        self._states: list[torch.Tensor] | None = None  # of this run, behind its last frame

    @classmethod
    def _proven(cls, model: Model, config: Config, gpu: Gpu) -> Path:
        """Returns the engine of an ONNX after its trial, of this start or an earlier one. Raises `NotProven`."""
        spec, batch = _spec(model, gpu.device), config.batch_size or 1
        file = VerdictFile(spec, batch)
        verdict = file.read()
        if verdict is None or verdict.outcome == BEGUN:
            from segmentation.engines.trial import try_engine  # imports `onnx`, which takes a second

            config = replace(config, compile=False)

            def engine(path: Path, pictures: Pictures) -> Measured:
                return _measured(lambda: cls(replace(model, path=path), config, gpu), pictures, batch, gpu)

            def rival(pictures: Pictures) -> Measured:
                return _measured(lambda: TorchFp16Inference(model, config, gpu), pictures, batch, gpu)

            verdict = try_engine(spec, batch, engine, rival)
        _check(verdict, file, config)
        return file.engine

    @classmethod
    def known(cls, model: Model, config: Config) -> str:
        if model.path.suffix == ENGINE:
            return ""
        file = VerdictFile(_spec(model, _device(config)), config.batch_size or 1)
        verdict = file.read()
        if verdict is None or verdict.outcome == BEGUN:
            return "has its trial at the first use"
        _check(verdict, file, config)
        return str(verdict)

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        device = _device(config)
        return f"{_variant(device)}, {require_gpu(device.index)}, engine"

    def for_run(self) -> Inference:
        fresh = copy(self)
        fresh._states = None
        return fresh

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def __call__(self, tensor: torch.Tensor) -> InferenceResult:
        session, class_map = self._session, self._class_map
        with torch.cuda.stream(session.stream):
            self._resume()
            for begin in range(0, len(tensor), session.largest):
                part = tensor[begin : begin + session.largest]
                session.input[: len(part)].copy_(part)
                session.run(len(part))
                probabilities(session.output[: len(part)], self._model, self._masks[begin : begin + len(part)])
                if class_map is not None:
                    class_map[begin : begin + len(part)].copy_(likeliest(session.output[: len(part)], self._model))
            self._states = [state.clone() for state in session.states]
            masks = self._masks[: len(tensor)]
            return InferenceResult(masks, None if class_map is None else class_map[: len(tensor)].clone())

    def _resume(self) -> None:
        """Gives the session the states that this run's last frame has left. The session's stream is current."""
        if self._states is None:
            self._session.reset()
            return
        for state, kept in zip(self._session.states, self._states, strict=True):
            state.copy_(kept)


def _measured(load: Callable[[], Inference], pictures: Pictures, batch: int, gpu: Gpu) -> Measured:
    """Loads a network, runs `pictures` (N, 3, H, W) in batches, times whole batches and frees the network."""
    from segmentation.engines.trial import Measured

    network = load()
    try:
        with torch.inference_mode(), torch.cuda.stream(gpu.stream):
            parts = (torch.from_numpy(pictures[i : i + batch]) for i in range(0, len(pictures), batch))
            found = [torch.as_tensor(network(part.to(gpu.device)).masks)[: len(part)].clone() for part in parts]
            masks = torch.cat(found).cpu().numpy()
            return Measured(masks, _milliseconds(network, torch.from_numpy(pictures[:batch]).to(gpu.device), gpu))
    finally:
        with capture_unsafe():
            del network
            torch.cuda.empty_cache()  # TensorRT's memory does not come from PyTorch


def _milliseconds(network: Inference, given: torch.Tensor, gpu: Gpu) -> float:
    """Returns the time for a batch, the best of several: other work on the GPU only adds to it."""
    begin, best = time.perf_counter(), math.inf
    while time.perf_counter() - begin < _SECONDS:
        first = time.perf_counter()
        for _ in range(_CALLS):
            network(given)
        gpu.record_event().synchronize()
        best = min(best, (time.perf_counter() - first) / _CALLS)
    return best * 1000


def _check(verdict: Verdict, file: VerdictFile, config: Config) -> None:
    """Raises `NotProven` if the engine is not to serve: one that is merely no better serves whoever asks for it."""
    if verdict.outcome != PROVEN and not (verdict.outcome == DECLINED and asked_for(config)):
        raise file.refusal(verdict)


def _spec(model: Model, device: torch.device) -> EngineSpec:
    """Returns the specification of the engine for a model. Raises `BackendError` where none can be."""
    options = (EngineOptions() if model.batch is None else EngineOptions(batch=(model.batch,) * 3)).of(model)
    variant, gpu = _variant(device), require_gpu(device.index)
    if variant.module == LEAN:
        return ready_spec(model, options, gpu)
    return EngineSpec(model=model, options=options, variant=variant, gpu=gpu)


def _device(config: Config) -> torch.device:
    """Returns the CUDA device. Raises `BackendError` if PyTorch has no such device."""
    device = torch.device(config.device or "cuda:0")
    if device.type != "cuda":
        raise BackendError(f"device {config.device}: TensorRT runs on an NVIDIA GPU; use --device cuda:0")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (device.index or 0) >= count:
        raise BackendError(f"TensorRT needs an NVIDIA GPU, PyTorch sees {count}; use --infer onnxruntime or torch")
    return torch.device("cuda", device.index or 0)


def _variant(device: torch.device) -> Variant:
    """Returns the variant that serves the GPU. Raises `BackendError` if none does."""
    return choose(require_gpu(device.index), installed())
