"""The surfaces that NVENC reads: their layout in device memory, and how frames get there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from av.video.frame import CudaContext, VideoFrame

from segmentation.frames import FORMATS, FrameBatch, VideoInfo
from segmentation.stages.encode.pyav import round_up
from segmentation.stages.frame_kernels import FRAMES

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu

_PITCH_SHIFT = 8  # log2 of the bytes of which rows are multiples long; NVENC requires multiples of 4


class SurfaceLayout:
    """NVENC's layout of pictures in device memory, padded to even sizes.

    Surfaces are (N, height * 3/2, pitch), uint8, or uint16 with the 10 bits at the top: rows of luma, then rows of U
    and V interleaved. They follow each other without a gap, since NVENC gets the address of the luma alone.
    """

    def __init__(self, info: VideoInfo, pix_fmt: str, gpu: Gpu) -> None:
        """`pix_fmt` is that of the planes: 4:2:0 in 8 or 10 bits."""
        layout = FORMATS[pix_fmt]
        self.format = "nv12" if layout.bits == 8 else "p010le"
        self.width, self.height = round_up(info.width, 1), round_up(info.height, 1)
        self._gpu, self._size = gpu, (info.width, info.height)
        self._dtype = torch.uint8 if layout.bits == 8 else torch.uint16
        self._pitch = round_up(self.width * self._dtype.itemsize, _PITCH_SHIFT) // self._dtype.itemsize  # samples
        self._kernels = gpu.kernels(FRAMES, layout)

    def empty(self, count: int) -> torch.Tensor:
        """Returns memory for `count` surfaces, with arbitrary content."""
        return self._gpu.empty((count, self.height * 3 // 2, self._pitch), self._dtype)

    def fill(self, surfaces: torch.Tensor, batch: FrameBatch) -> None:
        """Queues the conversion of a batch's planes to the first surfaces, on the stages' stream."""
        size = (self.width // 2, self.height // 2, len(batch))
        self._kernels("to_surfaces", size, *batch.planes, surfaces, *self._size, self._pitch)

    def wrap(self, surface: torch.Tensor, context: CudaContext) -> VideoFrame:
        """Returns a frame for FFmpeg that refers to one surface."""
        luma, chroma = surface[: self.height, : self.width], surface[self.height :, : self.width]
        # Stream -1: FFmpeg waits for no stream.
        return VideoFrame.from_dlpack((luma, chroma), self.format, stream=-1, cuda_context=context)
