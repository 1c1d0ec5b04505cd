"""Copies NVDEC's surfaces into planes, before the session overwrites them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numpy import int64, uint64

from segmentation.frames import PixelFormat, VideoInfo
from segmentation.stages.decode.chunks import size_changes
from segmentation.stages.frame_kernels import FRAMES

if TYPE_CHECKING:  # both import libraries that machines without a GPU lack
    from segmentation.gpu.context import Gpu
    from segmentation.gpu.plane_pool import DevicePlanes
    from segmentation.stages.decode.nvdec_session import Surface


class SurfaceUnpacker:
    """Queues copies on `gpu`'s stream, which must be the stream of the session."""

    def __init__(self, gpu: Gpu, info: VideoInfo, layout: PixelFormat) -> None:
        self._info, self._layout = info, layout
        self._kernels = gpu.kernels(FRAMES, layout)

    def __call__(self, surface: Surface, planes: DevicePlanes, row: int) -> None:
        """Copies a surface into row `row` of planes (N, h, w). Raises `InputError` if it has another size."""
        width, height = self._info.width, self._info.height
        rows, pitch = surface.shape[0], surface.strides[0]
        if (rows, surface.shape[1]) != (height * 3 // 2 if self._layout.shift_y else height * 3, width):
            raise size_changes(self._info)
        shift = 0 if self._layout.bits == 8 else 6
        pointer = uint64(surface.GetPtrToPlane(0))
        self._kernels("unpack", (-(-width // 4), height, 1), pointer, int64(pitch), *planes, width, height, row, shift)
