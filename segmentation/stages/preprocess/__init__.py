"""Stage 2, preprocess: YUV frames become the network's input. The only stage in which RGB exists."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from segmentation.stages import Stage

if TYPE_CHECKING:
    from segmentation.frames import Array, FrameBatch, VideoInfo
    from segmentation.gpu.context import Gpu
    from segmentation.models.model import Model
    from segmentation.options.config import Config

GRAY = 114 / 255  # of the border around a picture that keeps its shape


class Preprocessor(Stage):
    """Calling it returns (N, 3, model.height, model.width) in `model.dtype`, in the stage's own memory.

    That is `(rgb - mean) / std` with rgb in 0..1, converted with the stream's own matrix and range, turned upright and
    resized to the network's size, or to the place that `Model.place_of` says, amid gray. On the host the caller owns
    the result; on a GPU the next call overwrites it.
    """

    @abstractmethod
    def __init__(self, info: VideoInfo, pix_fmt: str, model: Model, config: Config, gpu: Gpu | None) -> None: ...

    @abstractmethod
    def __call__(self, batch: FrameBatch) -> Array: ...
