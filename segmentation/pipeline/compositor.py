"""Refinement and the postprocessors of all outputs, as one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from segmentation.config import Config
from segmentation.frames import Array, FrameBatch, MaskedBatch, Memory, VideoInfo
from segmentation.stages.masks.refinement import Refiner
from segmentation.stages.postprocess import Postprocessor

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu


class Compositor:
    """Makes the frames of every output from one batch. All postprocessors work in the same memory."""

    def __init__(
        self, postprocessors: Sequence[Postprocessor], info: VideoInfo, pix_fmt: str, config: Config, gpu: Gpu | None
    ) -> None:
        self.memory: Memory = postprocessors[0].memory
        self._postprocessors = postprocessors
        self._refine = make_refiner(self.memory, info, pix_fmt, config, gpu) if config.refine else None

    def __call__(self, batch: MaskedBatch) -> tuple[list[FrameBatch], MaskedBatch]:
        """The frames of each output, and the batch with the masks that they show."""
        if self._refine is not None:
            batch = replace(batch, masks=self._refine(batch.frames, batch.masks))
        return [postprocess(batch) for postprocess in self._postprocessors], batch


def make_refiner(
    memory: Memory, info: VideoInfo, pix_fmt: str, config: Config, gpu: Gpu | None
) -> Callable[[FrameBatch, Array], Array]:
    """Returns the refiner of masks in that memory."""
    if memory == "host":
        return Refiner(info, pix_fmt)
    from segmentation.stages.masks.cuda import CudaRefiner  # needs PyTorch

    assert gpu is not None
    return CudaRefiner(info, pix_fmt, config, gpu)
