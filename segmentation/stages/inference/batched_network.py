"""A session's network on a GPU, through which frames of several runs go together."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from segmentation.frames import Array
from segmentation.gpu.errors import gpu_errors
from segmentation.stages.inference import Inference, InferenceResult
from segmentation.stages.inference.dynamic_batcher import DynamicBatcher
from segmentation.stages.inference.shared_network import Call, SharedNetwork

if TYPE_CHECKING:  # the tests run this class on machines that lack the libraries of `Gpu`
    from segmentation.gpu.context import Gpu


@dataclass(eq=False, slots=True)
class _Frames:
    """Frames of one run that wait for the network."""

    tensor: torch.Tensor  # (N, 3, H, W)
    count: int  # of its rows that hold frames
    call: Call


class BatchedNetwork(SharedNetwork):
    """Calls an `Inference` with whole batches alone, so that it works in the same way on each; see `DynamicBatcher`."""

    def __init__(self, infer: Inference, size: int, turn: AbstractContextManager[object], gpu: Gpu) -> None:
        """`size` of a batch, in frames. `turn` is held while work is queued on the stream of `gpu`."""
        super().__init__(infer)
        self._gpu = gpu
        self._gather: DynamicBatcher[_Frames, InferenceResult] = DynamicBatcher(size, turn, gpu)
        self._batch: torch.Tensor | None = None  # (size, 3, H, W)

    def for_run(self) -> SharedNetwork:
        return self  # networks with states don't run here, see `RecurrentNetwork`

    def __call__(self, tensor: Array, count: int, call: Call) -> InferenceResult:
        assert isinstance(tensor, torch.Tensor)
        return self._gather(_Frames(tensor, count, call), self._work)

    def _work(self, requests: list[_Frames]) -> list[InferenceResult]:
        with gpu_errors():
            tensor = self._gathered(requests)
        found = requests[0].call(self._infer, tensor)
        with gpu_errors():
            return self._shares(requests, found)

    def _gathered(self, requests: list[_Frames]) -> torch.Tensor:
        """Returns a whole batch that begins with the frames of `requests`."""
        first = requests[0].tensor
        if len(requests) == 1 and len(first) == self._gather.size:
            return first
        with torch.cuda.stream(self._gpu.stream):
            if self._batch is None:
                shape = (self._gather.size, *first.shape[1:])
                self._batch = torch.zeros(shape, dtype=first.dtype, device=first.device)
            place = 0
            for request in requests:
                self._gpu.copy(self._batch[place : place + request.count], request.tensor[: request.count])
                place += request.count
        return self._batch

    def _shares(self, requests: list[_Frames], found: InferenceResult) -> list[InferenceResult]:
        """Returns the rows of each request."""
        assert isinstance(found.masks, torch.Tensor)
        with torch.cuda.stream(self._gpu.stream):
            masks = found.masks.clone()  # the next call overwrites them
            shares, place = [], 0
            for request in requests:
                rows = slice(place, place + request.count)
                classes = None if found.class_map is None else found.class_map[rows]
                shares.append(InferenceResult(masks[rows], classes, found.instances[rows]))
                place += request.count
        return shares


class RecurrentNetwork(SharedNetwork):
    """Calls an `Inference` that carries the states of one run from batch to batch."""

    def __init__(self, infer: Inference, turn: AbstractContextManager[object], gpu: Gpu) -> None:
        """`turn` is held while work is queued on the stream of `gpu`."""
        super().__init__(infer)
        self._turn, self._gpu = turn, gpu

    def for_run(self) -> SharedNetwork:
        return RecurrentNetwork(self._infer.for_run(), self._turn, self._gpu)

    def __call__(self, tensor: Array, count: int, call: Call) -> InferenceResult:
        with self._turn:
            found = call(self._infer, tensor[:count])  # a row without a frame would change the states
            assert isinstance(found.masks, torch.Tensor)
            with gpu_errors(), torch.cuda.stream(self._gpu.stream):
                return found._replace(masks=found.masks.clone())  # the next call overwrites them
