"""Stage 4, postprocess: frames and masks become the frames that are shown.

Contract: `Postprocessor(info, pix_fmt, effect, config)(batch, masks)` takes masks (N, h, w) float32 in 0..1, upright,
and returns a `FrameBatch` with the same pts and new planes of the same size and layout; the input planes are only read.
With the effect `cutout` a fourth plane is alpha, as large as luma. `close()` is called in every way out.

Every effect is one composite of a foreground and a background plane: `(fg * a + bg * (255 - a)) / 255`, where a is the
mask at the plane's size, 0 to 255, made as `edge.py` says. Where a is 255, the foreground comes out bit for bit, luma
and chroma.
"""

import math
from typing import Any, Protocol

from segmentation.config import Config
from segmentation.effect import Effect
from segmentation.frames import FrameBatch, VideoInfo

# Where the background is replaced, what is left of the old one at the edge is taken off, estimated by a blur as weak as
# this: near enough to be the background's own color, wide enough to reach over the edge.
OLD_BACKGROUND = 16.0


class Postprocessor(Protocol):
    memory: str  # where it takes frames and masks from, and leaves frames: "host" or "cuda"

    def __init__(self, info: VideoInfo, pix_fmt: str, effect: Effect, config: Config) -> None: ...  # on cuda: and a Gpu

    def __call__(self, batch: FrameBatch, masks: Any) -> FrameBatch: ...

    def close(self) -> None: ...


def blur_scale(size: tuple[int, int], strength: float, least: float = 2) -> tuple[tuple[int, int], float]:
    """The size (width, height) at which a blur is computed, and its standard deviation there, in pixels.

    `strength` is a standard deviation in pixels of a picture whose shorter side has 1080. A strong blur leaves no
    detail that a smaller picture could not hold: the picture is halved while its standard deviation stays `least`.
    """
    sigma = strength * min(size) / 1080
    factor = 1 << max(0, math.floor(math.log2(sigma / least)))
    return (-(-size[0] // factor), -(-size[1] // factor)), sigma / factor


def gaussian_side(sigma: float) -> int:
    """Pixels a side of a Gaussian's kernel, as OpenCV chooses it for floating point: four sigma from the middle."""
    return round(sigma * 8 + 1) | 1


def block_side(size: tuple[int, int], block: float) -> int:
    """Pixels a side of blocks that have `block` where the shorter side has 1080: even, to end with chroma's."""
    return max(2, 2 * round(block * min(size) / 2160))
