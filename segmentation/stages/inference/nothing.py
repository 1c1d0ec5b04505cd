"""No network, on a GPU: regions alone are covered, and nothing is looked for."""

from __future__ import annotations

from typing import ClassVar

import torch

from segmentation.errors import BackendError
from segmentation.frames import Memory, VideoInfo
from segmentation.gpu.context import Gpu
from segmentation.models.model import Model
from segmentation.options.anonymize import REGIONS
from segmentation.options.config import Config
from segmentation.stages.inference import Inference, InferenceResult


class NothingInference(Inference):
    """See `segmentation.stages.inference`. Its masks are zeros."""

    memory: ClassVar[Memory] = "cuda"
    workers = 1

    def __init__(self, model: Model, config: Config, gpu: Gpu | None, preloaded: object = None) -> None:
        assert gpu is not None
        self._gpu, self._size = gpu, (model.height, model.width)

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        if config.anonymize != REGIONS:
            raise BackendError("serves regions alone, which need no network")
        return "nothing is looked for: regions alone are covered"

    def __call__(self, tensor: torch.Tensor) -> InferenceResult:
        with torch.cuda.stream(self._gpu.stream):
            return InferenceResult(torch.zeros((len(tensor), *self._size), device=tensor.device), None)
