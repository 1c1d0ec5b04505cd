"""Stage 4, postprocess: frames and masks become the frames that are shown.

Contract: `Postprocessor(info, pix_fmt, effect, config)(batch, masks)` takes masks (N, h, w) float32 in 0..1, upright,
and returns a `FrameBatch` with the same pts and new planes of the same size and layout; the input planes are only read.

Every effect is one composite of a foreground and a background plane: `(fg * a + bg * (255 - a)) / 255`, where a is the
mask at the plane's size, 0 to 255. Where a is 255, the foreground comes out bit for bit, luma and chroma.
"""

import math
from typing import Any, Protocol

from segmentation.config import Config, Effect
from segmentation.frames import FrameBatch, VideoInfo


class Postprocessor(Protocol):
    memory: str  # where it takes frames and masks from, and leaves frames: "host" or "cuda"

    def __init__(self, info: VideoInfo, pix_fmt: str, effect: Effect, config: Config) -> None: ...  # on cuda: and a Gpu

    def __call__(self, batch: FrameBatch, masks: Any) -> FrameBatch: ...


def blur_scale(size: tuple[int, int], strength: float) -> tuple[tuple[int, int], float]:
    """The size (width, height) at which a blur is computed, and its standard deviation there, in pixels.

    A strong blur leaves no detail that a smaller picture could not hold: the picture is shrunk until sigma is 2 to 4.
    """
    sigma = strength * min(size) / 1080
    factor = 1 << max(0, math.floor(math.log2(sigma / 2)))
    return (-(-size[0] // factor), -(-size[1] // factor)), sigma / factor
