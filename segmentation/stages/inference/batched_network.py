"""Dynamic batching: frames that several runs bring at the same time go through a network on a GPU together."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from segmentation.frames import Array
from segmentation.gpu.errors import gpu_errors
from segmentation.stages.inference import Inference, InferenceResult
from segmentation.stages.inference.shared_network import Call, SharedNetwork

if TYPE_CHECKING:  # the tests run this class on machines that lack the libraries of `Gpu`
    from segmentation.gpu.context import Gpu
    from segmentation.gpu.driver import Event


@dataclass(eq=False, slots=True)
class _Request:
    """Frames of one run that wait for the network."""

    tensor: torch.Tensor  # (N, 3, H, W)
    count: int  # of its rows that hold frames
    call: Call
    result: InferenceResult | None = None


class BatchedNetwork(SharedNetwork):
    """A network on a GPU, which takes as long for one frame as for a batch.

    While the GPU is busy with the network's last batch, and while other threads have their turn, frames of several runs
    gather. The thread that comes next takes those of all runs along, in one batch. A frame that is alone waits for
    nothing, and a full batch neither. The network always gets whole batches, so that it works in the same way on each.
    """

    def __init__(self, infer: Inference, size: int, turn: AbstractContextManager[object], gpu: Gpu) -> None:
        """`size` of a batch, in frames. `turn` is held while work is queued on the stream of `gpu`."""
        super().__init__(infer)
        self._size, self._turn, self._gpu = size, turn, gpu
        self._batch: torch.Tensor | None = None  # (size, 3, H, W)
        self._last: Event | None = None  # passes when the GPU has done the last batch
        self._waiting: list[_Request] = []
        self._lock = threading.Lock()

    def for_run(self) -> SharedNetwork:
        return self  # networks with states don't run here

    def __call__(self, tensor: Array, count: int, call: Call) -> InferenceResult:
        assert isinstance(tensor, torch.Tensor) and 0 < count <= self._size
        request = _Request(tensor, count, call)
        with self._lock:
            self._waiting.append(request)
            full = sum(other.count for other in self._waiting) >= self._size
        try:
            if self._last is not None and not full:
                with gpu_errors():
                    self._last.synchronize()
            with self._turn:
                if request.result is None:
                    self._work(self._taken(request))
        finally:
            with self._lock, suppress(ValueError):
                self._waiting.remove(request)  # it failed
        assert request.result is not None
        return request.result

    def _taken(self, request: _Request) -> list[_Request]:
        """Returns a request and those that fit beside it, which no longer wait."""
        taken, room = [request], self._size - request.count
        with self._lock:
            self._waiting.remove(request)
            for other in tuple(self._waiting):
                if other.count <= room:
                    self._waiting.remove(other)
                    taken.append(other)
                    room -= other.count
        return taken

    def _work(self, requests: list[_Request]) -> None:
        """Queues one batch. If that fails, it fails for the first request, and the others go on waiting."""
        try:
            with gpu_errors():
                tensor = self._gathered(requests)
            found = requests[0].call(self._infer, tensor)
            with gpu_errors():
                self._share(requests, found)
                self._last = self._gpu.record_event()
        except BaseException:
            with self._lock:
                self._waiting += requests[1:]
            raise

    def _gathered(self, requests: list[_Request]) -> torch.Tensor:
        """Returns a whole batch that begins with the frames of `requests`."""
        first = requests[0].tensor
        if len(requests) == 1 and len(first) == self._size:
            return first
        with torch.cuda.stream(self._gpu.stream):
            if self._batch is None:
                self._batch = torch.zeros((self._size, *first.shape[1:]), dtype=first.dtype, device=first.device)
            place = 0
            for request in requests:
                self._gpu.copy(self._batch[place : place + request.count], request.tensor[: request.count])
                place += request.count
        return self._batch

    def _share(self, requests: list[_Request], found: InferenceResult) -> None:
        """Gives each request its rows."""
        assert isinstance(found.masks, torch.Tensor)
        with torch.cuda.stream(self._gpu.stream):
            masks = found.masks.clone()  # the next call overwrites them
            place = 0
            for request in requests:
                rows = slice(place, place + request.count)
                classes = None if found.class_map is None else found.class_map[rows]
                instances = None if found.instances is None else found.instances[rows]
                request.result = InferenceResult(masks[rows], classes, instances)
                place += request.count
