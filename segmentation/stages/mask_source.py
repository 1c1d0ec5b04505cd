"""Where a run's masks come from: the network, or a file that an earlier run has saved."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from segmentation.flow.threads import GpuTurn, StageThreads
from segmentation.flow.timing import StageClock
from segmentation.frames import Array, FrameBatch, MaskedBatch, Memory, Transfer
from segmentation.models.model import Model
from segmentation.options.config import Config
from segmentation.stages.inference import InferenceResult
from segmentation.stages.inference.shared_network import SharedNetwork
from segmentation.stages.masks.saved import MaskReader
from segmentation.stages.masks.smoothing import HostSmoothing, SmoothingBackend, smooth_masks
from segmentation.stages.preprocess import Preprocessor

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu

T = TypeVar("T")
# Takes all batches of a run in presentation order, on one thread, and yields them with their instances.
MaskStep = Callable[[Iterator[MaskedBatch]], Iterator[MaskedBatch]]


class MaskSource(ABC):
    """Finds the masks of decoded batches."""

    memory: Memory  # where its masks are
    workers: int  # batches that it works on at once
    inferred: int = 0  # frames that a network has worked on

    def finished(
        self,
        batches: Iterator[FrameBatch],
        finish: Callable[[MaskedBatch], T],
        overlap: StageThreads,
        steps: Sequence[MaskStep] = (),
    ) -> Iterator[T]:
        """Yields `finish` of each batch with its masks, in order, after all `steps`. Works on threads of `overlap`."""
        masked = self.masked(batches, overlap)
        for step in steps:
            masked = step(masked)
        return overlap.map(finish, masked, self.workers)

    @abstractmethod
    def masked(self, batches: Iterator[FrameBatch], overlap: StageThreads) -> Iterator[MaskedBatch]:
        """Yields each batch with its masks, in order. The masks belong to the caller."""

    def check_end(self) -> None:  # noqa: B027  # only a file can hold more masks than the video has frames
        """Raises `InputError` if masks are left after the video's last frame."""


class Parts(TypedDict):
    """The arguments of `NetworkMasks`, but for its smoothing."""

    preprocess: Preprocessor
    infer: SharedNetwork
    kept_memory: Memory
    transfer: Transfer
    clock: StageClock
    turn: GpuTurn


@dataclass(kw_only=True)
class NetworkMasks(MaskSource):
    """Preprocess, inference, and smoothing over time where it is asked for."""

    preprocess: Preprocessor
    infer: SharedNetwork
    smoothing: SmoothingBackend[Any] | None
    kept_memory: Memory  # where the stages behind want the frames: the copy that is there already is passed on
    transfer: Transfer
    clock: StageClock
    turn: GpuTurn  # of all runs
    further: Sequence[NetworkMasks] = ()  # other networks that see the same frames, unsmoothed
    _counting: threading.Lock = field(default_factory=threading.Lock, init=False)
    _own_turn: GpuTurn = field(default_factory=GpuTurn, init=False)  # of the run's threads: they share its buffers

    @property
    def memory(self) -> Memory:  # type: ignore[override]
        return self.infer.memory

    @property
    def workers(self) -> int:  # type: ignore[override]
        return self.infer.workers

    def finished(
        self,
        batches: Iterator[FrameBatch],
        finish: Callable[[MaskedBatch], T],
        overlap: StageThreads,
        steps: Sequence[MaskStep] = (),
    ) -> Iterator[T]:
        if self._each_alone and not steps:  # a thread takes a batch all the way
            # A pause is nothing to wait for.
            return overlap.map(lambda batch: self.find_and_finish(batch, finish), filter(len, batches), self.workers)
        return super().finished(batches, finish, overlap, steps)

    @property
    def _each_alone(self) -> bool:
        """Whether the masks of a batch need no other batch."""
        return self.smoothing is None

    def masked(self, batches: Iterator[FrameBatch], overlap: StageThreads) -> Iterator[MaskedBatch]:
        return self._smoothed(
            overlap.map(lambda batch: self._find(batch) if len(batch) else None, batches, self.workers)
        )

    def _smoothed(self, found: Iterator[tuple[MaskedBatch, Any] | None]) -> Iterator[MaskedBatch]:
        """Yields the batches, smoothed where it is asked for, without the pauses, each a `None`."""
        if self.smoothing is None:
            return (one[0] for one in found if one is not None)
        return smooth_masks(found, self.smoothing)  # masks wait here for those of later frames

    def find_and_finish(self, batch: FrameBatch, finish: Callable[[MaskedBatch], T]) -> T:
        """Returns `finish` of one batch with its masks, without smoothing."""
        return finish(self._find(batch)[0])

    def _find(self, batch: FrameBatch) -> tuple[MaskedBatch, Any]:
        """The batch with its masks, and the history that smoothing keeps of them."""
        self.transfer.enter()
        kept, tensor = self.prepared(batch)
        masks, class_map, instances = self.inference(batch, tensor, len(batch))
        history = None if self.smoothing is None else self.smoothing.keep(tensor, masks, len(batch))
        further = tuple(one._find(batch)[0] for one in self.further)
        found = MaskedBatch(frames=kept, masks=masks, class_map=class_map, instances=instances, further=further)
        return found, history

    def inference(self, batch: FrameBatch, tensor: Array, count: int) -> InferenceResult:
        """Returns what the network finds in `count` pictures. `batch` labels the call in a trace.

        The caller does not hold `turn`.
        """
        with self._counting:
            self.inferred += count
        return self.infer(tensor, count, partial(self.clock.stage, "infer", batch))

    def prepared(self, batch: FrameBatch) -> tuple[FrameBatch, Array]:
        """Returns the batch where the stages behind take it, and the network's input, until the next call."""
        frames = self.transfer.frames(batch, self.preprocess.memory)
        with self._own_turn.of(self.preprocess):
            made = self.clock.stage("preprocess", batch, self.preprocess, frames)
            tensor = self.transfer.rows(made, self.infer.memory, len(batch))
        return (batch if batch.memory == self.kept_memory else frames), tensor


class SavedMasks(MaskSource):
    """Masks that `--save-masks` has written. They are read on one thread, and composited on several."""

    memory: Memory = "host"

    def __init__(self, reader: MaskReader, clock: StageClock, *, on_gpu: bool) -> None:
        """`on_gpu`: the stages behind share one GPU, so that more workers gain nothing."""
        self._reader, self._clock = reader, clock
        self.workers = 1 if on_gpu else reader.workers

    def masked(self, batches: Iterator[FrameBatch], overlap: StageThreads) -> Iterator[MaskedBatch]:
        return map(self._read, batches)

    def check_end(self) -> None:
        self._reader.check_end()

    def _read(self, batch: FrameBatch) -> MaskedBatch:
        return MaskedBatch(frames=batch, masks=self._clock.call("infer", batch, self._reader, batch))


def make_smoothing(memory: Memory, model: Model, config: Config, gpu: Gpu | None) -> SmoothingBackend[Any] | None:
    """The backend that smooths masks in that memory; `None` where no smoothing is asked for."""
    if not config.smoothing_strength:
        return None
    if gpu is None or memory == "host":
        return HostSmoothing(model, config.smoothing_strength)
    from segmentation.stages.masks.cuda import CudaSmoothing  # needs PyTorch

    return CudaSmoothing(model, config, gpu)
