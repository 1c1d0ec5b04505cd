"""Smooths, refines, covers and rounds masks on a GPU.

The formulas are in `smoothing.py`, `refinement.py` and `color_edge.py`.

A batch takes nine launches, whatever its size, and four more where edges are drawn by color. Intermediate results go to
the same buffers each time, because a request for memory takes the host longer than queueing a kernel. Runs that follow
each other have them from pools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from segmentation.frames import FORMATS, FrameBatch, VideoInfo
from segmentation.gpu.kernels import THREADS
from segmentation.gpu.plane_pool import DevicePlanes
from segmentation.models.model import Model
from segmentation.options.config import Config
from segmentation.stages.masks import refinement, smoothing
from segmentation.stages.masks.mask_kernels import BOX_ROWS, MASKS, ROWS
from segmentation.stages.masks.quantize import VALUES
from segmentation.stages.preprocess.resampling import shrinking

if TYPE_CHECKING:  # the tests run these classes on machines that lack the libraries of `Gpu`
    from segmentation.gpu.context import Gpu


@dataclass(frozen=True, slots=True)
class _SmoothingBuffers:
    """Float32 tensors for masks of one size, in `planes`, and that size."""

    size: tuple[int, int]  # (height, width)
    blocks: tuple[int, int]  # columns and rows of blocks that cover a mask
    planes: DevicePlanes
    records: torch.Tensor  # (held, ...): see `Records` of masks.cu
    changes: torch.Tensor  # (pairs, rows, columns)
    sums: torch.Tensor  # (pairs, THREADS_Y, columns)
    weights: torch.Tensor  # (pairs, rows, columns)


class CudaSmoothing(smoothing.SmoothingBackend[smoothing.CudaHistory]):
    """A `SmoothingBackend` with CUDA tensors. Records of frames lie in a ring, frame n in row n % `_held`."""

    def __init__(self, model: Model, config: Config, gpu: Gpu) -> None:
        self._gpu = gpu
        self._count = config.batch_size or 1
        # For the batch to average, its neighbours, the batch after it, and two batches that are inferred meanwhile.
        self._held = 4 * self._count + 2 * smoothing.REACH
        self._kernels = gpu.kernels(MASKS, FORMATS["yuv420p"])  # these kernels read no frames: any layout will do
        self._strength = np.float32(config.smoothing_strength)
        self._picture = model.picture
        self._shares = gpu.constant(smoothing.luma_shares(model))
        self._next = 0  # number of the next frame
        self._buffers: _SmoothingBuffers | None = None  # the first batch has the masks' size

    def keep(self, tensor: torch.Tensor, masks: torch.Tensor, count: int) -> smoothing.CudaHistory:
        if self._buffers is None:
            self._buffers = self._make_buffers((masks.shape[1], masks.shape[2]))
        buffers = self._buffers
        height, width = buffers.size
        given = tensor
        if self._picture is not None or tensor.dtype is not torch.float32:
            with torch.cuda.stream(self._gpu.stream):
                if self._picture is not None:  # masks don't cover the border
                    tensor = tensor[:, :, *self._picture.pixels].contiguous()
                given = tensor.float()
        given_size = (tensor.shape[3], tensor.shape[2])
        records = (buffers.records, self._held, width, height)
        self._kernels(
            "resize_mask", (*buffers.blocks, count), masks, given, *given_size, self._shares, *records, self._next
        )
        self._next += count
        return range(self._next - count, self._next)

    def join(self, known: smoothing.CudaHistory, new: smoothing.CudaHistory) -> smoothing.CudaHistory:
        return range(known.start, new.stop)

    def average(self, known: smoothing.CudaHistory, first: int, count: int) -> torch.Tensor:
        assert self._buffers is not None, "no frame was kept"
        assert self._next - known.start <= self._held, "records of these frames were overwritten"
        self._gpu.enter()
        buffers = self._buffers
        height, width = buffers.size
        pairs = (*buffers.blocks, 2 * smoothing.REACH * count)
        masks = self._gpu.empty((count, height, width), torch.float32)
        frames = (buffers.records, self._held, width, height, known.start, known[first], known[-1])
        changes, sums, weights = buffers.changes, buffers.sums, buffers.weights
        self._kernels("change", pairs, *frames, changes, sums)
        columns, rows = buffers.blocks
        boxes = (columns, -(-rows // BOX_ROWS), count)
        self._kernels("weigh", boxes, *frames[:4], known[first], self._strength, changes, sums, weights)
        self._kernels("average", (width, buffers.blocks[1], count), *frames, weights, masks)
        return masks

    def _make_buffers(self, size: tuple[int, int]) -> _SmoothingBuffers:
        height, width = size
        columns, rows = -(-width // smoothing.BLOCK), -(-height // smoothing.BLOCK)
        record = height * width + -(-height // 2) * -(-width // 2) + columns * rows
        pairs = 2 * smoothing.REACH * self._count
        shapes = ((self._held, record), (pairs, rows, columns), (pairs, THREADS[1], columns), (pairs, rows, columns))
        planes = self._gpu.plane_pool(shapes, torch.float32).take()
        return _SmoothingBuffers(size, (columns, rows), planes, *planes)


@dataclass(frozen=True, slots=True)
class _RefinementBuffers:
    """Float32 tensors for N masks of one size (h, w) and N refined masks (H, W), and the tables of `shrinking`.

    All but the tables are in `planes`.
    """

    tables: list[tuple[torch.Tensor, torch.Tensor]]  # across and down, for each plane that is read
    planes: DevicePlanes
    guides: Sequence[torch.Tensor]  # (N, H, W) each, of the planes that are read
    sides: torch.Tensor  # (N, H, W)
    refined: torch.Tensor  # (N, H, W)
    drawn: torch.Tensor  # (N, H, W), of the same by color
    lumas: torch.Tensor  # (1, N, h, w)
    lines: torch.Tensor  # (3, N, h, w)
    gathered: torch.Tensor  # (2, N, h, w)
    totals: torch.Tensor  # (2, N, THREADS_Y, w)
    shares: torch.Tensor  # (N,)


class CudaRefiner:
    """A `refinement.Refiner` with CUDA tensors. The next call overwrites the masks that a call returns."""

    def __init__(self, info: VideoInfo, pix_fmt: str, config: Config, gpu: Gpu, by_color: bool = False) -> None:
        """`by_color` says whether the method of that name will be called."""
        layout = FORMATS[pix_fmt]
        self._gpu = gpu
        self._count = config.batch_size or 1
        self._orientation = info.orientation
        self._kernels = gpu.kernels(MASKS, layout, info.orientation)
        self._shapes = layout.shapes(info.width, info.height)[: 3 if by_color else 1]  # of the planes that are read
        self._picture = info.upright_size
        self._peak = (1 << layout.bits) - 1
        self._buffers: _RefinementBuffers | None = None  # the first batch has the masks' size

    def __call__(self, batch: FrameBatch, masks: torch.Tensor) -> torch.Tensor:
        height, width = masks.shape[1:]
        size = refinement.refined_size((height, width), self._picture)
        if size is None:
            return masks
        count, launch = len(batch), self._kernels
        stored = self._orientation.size(*size)
        if self._buffers is None:
            self._buffers = self._make_buffers(size, stored, (width, height))
        b = self._buffers
        for plane, shape, (across, down), guide in zip(batch.planes, self._shapes, b.tables, b.guides, strict=False):
            tables = (across, across.shape[1] - 1, down, down.shape[1] - 1)
            launch("guide", (*stored, count), plane, *shape[::-1], *tables, guide, *stored)
        launch("shrink", (width, height, count), b.guides[0], *size, masks, b.lumas, b.totals, width, height)
        boxes = (width, -(-height // BOX_ROWS), count)
        launch("fit_guide", boxes, masks, b.lumas, width, height, b.totals, b.lines, b.shares)
        launch("gather_lines", boxes, b.lines, width, height, b.gathered)
        lines = (size[0], -(-size[1] // ROWS), count)
        launch("draw_edge", lines, masks, b.gathered, width, height, b.shares, b.guides[0], b.refined, *size)
        return b.refined

    def by_color(self, batch: FrameBatch, masks: torch.Tensor, refined: torch.Tensor) -> torch.Tensor:
        """See `refinement.Refiner.by_color`. `refined` is what the last call has returned for `masks`."""
        b = self._buffers
        if b is None or refined is masks:
            return refined
        height, width = refined.shape[1:]
        boxes = (width, -(-height // BOX_ROWS), len(batch))
        self._kernels("find_sides", boxes, refined, width, height, b.sides)
        self._kernels("draw_by_color", boxes, b.sides, *b.guides, b.shares, width, height, refined, b.drawn)
        return b.drawn

    def _make_buffers(
        self, large: tuple[int, int], stored: tuple[int, int], small: tuple[int, int]
    ) -> _RefinementBuffers:
        """Returns the buffers. Sizes are (width, height): of refined masks upright and as stored, and of masks."""
        (width, height), (columns, rows), count = large, small, self._count
        tables = []
        for shape in self._shapes:
            across, down = shrinking(shape, stored)
            across[:, 1:] /= self._peak
            tables.append((self._gpu.constant(across), self._gpu.constant(down)))
        layers: list[tuple[int, ...]] = [(count, height, width)] * (len(tables) + 3)
        layers += [(n, count, rows, columns) for n in (1, 3, 2)]
        shapes = (*layers, (2, count, THREADS[1], columns), (count,))
        planes = self._gpu.plane_pool(shapes, torch.float32).take()
        return _RefinementBuffers(tables, planes, planes[: len(tables)], *planes[len(tables) :])


class _FirstRows:
    """The first rows of a tensor. Each number of them is made once: a slice of a tensor gives up the GIL."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._whole = tensor
        self._made: dict[int, torch.Tensor] = {}

    def first(self, count: int) -> torch.Tensor:
        """Returns the first `count` rows."""
        found = self._made.get(count)
        if found is None:
            found = self._made[count] = self._whole[:count]
        return found


class CudaQuantizer:
    """Calling it with masks (N, h, w) in 0..1 returns the same as `quantize.quantize`, in CUDA tensors.

    The next call overwrites them.
    """

    def __init__(self, config: Config, gpu: Gpu) -> None:
        self._gpu = gpu
        self._count = config.batch_size or 1
        self._kernels = gpu.kernels(MASKS, FORMATS["yuv420p"])
        self._values = gpu.constant(VALUES)
        self._rows: tuple[_FirstRows, _FirstRows] | None = None  # the first batch has the masks' size

    def __call__(self, masks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        count, height, width = masks.shape
        assert count <= self._count, "the kernel would write behind the buffers"
        if self._rows is None:
            shape = (self._count, height, width)
            levels, rounded = self._gpu.empty(shape, torch.uint8), self._gpu.empty(shape, torch.float32)
            self._rows = _FirstRows(levels), _FirstRows(rounded)
        levels, rounded = (rows.first(count) for rows in self._rows)
        self._kernels("quantize", (width, height, count), masks, width, height, self._values, levels, rounded)
        return levels, rounded


class CudaCover:
    """Calling it with masks (N, h, w) returns the same as `fail_closed.without_nan`, the masks in a CUDA tensor.

    It does not wait for the GPU, which writes to the arrays on the host too. The next call overwrites the tensor alone.
    """

    def __init__(self, config: Config, gpu: Gpu) -> None:
        self._gpu = gpu
        self._count = config.batch_size or 1
        self._kernels = gpu.kernels(MASKS, FORMATS["yuv420p"])
        self._threshold = np.float32(config.threshold)
        self._pinned = gpu.pinned_pool()
        with torch.cuda.stream(gpu.stream):  # the last calls with a NaN there, and with a value above the threshold
            self._calls = tuple(torch.zeros(self._count, dtype=torch.int32, device=gpu.device) for _ in range(2))
        self._call = 0
        self._rows: _FirstRows | None = None  # of the covered masks: the first batch has their size

    def __call__(self, masks: torch.Tensor, value: float) -> tuple[torch.Tensor, NDArray[np.bool_], NDArray[np.bool_]]:
        count, height, width = masks.shape
        assert count <= self._count, "the kernels would write behind the buffers"
        found, unknown = self._pinned.arrays([(count,)] * 2, np.uint8)
        if self._rows is None:
            self._rows = _FirstRows(self._gpu.empty((self._count, height, width), torch.float32))
        covered = self._rows.first(count)
        self._call = self._call % 0x7FFFFFFF + 1
        given, size = (masks, width, height, *self._calls, self._call), (width, height, count)
        self._kernels("find_nan", size, *given, self._threshold)
        noted = (np.uint64(array.ctypes.data) for array in (found, unknown))
        self._kernels("cover", size, *given, np.float32(value), covered, *noted)
        return covered, found.view(np.bool_), unknown.view(np.bool_)
