"""Postprocessing on the GPU: the background is reduced, blurred by CV-CUDA, and put behind in one pass."""

from dataclasses import replace
from typing import Any

import cvcuda
import numpy as np
import torch

from segmentation.config import Config, Effect
from segmentation.frames import FORMATS, FrameBatch, VideoInfo
from segmentation.gpu import Gpu, torch_dtype
from segmentation.postprocess import blur_scale

Planes = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class CvCudaPostprocessor:
    """See `segmentation.postprocess`."""

    memory = "cuda"

    def __init__(self, info: VideoInfo, pix_fmt: str, effect: Effect, config: Config, gpu: Gpu) -> None:
        self._gpu = gpu
        self._layout = FORMATS[pix_fmt]
        self._turns = info.rotation // 90
        self._kernels = gpu.kernels(self._layout, self._turns)
        self._dtype = torch_dtype(self._layout)
        self._size = (info.width, info.height)
        self._effect = effect
        bits = self._layout.bits
        self._plain = self._colour(info.colour.from_rgb((0, 0, 0) if effect.kind == "mask" else effect.rgb, bits))
        self._white = self._colour(info.colour.from_rgb((255, 255, 255), bits))
        if effect.kind == "blur":
            self._blur = _Blur(self, config.batch_size or 1)

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        return f"CV-CUDA {cvcuda.__version__} and kernels of our own, {config.effect}"

    def __call__(self, batch: FrameBatch, masks: torch.Tensor) -> FrameBatch:
        shown = tuple(self._gpu.empty(tuple(plane.shape), self._dtype) for plane in batch.planes)
        y, u, v = batch.planes
        match self._effect.kind:
            case "blur":
                behind, size = self._blur(batch, masks)
                stride = size[0] * size[1]
            case _:
                behind, size, stride = self._plain, (1, 1), 0
        foreground = self._white if self._effect.kind == "mask" else (y, u, v)
        chroma_height, chroma_width = u.shape[1:]
        self._kernels(
            "composite",
            (chroma_width, chroma_height, len(batch)),
            *(*foreground, int(self._effect.kind == "mask"), *self._size),
            *(masks, *self.stored(masks)),
            *(*behind, np.int64(stride), *size, int(self._effect.kind == "overlay")),
            *shown,
        )
        return replace(batch, planes=shown)

    def stored(self, masks: torch.Tensor) -> tuple[int, int]:
        """Width and height of upright masks (N, h, w) when they lie as frames are stored."""
        height, width = masks.shape[1:]
        return (height, width) if self._turns % 2 else (width, height)

    def _colour(self, yuv: tuple[int, int, int]) -> Planes:
        y, u, v = torch.tensor(yuv, dtype=self._dtype, device=self._gpu.device).split(1)
        return y, u, v


class _Blur:
    """blur(I * (1 - a)) / blur(1 - a) at reduced size, as small planes (N, h, w), in buffers that are made once."""

    def __init__(self, owner: Any, count: int) -> None:
        self._owner = owner
        (width, height), self._sigma = blur_scale(owner._size, owner._effect.strength)
        self.size = (width, height)
        self._layers, self._blurred = (owner._gpu.empty((count, height, width, 4), torch.float32) for _ in range(2))
        self._wrapped = [cvcuda.as_tensor(layer, "NHWC") for layer in (self._layers, self._blurred)]
        self._small = tuple(owner._gpu.empty((count, height, width), owner._dtype) for _ in range(3))

    def __call__(self, batch: FrameBatch, masks: torch.Tensor) -> tuple[Planes, tuple[int, int]]:
        owner, (width, height), count = self._owner, self.size, len(batch)
        owner._kernels(
            "reduce",
            (width, height, count),
            *(*batch.planes, *owner._size, masks, *owner.stored(masks), self._layers, width, height),
        )
        side = round(self._sigma * 8 + 1) | 1  # as OpenCV chooses it for floating point
        source, target = self._wrapped
        cvcuda.gaussian_into(
            target, source, (side, side), (self._sigma, self._sigma), cvcuda.Border.REFLECT101,
            stream=owner._gpu.cvcuda_stream,
        )  # fmt: skip
        owner._kernels("divide", (width, height, count), self._blurred, *self._small, width, height)
        y, u, v = self._small
        return (y, u, v), self.size
