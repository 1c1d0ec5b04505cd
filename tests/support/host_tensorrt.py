"""Inference with TensorRT's own class in host memory, for tests of the pipeline on machines without a GPU.

Needs PyTorch. The engine's session is a stand-in: its plan is the ONNX graph, which ONNX Runtime runs.
"""

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
import torch
from host_kernels import HostGpu

from engines import ADA, RAISES, RTX, SPOILS
from segmentation import Config
from segmentation.engines import inference as tensorrt
from segmentation.engines import trial
from segmentation.engines.inference import TensorRTInference
from segmentation.models.graph.onnx_graph import session_of
from segmentation.models.model import Model
from segmentation.models.sidecar import Sidecar
from segmentation.pipeline.planning import plan
from segmentation.pipeline.planning.implementations import IMPLEMENTATIONS
from segmentation.stages.inference import InferenceResult
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference


class StandInSession:
    """Stands for `EngineSession`, and fails in one way."""

    way: ClassVar[str] = "right"
    loads: ClassVar[list[str]] = []

    def __init__(self, plan: bytes, sidecar: Sidecar, device: torch.device, stream: Any, kernels: Path | None) -> None:
        self.loads.append(self.way)
        if self.way == "load":
            raise RAISES[self.way]()
        self._session, self._sidecar = session_of(onnx.load_from_string(plan)), sidecar
        self.largest, self.stream = sidecar.batch[2], stream
        self.states = [
            torch.zeros(state["shape"], dtype=getattr(torch, state["dtype"]), device=device) for state in sidecar.states
        ]
        self.input, self.output = (
            torch.zeros((self.largest, *tensor["shape"][1:]), dtype=getattr(torch, tensor["dtype"]), device=device)
            for tensor in (sidecar.input, sidecar.output)
        )

    def reset(self) -> None:
        for state in self.states:
            state.zero_()

    def run(self, count: int) -> None:
        if self.way in RAISES:
            raise RAISES[self.way]()
        if self.way == "memory above 2" and count > 2:
            raise RAISES["memory"]()
        if self.way == "slow":
            time.sleep(0.2)
        sidecar = self._sidecar
        carried = {spec["name"]: one.cpu().numpy() for spec, one in zip(sidecar.states, self.states, strict=True)}
        names = [sidecar.output["name"], *(spec["source"] for spec in sidecar.states)]
        given = {sidecar.input["name"]: self.input[:count].cpu().numpy(), **carried}
        scores, *left = map(np.asarray, self._session.run(names, given))
        if self.way != "forgets":
            for state, new in zip(self.states, left, strict=True):
                state.copy_(torch.from_numpy(new))
        spoiled = SPOILS.get(self.way, SPOILS["right"])(np.asarray(scores, np.float32))
        self.output[:count] = torch.from_numpy(spoiled.copy())


class HostTensorRT(TensorRTInference):
    """TensorRT's class between NumPy arrays."""

    memory = "host"

    def __init__(self, model: Model, config: Config, gpu: Any = None, preloaded: None = None) -> None:
        super().__init__(model, config, gpu or HostGpu(), preloaded)

    def __call__(self, tensor: Any) -> InferenceResult:
        masks, class_map, _ = super().__call__(torch.as_tensor(tensor))
        return InferenceResult(masks.numpy().copy(), None if class_map is None else class_map.numpy())


class HostTorchFp16(OnnxRuntimeInference):
    """Stands for `TorchFp16Inference`."""

    workers = 1

    def __call__(self, tensor: Any) -> InferenceResult:
        return super().__call__(np.asarray(tensor))


class Rival(HostTorchFp16):
    """Takes its time in a trial, so that only a slow engine takes longer, however busy this machine is."""

    def __call__(self, tensor: Any) -> InferenceResult:
        time.sleep(0.1)
        return super().__call__(tensor)


def machine(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Makes this machine one with a GPU that TensorRT serves, as far as inference goes, whose engines fail that way."""
    monkeypatch.setattr(StandInSession, "way", way)
    monkeypatch.setattr(StandInSession, "loads", [])
    if way != "slow":  # no engine is slow for want of a processor
        monkeypatch.setattr(trial, "_MARGIN", math.inf)
    for name, value in {
        "EngineSession": StandInSession,
        "TorchFp16Inference": Rival,
        "require_gpu": lambda index: ADA,
        "_variant": lambda device: RTX,
        "_device": lambda config: torch.device("cpu"),
        "_SECONDS": 0.01,
        "_CALLS": 1,
    }.items():
        monkeypatch.setattr(tensorrt, name, value)
    for name, value in {
        "find_gpu": lambda index=0: ADA,
        "device_index": lambda config: 0,
        "installed": lambda: {RTX.module: RTX.version},
        "require_torch": lambda: None,
    }.items():
        monkeypatch.setattr(plan, name, value)
    for name, place in (("tensorrt", "HostTensorRT"), ("torch-fp16", "HostTorchFp16")):
        one = replace(IMPLEMENTATIONS["infer"][name], place=f"host_tensorrt:{place}")
        monkeypatch.setitem(IMPLEMENTATIONS["infer"], name, one)
