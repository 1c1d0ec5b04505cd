"""Preprocesses frames on the GPU: one kernel reads the planes and writes the network's input.

The kernel takes the place of CV-CUDA, which waits for the whole device each time that it wraps a tensor.
"""

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from segmentation.frames import FORMATS, FrameBatch, Memory, VideoInfo
from segmentation.gpu.context import Gpu
from segmentation.models.detection import Place
from segmentation.models.model import Model
from segmentation.options.config import Config
from segmentation.stages.frame_kernels import FRAMES
from segmentation.stages.preprocess import GRAY, Preprocessor
from segmentation.stages.preprocess.resampling import shrinking


class CudaPreprocessor(Preprocessor):
    """A `Preprocessor` with a CUDA kernel. The next call overwrites the tensor that a call returns."""

    memory: ClassVar[Memory] = "cuda"

    def __init__(self, info: VideoInfo, pix_fmt: str, model: Model, config: Config, gpu: Gpu) -> None:
        self._gpu = gpu
        layout = FORMATS[pix_fmt]
        self._kernels = gpu.kernels(FRAMES, layout, info.orientation)
        self._stored = (info.width, info.height)
        place = model.picture or Place(0, 0, model.width, model.height)
        self._size = info.orientation.size(place.width, place.height)  # as stored
        self._input = (model.width, model.height, place.left, place.top)
        chroma = (-(-info.height >> layout.shift_y), -(-info.width >> layout.shift_x))
        tables = [*shrinking((info.height, info.width), self._size), *shrinking(chroma, self._size)]
        self._tables = list(map(gpu.constant, tables))
        self._color = gpu.constant(to_input(info, layout.bits, model))
        shape = (config.batch_size or 1, 3, model.height, model.width)
        self._planes = gpu.plane_pool([shape], torch.float32).take()  # held for `_tensor`
        (self._tensor,) = self._planes
        if model.picture is not None:  # no call writes to the border
            with torch.cuda.stream(gpu.stream):
                gray = self._color[12:15] * GRAY + self._color[15:18]
                self._tensor.copy_(gray[:, None, None].expand(shape))
        self._half = model.dtype is np.float16

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        return "a kernel of our own"

    def __call__(self, batch: FrameBatch) -> torch.Tensor:
        assert len(batch) <= len(self._tensor), "the kernel would write behind the tensor"
        tables = [argument for table in self._tables for argument in (table, table.shape[1] - 1)]
        self._kernels(
            "preprocess",
            (*self._size, len(batch)),
            *batch.planes,
            *self._stored,
            *tables,
            self._tensor,
            *self._input,
            *self._size,
            self._color,
        )
        if not self._half:
            return self._tensor
        with torch.cuda.stream(self._gpu.stream):
            return self._tensor.half()


def to_input(info: VideoInfo, bits: int, model: Model) -> NDArray[np.float32]:
    """Returns the `ToRgb` of preprocess.cu as 18 numbers, with channels in the network's order.

    The numbers are the matrix (3, 4) from YUV to RGB, the scale of each channel and the offset of each channel.
    """
    order = [2, 1, 0] if model.channel_order == "bgr" else [0, 1, 2]
    matrix = info.color.yuv_to_rgb(bits)[order]
    scale = 1 / np.array(model.std, np.float32)[order]
    offset = -np.array(model.mean, np.float32)[order] * scale
    return np.concatenate([matrix.ravel(), scale, offset]).astype(np.float32)
