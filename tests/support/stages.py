"""Stages as the tests call them: host memory in, host memory out, whichever side computes.

Sides are "opencv", "cuda", and "host": the GPU's stages with their kernels compiled for the CPU, see host_kernels.
"""

from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from numpy.typing import NDArray

from segmentation.frames import FORMATS, FrameBatch, MaskedBatch, VideoInfo
from segmentation.models.model import Model
from segmentation.options.config import Config
from segmentation.options.effect import Effect
from segmentation.stages.postprocess.opencv import OpenCVPostprocessor
from segmentation.stages.preprocess.opencv import OpenCVPreprocessor

GPU_SIDES = ["host", pytest.param("cuda", marks=pytest.mark.gpu)]
SIDES = ["opencv", *GPU_SIDES]
BATCH = 4  # pictures that the GPU's buffers hold: more than most tests fill


@cache
def gpu() -> Any:
    """The GPU that all tests share."""
    from segmentation.gpu.context import Gpu

    return Gpu()


def gpu_stages(side: str) -> tuple[Any, Any]:
    """The GPU of a side, and `CvCudaPostprocessor`, preprocessors and `GpuTransfer` as they are there."""
    if side == "cuda":
        from segmentation.gpu.transfer import GpuTransfer
        from segmentation.stages.postprocess.cvcuda import CvCudaPostprocessor
        from segmentation.stages.preprocess.cuda import CudaPreprocessor
        from segmentation.stages.preprocess.cuda_crops import CudaCrops

        stages = (CvCudaPostprocessor, CudaPreprocessor, CudaCrops, GpuTransfer)
        return gpu(), SimpleNamespace(**{stage.__name__: stage for stage in stages})
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    from host_kernels import HostGpu, host_stages

    return HostGpu(), host_stages()


def preprocess(side: str, info: VideoInfo, pix_fmt: str, model: Model, batch: FrameBatch) -> NDArray[Any]:
    """The network's input (N, 3, H, W)."""
    if side == "opencv":
        return OpenCVPreprocessor(info, pix_fmt, model, Config())(batch)
    device, there = gpu_stages(side)
    transfer = there.GpuTransfer(device, info, FORMATS[pix_fmt], BATCH)
    stage = there.CudaPreprocessor(info, pix_fmt, model, Config(batch_size=BATCH), device)
    return transfer.rows(stage(transfer.frames(batch, "cuda")), "host", len(batch))


def postprocess(
    side: str,
    info: VideoInfo,
    pix_fmt: str,
    effect: str,
    batch: FrameBatch,
    masks: NDArray[Any],
    classes: tuple[str, ...] = (),
    class_map: NDArray[Any] | None = None,
    **options: Any,
) -> FrameBatch:
    """Returns the frames that are shown. `classes` are kept, `options` are fields of `Config`."""
    chosen = Effect.parse(effect).on(classes)
    config = Config(effect=effect, batch_size=BATCH, **options)
    masked = MaskedBatch(frames=batch, masks=masks, class_map=class_map)
    if side == "opencv":
        return OpenCVPostprocessor(info, pix_fmt, chosen, config)(masked)
    device, there = gpu_stages(side)
    transfer = there.GpuTransfer(device, info, FORMATS[pix_fmt], BATCH)
    stage = there.CvCudaPostprocessor(info, pix_fmt, chosen, config, device)
    shown: FrameBatch = transfer.frames(stage(masked.to("cuda", transfer)), "host")
    return shown
