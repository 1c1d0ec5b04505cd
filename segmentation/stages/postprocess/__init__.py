"""Stage 4, postprocess: frames and masks become the frames that are shown."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from segmentation.stages import Stage

if TYPE_CHECKING:
    from segmentation.frames import FrameBatch, MaskedBatch, VideoInfo
    from segmentation.gpu.context import Gpu
    from segmentation.options.config import Config
    from segmentation.options.effect import Effect


class Postprocessor(Stage):
    """Calling it with frames and their masks returns frames with the same pts and new planes of the same layout.

    The input planes are only read. With the effect `cutout` a fourth plane is alpha, as large as luma.

    Every effect is one composite of a foreground and a background plane: `(fg * a + bg * (255 - a)) / 255`, where a is
    the mask at the plane's size, 0 to 255, made as `edge.py` says. Where a is 255, the foreground comes out bit for
    bit, luma and chroma.
    """

    @abstractmethod
    def __init__(self, info: VideoInfo, pix_fmt: str, effect: Effect, config: Config, gpu: Gpu | None) -> None: ...

    @abstractmethod
    def __call__(self, batch: MaskedBatch) -> FrameBatch: ...
