"""Networks on crops on a GPU: PyTorch, replayed as a CUDA graph. Crops of several runs go through together."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias

import numpy as np
import torch

from segmentation.frames import Memory
from segmentation.gpu.errors import gpu_errors
from segmentation.models.detections import Floats, Outputs
from segmentation.models.model import Model
from segmentation.stages.inference.compiler.cuda_graph import GraphedNetwork, Loaded, preload
from segmentation.stages.inference.dynamic_batcher import DynamicBatcher
from segmentation.stages.inference.instances.fixed_batch import PRECISION, check_fixed, load_network

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu  # imports libraries that loading a network does not need
    from segmentation.gpu.cuda_calls import Event

# Queues what writes the pictures of some crops, (n, 3, H, W) float32.
Write: TypeAlias = Callable[[torch.Tensor], None]


class _Found(NamedTuple):
    """The outputs of a batch: side by side, so that one copy brings them to the host."""

    rows: torch.Tensor  # (N, numbers of all outputs) float32
    shapes: tuple[tuple[int, ...], ...]  # of the outputs of one picture


@dataclass(eq=False, slots=True)
class _Crops:
    """Crops of one run that wait for the network."""

    count: int
    write: Write


class _Copied(NamedTuple):
    """The outputs for some crops, on their way to the host."""

    rows: Floats  # (count, numbers of all outputs) float32, once `there` has passed
    there: Event


class CropNetwork:
    """A network on crops for all runs of a session. Several threads may call it at once."""

    memory: ClassVar[Memory] = "cuda"

    def __init__(self, model: Model, at_once: int, gpu: Gpu, turn: AbstractContextManager[object]) -> None:
        """Loads the network for so many crops at once and runs it, on the stream of `gpu`.

        `turn` is held while work is queued there. Raises `RefusesNetwork` where PyTorch can't run it in batches.
        """
        self._gpu = gpu
        count = model.batch_on_gpu or at_once
        preloaded = preload(lambda: _loaded(model, count, gpu.device), gpu.device)
        with turn:
            self._network = GraphedNetwork(preloaded, gpu, model.name)
        self._gather: DynamicBatcher[_Crops, _Copied] = DynamicBatcher(count, turn, gpu)

    @staticmethod
    def describe(model: Model) -> str:
        """Says how the network runs. Raises `BackendError` as `check_fixed`."""
        check_fixed(model, "classifier")
        return f"PyTorch {torch.__version__}, GPU, {PRECISION}, CUDA graph"

    @property
    def at_once(self) -> int:
        """Crops that a call may have at most."""
        return self._gather.size

    def __call__(self, count: int, write: Write) -> list[Outputs]:
        """Returns the outputs for each of `count` pictures, which `write` makes. Waits for the GPU."""
        found = self._gather(_Crops(count, write), self._work)
        with gpu_errors():
            found.there.synchronize()
        shapes = self._network.result.shapes
        ends = list(accumulate(map(math.prod, shapes)))[:-1]
        return [
            [part.reshape(shape) for part, shape in zip(np.split(row, ends), shapes, strict=True)] for row in found.rows
        ]

    def close(self) -> None:
        """Frees the network."""
        self._network.close()

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _work(self, requests: list[_Crops]) -> list[_Copied]:
        with gpu_errors():
            place = 0
            for request in requests:
                request.write(self._network.input[place : place + request.count])
                place += request.count
            (rows,) = self._gpu.download(self._network.run().rows[:place], wait=False)
            there = self._gpu.record_event()
        ends = accumulate(request.count for request in requests)
        return [_Copied(rows[end - request.count : end], there) for request, end in zip(requests, ends, strict=True)]


def _loaded(model: Model, count: int, device: torch.device) -> Loaded[_Found]:
    network = load_network(model, count, device)
    given = network.input
    pictures = given if given.dtype == torch.float32 else torch.zeros(given.shape, device=device)

    def run() -> _Found:
        if pictures is not given:
            given.copy_(pictures)
        outputs = network.outputs()
        rows = torch.cat([output.float().flatten(1) for output in outputs], dim=1)
        return _Found(rows, tuple(tuple(output.shape[1:]) for output in outputs))

    return Loaded(pictures, network.net, run)
