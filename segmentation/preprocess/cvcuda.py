"""Preprocessing on the GPU: CV-CUDA shrinks the planes, one kernel makes the network's input of the few pixels left."""

import cvcuda
import numpy as np
import torch

from segmentation.config import Config
from segmentation.frames import FORMATS, FrameBatch, VideoInfo
from segmentation.gpu import Gpu, torch_dtype
from segmentation.model import Model
from segmentation.preprocess import shrink_steps

_INTERPOLATION = {"half": cvcuda.Interp.AREA, "area": cvcuda.Interp.AREA, "linear": cvcuda.Interp.LINEAR}


class CvCudaPreprocessor:
    """See `segmentation.preprocess`. The tensor returned is used again for the next batch."""

    memory = "cuda"

    def __init__(self, info: VideoInfo, pix_fmt: str, model: Model, config: Config, gpu: Gpu) -> None:
        self._gpu = gpu
        self._layout = FORMATS[pix_fmt]
        turns = info.rotation // 90
        self._kernels = gpu.kernels(self._layout, turns)
        self._count = config.batch_size or 1
        height, width = (model.height, model.width) if turns % 2 == 0 else (model.width, model.height)
        self._size = (width, height)  # as stored
        chroma = (-(-info.height >> self._layout.shift_y), -(-info.width >> self._layout.shift_x))
        self._planes = [self._chain(shape) for shape in ((info.height, info.width), chroma, chroma)]
        self._colour = torch.from_numpy(_to_input(info, self._layout.bits, model)).to(gpu.device)
        with torch.cuda.stream(gpu.stream):
            shape = (self._count, 3, model.height, model.width)
            self._tensor = torch.zeros(shape, dtype=torch.float32, device=gpu.device)
        self._half = model.dtype is np.float16

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        return f"CV-CUDA {cvcuda.__version__} and a kernel of our own"

    def __call__(self, batch: FrameBatch) -> torch.Tensor:
        y, u, v = (self._shrunk(plane, chain) for plane, chain in zip(batch.planes, self._planes, strict=True))
        width, height = self._size
        self._kernels("normalise", (width, height, len(batch)), y, u, v, self._tensor, width, height, self._colour)
        with torch.cuda.stream(self._gpu.stream):
            return self._tensor.half() if self._half else self._tensor

    def _chain(self, shape: tuple[int, int]) -> list[tuple[cvcuda.Interp, torch.Tensor, cvcuda.Tensor]]:
        """The steps that shrink a plane (h, w) to the network's size, each with the buffer that it fills."""
        steps = shrink_steps(shape, self._size)
        # Halvings that follow each other are one average over an area of 4x4, 8x8, ... pixels.
        steps = [step for i, step in enumerate(steps) if i + 1 == len(steps) or steps[i + 1][0] != "half"]
        chain = []
        for kind, (width, height) in steps:
            buffer = self._gpu.empty((self._count, height, width, 1), torch_dtype(self._layout))
            chain.append((_INTERPOLATION[kind], buffer, cvcuda.as_tensor(buffer, "NHWC")))
        return chain

    def _shrunk(
        self, plane: torch.Tensor, chain: list[tuple[cvcuda.Interp, torch.Tensor, cvcuda.Tensor]]
    ) -> torch.Tensor:
        source = cvcuda.as_tensor(plane.unsqueeze(-1), "NHWC")
        for interpolation, buffer, target in chain:
            cvcuda.resize_into(target, source, interpolation, stream=self._gpu.cvcuda_stream)
            plane, source = buffer, target
        return plane


def _to_input(info: VideoInfo, bits: int, model: Model) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """`ToRgb` of kernels.cu: the matrix (3, 4) from YUV to RGB, then scale and offset of each channel, in the network's
    channel order."""
    order = [2, 1, 0] if model.channel_order == "bgr" else [0, 1, 2]
    matrix = info.colour.yuv_to_rgb(bits)[order]
    scale = 1 / np.array(model.std, np.float32)[order]
    offset = -np.array(model.mean, np.float32)[order] * scale
    return np.concatenate([matrix.ravel(), scale, offset]).astype(np.float32)
