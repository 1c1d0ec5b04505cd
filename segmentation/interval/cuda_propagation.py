"""Propagates masks on a GPU. The formulas are in `propagation.py`.

Each operation of PyTorch releases the GIL, and waits for it among all threads of all runs. So frames are not stacked:
kernels find lumas and masks by a table of their addresses, and intermediate results go to the same buffers each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from segmentation.frames import FORMATS, Array
from segmentation.interval import propagation
from segmentation.interval.kernels import PROPAGATION
from segmentation.interval.propagation import RADII, Doubt, FrameBetween, FrameMask, Later
from segmentation.models.model import Model
from segmentation.stages.masks import smoothing
from segmentation.stages.masks.mask_kernels import BOX_ROWS, ROWS

if TYPE_CHECKING:  # the tests run this class on machines that lack the libraries of `Gpu`
    from segmentation.gpu.context import Gpu

_NONE = np.uint64(0)  # an address
_BLOCK = (1, 1)  # threads in x and y for which one block is queued
_ALIGNMENT = 16  # bytes
# The `Key` of propagation.cu.
_KEY = np.dtype([("here", "i8"), ("there", "i8"), ("mask", "i8"), ("map", "i8"), ("share", "f4"), ("end", "V4")])


@dataclass(frozen=True, slots=True)
class CudaLuma:
    """A frame's luma as in `propagation.HostLuma`: a record of propagation.cu."""

    record: torch.Tensor  # bytes
    address: int


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """The layers of a record, from half of the size of the network's input to an eighth. Sizes are (width, height)."""

    input: tuple[int, int]
    sizes: tuple[tuple[int, int], ...]
    values: tuple[int, ...]  # places in bytes
    levels: tuple[int, ...]
    bytes: int

    @classmethod
    def of(cls, width: int, height: int) -> RecordLayout:
        """Returns the layout for a network's input of this size."""
        given, sizes, places, end = (width, height), [], [], 0
        for _ in RADII:
            width, height = -(-width // 2), -(-height // 2)
            sizes.append((width, height))
        for size in (4, 1):  # of a float, of a level
            for columns, rows in sizes:
                places.append(end)
                end += -(-columns * rows * size // _ALIGNMENT) * _ALIGNMENT
        return cls(given, tuple(sizes), tuple(places[: len(sizes)]), tuple(places[len(sizes) :]), end)


@dataclass(frozen=True, slots=True)
class _Buffers:
    """Intermediate results for up to `frames` frames between two keys each."""

    frames: int
    flows: tuple[torch.Tensor, ...]  # (2 F, 2, h, w) int32 each, coarse to fine
    means: torch.Tensor  # (2 F, 2, h, w) float32
    residuals: torch.Tensor  # (2 F, h, w) float32
    weights: torch.Tensor  # (2 F, h, w) float32
    warped: torch.Tensor  # (2 F, H, W) float32
    warped_maps: torch.Tensor | None  # (2 F, H, W) uint8


class CudaPropagation(propagation.Propagation[CudaLuma]):
    """A `Propagation` with CUDA tensors. All frames of a call go through each kernel together."""

    def __init__(self, model: Model, gpu: Gpu) -> None:
        self._gpu = gpu
        self._kernels = gpu.kernels(PROPAGATION, FORMATS["yuv420p"])  # they read no frames: any layout will do
        self._layout = RecordLayout.of(model.width, model.height)
        self._buffers: _Buffers | None = None  # the first masks have the size
        shares = smoothing.luma_shares(model)
        constant = sum(share * mean for share, mean in zip(smoothing.LUMA, model.mean, strict=True))
        self._shares = gpu.constant(np.array([*shares, constant], np.float32))

    def keep(self, tensor: torch.Tensor, count: int) -> tuple[torch.Tensor, list[CudaLuma]]:
        with torch.cuda.stream(self._gpu.stream):
            rows = tensor[:count].clone(memory_format=torch.contiguous_format)
            given = rows.float()
        layout = self._layout
        records = self._gpu.empty((count, layout.bytes), torch.uint8)
        into, large = (records, layout.bytes), (given, *layout.input, self._shares)
        for number, (size, values, levels) in enumerate(zip(layout.sizes, layout.values, layout.levels, strict=True)):
            if number == 0:
                self._kernels("downsample", (*size, count), *large, *into, levels, *size)
            else:
                larger = (layout.values[number - 1], *layout.sizes[number - 1])
                self._kernels("halve", (*size, count), *into, *larger, values, levels, *size)
        begin = records.data_ptr()
        return rows, [CudaLuma(record, begin + i * layout.bytes) for i, record in enumerate(records)]

    def changes(self, lumas: Sequence[CudaLuma]) -> Later[float]:
        if len(lumas) == 1:  # a kernel on no block is an error
            return list
        self._gpu.enter()
        table = self._gpu.pinned((len(lumas),), torch.int64)
        table.numpy()[:] = [luma.address for luma in lumas]
        found = self._gpu.empty((len(lumas) - 1,), torch.float32)
        given = (self._uploaded(table), self._layout.levels[-1], *self._layout.sizes[-1])
        self._kernels("differ", (*_BLOCK, len(found)), *given, found)
        return self._later(found)

    def gather(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        return self._stacked(rows)

    def split(self, masks: torch.Tensor, class_map: torch.Tensor | None, count: int) -> list[FrameMask]:
        with torch.cuda.stream(self._gpu.stream):
            own = masks[:count].clone()
            maps = None if class_map is None else class_map[:count].clone()
        return _rows(own, maps)

    def propagate(
        self, frames: Sequence[FrameBetween[CudaLuma]], *, doubt: bool
    ) -> tuple[list[FrameMask], Later[Doubt]]:
        launch, count, layout = self._kernels, len(frames), self._layout
        like = frames[0].found[0]
        height, width = shape = like.mask.shape
        buffers = self._buffers_for(count, like)
        keys = self._uploaded(self._table(frames))
        flow: torch.Tensor | None = None
        for level, (radius, found) in enumerate(zip(RADII, buffers.flows, strict=True)):
            size, levels = layout.sizes[-1 - level], layout.levels[-1 - level]
            coarse = (_NONE, 0, 0) if flow is None else (flow, *layout.sizes[-level])
            launch("search", (size[0], -(-size[1] // BOX_ROWS), 2 * count), keys, levels, *coarse, radius, found, *size)
            flow = found
        small = layout.sizes[0]
        boxes = (small[0], -(-small[1] // BOX_ROWS), 2 * count)
        launch("match", boxes, keys, flow, buffers.means, buffers.residuals, *small)
        launch("weigh_keys", boxes, keys, buffers.residuals, buffers.weights, *small)
        warped = (buffers.warped, _NONE if buffers.warped_maps is None else buffers.warped_maps)
        lines = -(-height // ROWS)
        launch("warp", (width, lines, 2 * count), keys, buffers.means, *small, *warped, width, height)
        masks = self._gpu.empty((count, *shape), torch.float32)
        maps = None if like.class_map is None else self._gpu.empty((count, *shape), torch.uint8)
        into = (masks, _NONE if maps is None else maps, width, height)
        launch("blend", (width, lines, count), *warped, buffers.weights, *small, *into)
        if not doubt:
            return _rows(masks, maps), list
        doubts = self._gpu.empty((count, 2), torch.float32)
        launch("measure_doubt", (*_BLOCK, count), keys, buffers.warped, buffers.weights, *small, doubts, width, height)
        later = self._later(doubts)
        return _rows(masks, maps), lambda: [Doubt(*values) for values in later()]

    def join(self, found: Sequence[FrameMask]) -> tuple[torch.Tensor, torch.Tensor | None]:
        masks, maps = zip(*found, strict=True)
        return self._stacked(masks), None if maps[0] is None else self._stacked(maps)

    def _table(self, frames: Sequence[FrameBetween[CudaLuma]]) -> torch.Tensor:
        """Returns the keys of all frames, on the host."""
        table = self._gpu.pinned((2 * len(frames), _KEY.itemsize // 8), torch.int64)
        table.numpy().view(_KEY)[:, 0] = [
            (frame.luma.address, luma.address, _address(found.mask), _address(found.class_map), share, b"")
            for frame in frames
            for luma, found, share in zip(frame.lumas, frame.found, (frame.share, 1 - frame.share), strict=True)
        ]
        return table

    def _buffers_for(self, frames: int, like: FrameMask) -> _Buffers:
        """Returns buffers for so many frames whose keys are `like` one, larger ones than before if need be."""
        if self._buffers is None or self._buffers.frames < frames:
            empty, keys = self._gpu.empty, 2 * frames
            sizes = [size[::-1] for size in reversed(self._layout.sizes)]
            self._buffers = _Buffers(
                frames,
                flows=tuple(empty((keys, 2, *size), torch.int32) for size in sizes),
                means=empty((keys, 2, *sizes[-1]), torch.float32),
                residuals=empty((keys, *sizes[-1]), torch.float32),
                weights=empty((keys, *sizes[-1]), torch.float32),
                warped=empty((keys, *like.mask.shape), torch.float32),
                warped_maps=None if like.class_map is None else empty((keys, *like.mask.shape), torch.uint8),
            )
        return self._buffers

    def _uploaded(self, table: torch.Tensor) -> torch.Tensor:
        with torch.cuda.stream(self._gpu.stream):
            return table.to(self._gpu.device, non_blocking=True)

    def _later(self, values: torch.Tensor) -> Callable[[], list[Any]]:
        """Queues the copy of numbers to the host. Returns a function that waits for them."""
        (host,) = self._gpu.download(values, wait=False)
        copied = self._gpu.record_event()

        def wait() -> list[Any]:
            copied.synchronize()
            numbers: list[Any] = host.tolist()
            return numbers

        return wait

    def _stacked(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        with torch.cuda.stream(self._gpu.stream):
            return torch.stack(tuple(rows))


def _address(array: Array | None) -> int:
    """Returns where a tensor begins; 0 without one."""
    return 0 if array is None else int(array.data_ptr())  # type: ignore[union-attr]


def _rows(masks: torch.Tensor, maps: torch.Tensor | None) -> list[FrameMask]:
    """Returns what is found in each frame. A tensor's rows are made by one operation, as it is iterated over."""
    return [
        FrameMask(mask, one) for mask, one in zip(masks, [None] * len(masks) if maps is None else maps, strict=True)
    ]
