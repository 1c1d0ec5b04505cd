"""Stages as the tests call them: host memory in, host memory out, whichever side computes."""

from functools import cache
from typing import Any

import pytest
from numpy.typing import NDArray

from segmentation.config import Config
from segmentation.effect import effect_on
from segmentation.frames import FORMATS, FrameBatch, VideoInfo
from segmentation.model import Model
from segmentation.postprocess.opencv import OpenCVPostprocessor
from segmentation.preprocess.opencv import OpenCVPreprocessor

SIDES = ["opencv", pytest.param("cuda", marks=pytest.mark.gpu)]
BATCH = 4  # pictures that the GPU's buffers hold: more than most tests fill


@cache
def gpu() -> Any:
    """The GPU that all tests share."""
    from segmentation.gpu import Gpu

    return Gpu()


def preprocess(side: str, info: VideoInfo, pix_fmt: str, model: Model, batch: FrameBatch) -> NDArray[Any]:
    """The network's input (N, 3, H, W)."""
    if side == "opencv":
        return OpenCVPreprocessor(info, pix_fmt, model, Config())(batch)
    from segmentation.preprocess.cuda import CudaPreprocessor
    from segmentation.transfer import Transfer

    transfer = Transfer(gpu(), info, FORMATS[pix_fmt], BATCH)
    stage = CudaPreprocessor(info, pix_fmt, model, Config(batch_size=BATCH), gpu())
    return transfer.rows(stage(transfer.frames(batch, "cuda")), "host", len(batch))


def postprocess(
    side: str,
    info: VideoInfo,
    pix_fmt: str,
    effect: str,
    batch: FrameBatch,
    masks: NDArray[Any],
    classes: tuple[str, ...] = (),
    **options: Any,
) -> FrameBatch:
    """The frames that are shown. `classes` are kept, `options` fields of `Config`."""
    chosen = effect_on(effect, classes)
    config = Config(effect=effect, batch_size=BATCH, **options)
    if side == "opencv":
        return OpenCVPostprocessor(info, pix_fmt, chosen, config)(batch, masks)
    from segmentation.postprocess.cvcuda import CvCudaPostprocessor
    from segmentation.transfer import Transfer

    transfer = Transfer(gpu(), info, FORMATS[pix_fmt], BATCH)
    stage = CvCudaPostprocessor(info, pix_fmt, chosen, config, gpu())
    batch = transfer.which(batch, "cuda")
    moved = transfer.frames(batch, "cuda"), transfer.rows(masks, "cuda", len(batch))
    return transfer.frames(stage(*moved), "host")
