"""Steadying and refining masks on the GPU, see `smoothing.py` and `refinement.py`, whose formulas `masks.cu` follows.

A batch takes nine launches, whatever its size. What nobody else sees is written into the same buffers again each
time: asking for memory takes the host longer than queueing a kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from segmentation.config import Config
from segmentation.frames import FORMATS, FrameBatch, VideoInfo
from segmentation.models.model import Model
from segmentation.stages.masks import refinement, smoothing
from segmentation.stages.masks.mask_kernels import MASKS
from segmentation.stages.masks.quantize import VALUES
from segmentation.stages.preprocess.resampling import shrinking

if TYPE_CHECKING:  # it needs libraries that machines without a GPU lack, on which the tests run this all the same
    from segmentation.gpu.context import Gpu


class CudaSmoothing(smoothing.SmoothingBackend[range]):
    """See `smoothing.SmoothingBackend`. What is kept of frames is the range of their numbers: the rest is in a buffer that goes
    round, see `Records` of masks.cu."""

    def __init__(self, model: Model, config: Config, gpu: Gpu) -> None:
        self._gpu = gpu
        self._count = config.batch_size or 1
        # Rows: for the batch that is averaged, its neighbours, the batch after it, and two that are found meanwhile.
        self._held = 4 * self._count + 2 * smoothing.REACH
        self._kernels = gpu.kernels(MASKS, FORMATS["yuv420p"])  # that of frames does not matter
        self._strength = np.float32(config.smoothing_strength)
        self._shares = torch.from_numpy(smoothing.luma_shares(model).copy()).to(gpu.device)
        self._shape = (0, 0)
        self._next = 0  # number of the next frame that is kept
        self._records: torch.Tensor | None = None  # made when the masks' size is known, as is `_scratch`
        self._scratch: list[torch.Tensor] = []  # changes, their sums, weights

    def keep(self, tensor: torch.Tensor, masks: torch.Tensor, count: int) -> range:
        if self._records is None:
            self._shape = (masks.shape[1], masks.shape[2])
            self._make_buffers()
        height, width = self._shape
        with torch.cuda.stream(self._gpu.stream):
            seen = tensor.float()
        seen_size = (tensor.shape[3], tensor.shape[2])
        records = (self._records, self._held, width, height)
        self._kernels("keep", (*self._blocks(), count), masks, seen, *seen_size, self._shares, *records, self._next)
        self._next += count
        return range(self._next - count, self._next)

    def join(self, known: range, new: range) -> range:
        return range(known.start, new.stop)

    def average(self, known: range, first: int, count: int) -> torch.Tensor:
        assert self._next - known.start <= self._held, "what is kept of frames was overwritten"
        self._gpu.enter()
        height, width = self._shape
        columns, rows = self._blocks()
        changes, sums, weights = self._scratch
        pairs = 2 * smoothing.REACH * count
        masks = self._gpu.empty((count, height, width), torch.float32)
        frames = (self._records, self._held, width, height, known.start, known[first], known[-1])
        self._kernels("change", (columns, rows, pairs), *frames, changes, sums)
        self._kernels("weigh", (columns, rows, pairs), *frames, self._strength, changes, sums, weights)
        self._kernels("average", (width, height, count), *frames, weights, masks)
        return masks

    def _make_buffers(self) -> None:
        (height, width), (columns, rows) = self._shape, self._blocks()
        size = height * width + -(-height // 2) * -(-width // 2) + columns * rows
        self._records = self._gpu.empty((self._held, size), torch.float32)
        most = 2 * smoothing.REACH * self._count
        shapes = ((most, rows, columns), (most, columns), (most, rows, columns))
        self._scratch = [self._gpu.empty(shape, torch.float32) for shape in shapes]

    def _blocks(self) -> tuple[int, int]:
        """Columns and rows of blocks of a mask."""
        height, width = self._shape
        return -(-width // smoothing.BLOCK), -(-height // smoothing.BLOCK)


class CudaRefiner:
    """See `refinement.Refiner`. The masks returned are written again by the next call."""

    def __init__(self, info: VideoInfo, pix_fmt: str, config: Config, gpu: Gpu) -> None:
        layout = FORMATS[pix_fmt]
        self._gpu = gpu
        self._count = config.batch_size or 1
        self._turns = info.rotation // 90
        self._kernels = gpu.kernels(MASKS, layout, self._turns)
        self._stored = (info.width, info.height)
        self._picture = refinement.upright_size(info)
        self._peak = (1 << layout.bits) - 1
        # Made when the masks' size is known: arguments of the kernel `guide`, and what the kernels write.
        self._tables: list[Any] = []
        self._buffers: list[torch.Tensor] = []

    def __call__(self, batch: FrameBatch, masks: torch.Tensor) -> torch.Tensor:
        height, width = masks.shape[1:]
        size = refinement.refined_size((height, width), self._picture)
        if size is None:
            return masks
        count, launch = len(batch), self._kernels
        small = size if self._turns % 2 == 0 else size[::-1]
        if not self._buffers:
            self._tables, self._buffers = self._made_tables(small), self._made_buffers(size, (width, height))
        guides, target, lumas, lines, gathered, doubts, shares = self._buffers
        launch("guide", (*small, count), batch.planes[0], *self._stored, *self._tables, guides, *small)
        launch("shrink", (width, height, count), guides, *size, masks, lumas, doubts, width, height)
        launch("fit", (width, height, count), masks, lumas, width, height, doubts, lines, shares)
        launch("gather", (width, height, count), lines, width, height, gathered)
        launch("draw", (*size, count), masks, gathered, width, height, shares, guides, target, *size)
        return target

    def _made_buffers(self, large: tuple[int, int], small: tuple[int, int]) -> list[torch.Tensor]:
        """The guides and the refined masks, then what lies between, with up to three layers of the masks' size."""
        (width, height), (columns, rows), count = large, small, self._count
        shapes = [(count, height, width)] * 2 + [(n, count, rows, columns) for n in (1, 3, 2)]
        return [self._gpu.empty(shape, torch.float32) for shape in (*shapes, (count, columns), (count,))]

    def _made_tables(self, small: tuple[int, int]) -> list[Any]:
        across, down = shrinking(self._stored[::-1], small)
        across[:, 1:] /= self._peak
        with torch.cuda.stream(self._gpu.stream):
            tables = [torch.from_numpy(table).to(self._gpu.device) for table in (across, down)]
        return [argument for table in tables for argument in (table, table.shape[1] - 1)]


class CudaQuantizer:
    """`quantize.quantize` of CUDA tensors."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._values = torch.from_numpy(VALUES).to(gpu.device)

    def __call__(self, masks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.cuda.stream(self._gpu.stream):
            levels = (masks * 255 + 0.5).to(torch.uint8)
            return levels, self._values[levels.long()]  # looked up, not divided: GPUs round a division otherwise
