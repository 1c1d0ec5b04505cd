"""Preprocesses crops on a GPU: one kernel reads the planes of a batch and writes the network's input.

It reads the crops from page-locked memory, and may write pictures there too, for a network on the CPU. So no frame
comes to the host, and a call takes three calls of the driver, of which one releases the GIL: to wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from segmentation.frames import FORMATS, FrameBatch, PixelFormat, VideoInfo
from segmentation.models.model import Model
from segmentation.stages.frame_kernels import FRAMES
from segmentation.stages.preprocess.crops import AT_ONCE, Crop, CropPreprocessor
from segmentation.stages.preprocess.cuda import to_input
from segmentation.stages.preprocess.resampling import halvings

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu

_NUMBERS = 13  # of a `Crop` in crops.cu


class CudaCrops(CropPreprocessor):
    """A `CropPreprocessor` for batches on a GPU."""

    def __init__(self, info: VideoInfo, pix_fmt: str, model: Model, gpu: Gpu) -> None:
        self._info, self._model, self._gpu, self._layout = info, model, gpu, FORMATS[pix_fmt]
        self._kernels = gpu.kernels(FRAMES, self._layout, info.orientation)
        self._crops = gpu.pinned((AT_ONCE, _NUMBERS), torch.int32)
        self._color = gpu.constant(to_input(info, self._layout.bits, model))

    def __call__(self, batch: FrameBatch, crops: Sequence[Crop]) -> NDArray[np.generic]:
        self.write(batch, crops, self._on_host[: len(crops)])
        self._gpu.record_event().synchronize()
        pictures: NDArray[np.float32] = self._on_host.numpy()
        return pictures[: len(crops)].astype(self._model.dtype, copy=False)

    def write(self, batch: FrameBatch, crops: Sequence[Crop], target: torch.Tensor) -> None:
        """Queues the writing of the pictures to `target`, (len(crops), 3, model.height, model.width) float32.

        The GPU must have done that before the next call.
        """
        self._crops.numpy()[: len(crops)] = [described(crop, self._info, self._layout, self._model) for crop in crops]
        width, height = self._model.width, self._model.height
        self._kernels(
            "crop",
            (width, height, len(crops)),
            *batch.planes,
            self._info.width,
            self._info.height,
            self._crops,
            target,
            width,
            height,
            self._color,
        )

    @cached_property
    def _on_host(self) -> torch.Tensor:
        return self._gpu.pinned((AT_ONCE, 3, self._model.height, self._model.width), torch.float32)


def described(crop: Crop, info: VideoInfo, layout: PixelFormat, model: Model) -> tuple[int, ...]:
    """Returns the members of the `Crop` of crops.cu."""
    place = crop.place(info, model)
    size = info.orientation.size(place.width, place.height)
    shapes = layout.shapes(crop.width, crop.height)
    return (*crop, *place, *halvings(shapes[0], size), *halvings(shapes[1], size))
