"""Preprocesses crops with OpenCV on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from segmentation.frames import FORMATS, FrameBatch, VideoInfo
from segmentation.models.model import Model
from segmentation.options.config import Config
from segmentation.stages.preprocess.crops import Crop, CropPreprocessor, cut
from segmentation.stages.preprocess.opencv import OpenCVPreprocessor


class OpenCVCrops(CropPreprocessor):
    """A `CropPreprocessor` for batches on the host."""

    def __init__(self, info: VideoInfo, pix_fmt: str, model: Model, config: Config) -> None:
        self._layout = FORMATS[pix_fmt]
        self._preprocess = OpenCVPreprocessor(info, pix_fmt, model, config)

    def __call__(self, batch: FrameBatch, crops: Sequence[Crop]) -> NDArray[np.generic]:
        frames = tuple(cut(batch.frames[crop.frame], crop, self._layout) for crop in crops)
        return self._preprocess(FrameBatch(frames=frames, index=batch.index))
