"""Reduces decoded frames to a few numbers each, by which `verify` recognizes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from segmentation.frames import Array, FrameBatch, Plane

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu

SIDE = 8  # a thumbnail has 8x8 means of luma, less where the picture has fewer rows or columns


def thumbnails(batch: FrameBatch, gpu: Gpu | None) -> Array:
    """Returns the thumbnails of a batch, (N, h, w) float32 in sample values, where its pictures are."""
    if gpu is None or batch.memory == "host":
        return np.stack([thumbnail(frame.planes[0]) for frame in batch.frames])
    import torch

    with torch.cuda.stream(gpu.stream):
        luma = batch.planes[0][: len(batch)]
        if luma.dtype == torch.uint16:  # PyTorch has few operations for it, and 10 bits are the same in int16
            luma = luma.view(torch.int16)
        rows, columns = _cells(*luma.shape[1:])
        height, width = luma.shape[1] // rows, luma.shape[2] // columns
        cells = luma[:, : rows * height, : columns * width].float().reshape(-1, rows, height, columns, width)
        return cells.mean((2, 4))


def thumbnail(luma: Plane) -> NDArray[np.float32]:
    """Returns the thumbnail of one picture, (h, w) float32. Rows and columns that fill no cell are left out."""
    rows, columns = _cells(*luma.shape)
    height, width = luma.shape[0] // rows, luma.shape[1] // columns
    cells = luma[: rows * height, : columns * width].reshape(rows, height, columns, width)
    means: NDArray[np.float32] = cells.mean((1, 3), dtype=np.float32)
    return means


def _cells(height: int, width: int) -> tuple[int, int]:
    return min(SIDE, height), min(SIDE, width)
