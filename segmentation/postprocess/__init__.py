"""Stage 4, postprocess: frames and masks become the frames that are shown.

Contract: `Postprocessor(info, pix_fmt, effect)(batch, masks)` takes masks (N, h, w) float32 in 0..1, upright, and
returns a `FrameBatch` with the same pts and new planes of the same size and layout; the input planes are only read.

Every effect is one composite of a foreground and a background plane: `(fg * a + bg * (255 - a)) / 255`, where a is the
mask at the plane's size, 0 to 255. Where a is 255, the foreground comes out bit for bit, luma and chroma.
"""

from typing import Any, Protocol

from segmentation.config import Effect
from segmentation.frames import FrameBatch, VideoInfo


class Postprocessor(Protocol):
    def __init__(self, info: VideoInfo, pix_fmt: str, effect: Effect) -> None: ...

    def __call__(self, batch: FrameBatch, masks: Any) -> FrameBatch: ...
