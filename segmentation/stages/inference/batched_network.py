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
        if self._batch is None:
            shape = (self._gather.size, *first.shape[1:])
            with torch.cuda.stream(self._gpu.stream):
                self._batch = torch.zeros(shape, dtype=first.dtype, device=first.device)
        place, row = self._batch.data_ptr(), self._batch.nbytes // self._gather.size
        for request in requests:  # a slice of a tensor would give up the GIL
            assert request.tensor.dtype is self._batch.dtype
            self._gpu.copy_bytes(place, request.tensor.data_ptr(), request.count * row)
            place += request.count * row
        return self._batch

    def _shares(self, requests: list[_Frames], found: InferenceResult) -> list[InferenceResult]:
        """Returns the rows of each request."""
        assert isinstance(found.masks, torch.Tensor)
        counts = [request.count for request in requests]
        counts.append(len(found.masks) - sum(counts))  # rows that hold no frame
        with torch.cuda.stream(self._gpu.stream):
            masks = found.masks.clone().split(counts)  # the next call overwrites them
            classes = None if found.class_map is None else torch.as_tensor(found.class_map).split(counts)
        shares, place = [], 0
        for number, request in enumerate(requests):
            instances = found.instances[place : place + request.count]
            shares.append(InferenceResult(masks[number], None if classes is None else classes[number], instances))
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
