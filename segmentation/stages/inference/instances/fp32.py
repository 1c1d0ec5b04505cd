"""Networks that find single things, in PyTorch and in FP32: as the file states them, in batches of a fixed size."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch.fx import GraphModule

from segmentation.errors import BackendError, EngineError, RefusesNetwork
from segmentation.models.model import Model
from segmentation.stages.inference.compiler.onnx_to_torch import Scores, cached_network, convert
from segmentation.stages.inference.instances.proposals import READERS

_OPSET = 13  # of older ones onnx2torch lacks operators, such as Slice before 10


@dataclass(frozen=True, slots=True)
class Fp32Network:
    """A network in the memory of a GPU, with the input that it reads."""

    input: torch.Tensor  # (N, 3, H, W) in `model.dtype`
    net: GraphModule
    at_once: int  # pictures of one run of the network; N is a multiple

    def outputs(self, pictures: torch.Tensor | None = None) -> list[torch.Tensor]:
        """Returns the outputs that are read, (N, ...) each, in their order: of `input`, or of other pictures."""
        given = self.input if pictures is None else pictures
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # TF32 has 10 bits of each factor
            parts = [_listed(self.net(part)) for part in given.split(self.at_once)]
        return [torch.cat(output) if len(output) > 1 else output[0] for output in zip(*parts, strict=True)]


def check_fixed(model: Model, *more: str) -> None:
    """Raises `BackendError` for layouts whose outputs have no fixed shape, and for inputs without a batch.

    Layouts are those of `READERS`, and `more`.
    """
    assert model.detection is not None
    if model.detection.task not in (*READERS, *more):
        raise BackendError(f"{model.detection.task} returns as many things as it has found, not a fixed number")
    if model.form.single:
        raise BackendError(f"{model.name} takes one picture, not a batch")


def load_fp32(model: Model, count: int, device: torch.device) -> Fp32Network:
    """Returns the network for `count` pictures. Raises `RefusesNetwork` where PyTorch can't run it in batches.

    A network of one picture at a time gets a batch of `count` where its pictures don't change each other then. Else it
    runs `count` times.
    """
    dtype = torch.float16 if model.dtype is np.float16 else torch.float32
    given = torch.zeros((count, 3, model.height, model.width), dtype=dtype, device=device)
    if model.batch not in (None, count):
        with suppress(RefusesNetwork):
            return _in_batches_of(count, model, given)
    return _in_batches_of(model.batch or count, model, given)


def _in_batches_of(at_once: int, model: Model, given: torch.Tensor) -> Fp32Network:
    assert model.detection is not None
    names = model.detection.outputs
    origin = hashlib.sha256(model.path.read_bytes()).hexdigest(), model.form, names

    def converted() -> GraphModule:
        # Imports `onnx`, which later starts do without.
        from segmentation.models.graph.onnx_graph import at_least_opset, prepare

        try:
            graph = at_least_opset(prepare(model, at_once), _OPSET)
        except EngineError as exc:
            raise RefusesNetwork(str(exc)) from exc
        return convert(model.path, given.device, graph)

    name = f"{model.path.stem}-fp32-b{at_once}"
    return Fp32Network(given, cached_network(name, origin, given[:at_once], converted, outputs=len(names)), at_once)


def _listed(outputs: Scores) -> Sequence[torch.Tensor]:
    return [outputs] if isinstance(outputs, torch.Tensor) else outputs
