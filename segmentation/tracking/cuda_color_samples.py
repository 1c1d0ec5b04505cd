"""Makes small pictures of frames on a GPU, by one kernel. The formula is in `color_samples.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from segmentation.frames import FORMATS, FrameBatch, VideoInfo
from segmentation.stages.frame_kernels import FRAMES

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu


class CudaColorSamples:
    """Calling it returns the same as `color_samples.color_samples` for a batch on a GPU, in a tensor there."""

    def __init__(self, info: VideoInfo, pix_fmt: str, gpu: Gpu) -> None:
        self._info, self._gpu = info, gpu
        self._kernels = gpu.kernels(FRAMES, FORMATS[pix_fmt], info.orientation)

    def __call__(self, batch: FrameBatch, shape: tuple[int, int]) -> torch.Tensor:
        """Does not wait for the GPU."""
        levels = self._gpu.empty((3, len(batch), *shape), torch.uint8)
        rows, columns = self._info.orientation.size(*shape)
        size = (self._info.width, self._info.height)
        self._kernels("colors", (columns, rows, len(batch)), *batch.planes, *size, levels, columns, rows)
        return levels
