"""Steadying and refining masks on the GPU, see `temporal.py` and `refine.py`, whose formulas `masks.cu` follows.

A batch takes nine launches, whatever its size. What nobody else sees is written into the same buffers again each
time: asking for memory takes the host longer than queueing a kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from segmentation import refine, temporal
from segmentation.config import Config
from segmentation.frames import FORMATS, FrameBatch, VideoInfo
from segmentation.kernels import MASKS
from segmentation.model import Model
from segmentation.preprocess.tables import shrinking

if TYPE_CHECKING:  # it needs libraries that machines without a GPU lack, on which the tests run this all the same
    from segmentation.gpu import Gpu


class CudaAveraging:
    """See `temporal.Averaging`. Of a frame a row of a tensor is kept: `Records` of masks.cu."""

    def __init__(self, model: Model, config: Config, gpu: Gpu) -> None:
        self._gpu = gpu
        self._count = config.batch_size or 1
        self._kernels = gpu.kernels(FORMATS["yuv420p"], source=MASKS)  # that of frames does not matter
        self._strength = np.float32(config.steadiness)
        self._shares = torch.from_numpy(temporal.luma_shares(model).copy()).to(gpu.device)
        self._shape = (0, 0)
        self._scratch: list[torch.Tensor] = []  # changes, their sums, weights; made when the masks' size is known

    def kept(self, tensor: torch.Tensor, masks: torch.Tensor, count: int) -> torch.Tensor:
        height, width = self._shape = (masks.shape[1], masks.shape[2])
        columns, rows = self._blocks()
        size = height * width + -(-height // 2) * -(-width // 2) + columns * rows
        records = self._gpu.empty((count, size), torch.float32)
        with torch.cuda.stream(self._gpu.stream):
            seen = tensor.float()
        self._kernels(
            "keep",
            (columns, rows, count),
            *(masks, seen, tensor.shape[3], tensor.shape[2], self._shares, records, width, height),
        )
        return records

    def joined(self, known: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        self._gpu.enter()
        with torch.cuda.stream(self._gpu.stream):
            return torch.cat([known, kept])

    def averaged(self, known: torch.Tensor, first: int, count: int) -> torch.Tensor:
        self._gpu.enter()
        height, width = self._shape
        columns, rows = self._blocks()
        if not self._scratch:
            most = 2 * temporal.REACH * self._count
            shapes = ((most, rows, columns), (most, columns), (most, rows, columns))
            self._scratch = [self._gpu.empty(shape, torch.float32) for shape in shapes]
        changes, sums, weights = self._scratch
        pairs, last = 2 * temporal.REACH * count, len(known) - 1
        masks = self._gpu.empty((count, height, width), torch.float32)
        frames = (known, width, height, first, last)
        self._kernels("change", (columns, rows, pairs), *frames, changes, sums)
        self._kernels("weigh", (columns, rows, pairs), *frames, self._strength, changes, sums, weights)
        self._kernels("average", (width, height, count), *frames, weights, masks)
        return masks

    def _blocks(self) -> tuple[int, int]:
        """Columns and rows of blocks of a mask."""
        height, width = self._shape
        return -(-width // temporal.BLOCK), -(-height // temporal.BLOCK)


class CudaRefiner:
    """See `refine.Refiner`. The masks returned are written again by the next call."""

    def __init__(self, info: VideoInfo, pix_fmt: str, config: Config, gpu: Gpu) -> None:
        layout = FORMATS[pix_fmt]
        self._gpu = gpu
        self._count = config.batch_size or 1
        self._turns = info.rotation // 90
        self._kernels = gpu.kernels(layout, self._turns, MASKS)
        self._stored = (info.width, info.height)
        self._picture = refine.upright_size(info)
        self._peak = (1 << layout.bits) - 1
        # Made when the masks' size is known: arguments of the kernel `guide`, and what the kernels write.
        self._tables: list[Any] = []
        self._buffers: list[torch.Tensor] = []

    def __call__(self, batch: FrameBatch, masks: torch.Tensor) -> torch.Tensor:
        height, width = masks.shape[1:]
        size = refine.refined_size((height, width), self._picture)
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
