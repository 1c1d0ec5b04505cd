"""Networks that find single things, in PyTorch, in batches of a fixed size.

Those of plain convolutions run in FP16 where that changes nothing, the others in FP32, as their files state them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch.fx import GraphModule

from segmentation.errors import BackendError, EngineError, RefusesNetwork
from segmentation.models.model import Model, detection_of
from segmentation.models.sample_picture import picture_inputs
from segmentation.stages.inference.compiler.conv_fusion import for_mirrored, fuse, kernel_sources
from segmentation.stages.inference.compiler.cuda_graph import begin_kernels_on
from segmentation.stages.inference.compiler.fp16_nodes import in_fp16
from segmentation.stages.inference.compiler.onnx_to_torch import Scores, cached_network, convert
from segmentation.stages.inference.compiler.recorded import UnrecordableError, record
from segmentation.stages.inference.instances.proposals import READERS

PRECISION = "FP16 or FP32"  # of a network that has yet to be loaded
AGREES = 0.02  # to which outputs of FP16 agree with those of FP32: as a share, or of a score or a cell of the grid
_OPSET = 13  # of older ones onnx2torch lacks operators, such as Slice before 10


@dataclass(frozen=True, slots=True)
class FixedBatch:
    """A network in the memory of a GPU, with the input that it reads."""

    input: torch.Tensor  # (N, 3, H, W) in `model.dtype`
    net: GraphModule
    at_once: int  # pictures of one run of the network; N is a multiple

    def outputs(self, pictures: torch.Tensor | None = None) -> list[torch.Tensor]:
        """Returns the outputs that are read, (N, ...) each, in their order: of `input`, or of other pictures."""
        return self._outputs_of(self.net, self.input if pictures is None else pictures)

    def mirrored(self) -> Callable[[], list[torch.Tensor]]:
        """Returns what returns the outputs of the mirrored `input`."""
        net = for_mirrored(self.net)
        if net is None:
            return lambda: self.outputs(self.input.flip(3))
        return lambda: self._outputs_of(net, self.input)

    def _outputs_of(self, net: GraphModule, given: torch.Tensor) -> list[torch.Tensor]:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # TF32 has 10 bits of each factor
            parts = [_listed(net(part)) for part in given.split(self.at_once)]
        return [torch.cat(output) if len(output) > 1 else output[0] for output in zip(*parts, strict=True)]


def check_fixed(model: Model, *more: str) -> None:
    """Raises `BackendError` for layouts whose outputs have no fixed shape, and for inputs without a batch.

    Layouts are those of `READERS`, and `more`.
    """
    task = detection_of(model).task
    if task not in (*READERS, *more):
        raise BackendError(f"{task} returns as many things as it has found, not a fixed number")
    if model.form.single:
        raise BackendError(f"{model.name} takes one picture, not a batch")


def load_network(model: Model, count: int, device: torch.device) -> FixedBatch:
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


def _in_batches_of(at_once: int, model: Model, given: torch.Tensor) -> FixedBatch:
    names = detection_of(model).outputs
    origin = hashlib.sha256(model.path.read_bytes()).hexdigest(), model.form, names

    def converted() -> GraphModule:
        # Imports `onnx`, which later starts do without.
        from segmentation.models.graph.onnx_graph import at_least_opset, prepare

        try:
            graph = at_least_opset(prepare(model, at_once), _OPSET)
        except EngineError as exc:
            raise RefusesNetwork(str(exc)) from exc
        return convert(model.path, given.device, graph)

    def chosen() -> GraphModule:
        plain = converted()
        try:
            recorded = record(plain, given[:at_once], outputs=len(names))
        except UnrecordableError:
            return plain
        half = in_fp16(recorded) if given.is_cuda else None  # on a CPU it would be slower
        return half if half is not None and _agree(recorded, half, model, given[:at_once]) else recorded

    net = cached_network(f"{model.path.stem}-things-b{at_once}", origin, given[:at_once], chosen, outputs=len(names))
    if given.is_cuda and any(one.dtype is torch.float16 for one in net.buffers()):
        _fuse(net, given.device)
    return FixedBatch(given, net, at_once)


def _agree(net: GraphModule, half: GraphModule, model: Model, given: torch.Tensor) -> bool:
    """Returns whether outputs for a photograph are the same, to `AGREES`, when `half` runs with kernels of our own."""
    half = deepcopy(half)
    _fuse(half, given.device)
    crops = torch.from_numpy(picture_inputs(model)).to(given)
    pictures = torch.cat([crops] * -(-len(given) // len(crops)))[: len(given)]
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        both = zip(_listed(net(pictures)), _listed(half(pictures)), strict=True)
    return all(torch.allclose(found.float(), one.float(), rtol=AGREES, atol=AGREES) for one, found in both)


def _fuse(net: GraphModule, device: torch.device) -> None:
    """Fuses a network, and begins to compile its kernels: one after the other that would take seconds."""
    fuse(net)
    if device.type == "cuda":
        begin_kernels_on(device, kernel_sources(net))


def _listed(outputs: Scores) -> Sequence[torch.Tensor]:
    return [outputs] if isinstance(outputs, torch.Tensor) else outputs
