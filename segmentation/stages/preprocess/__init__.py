"""Stage 2, preprocess: YUV frames become the network's input.

Contract: `Preprocessor(info, pix_fmt, model, config)(batch)` returns (N, 3, model.height, model.width) in
`model.dtype`: `(rgb - mean) / std` with rgb in 0..1, converted with the stream's own matrix and range, turned upright,
squeezed to the network's size. This is the only place where RGB exists. On the host the caller owns the result; on a
GPU the next call writes it again.
"""

from typing import Any, Protocol

from segmentation.config import Config
from segmentation.frames import FrameBatch, VideoInfo
from segmentation.models.model import Model


class Preprocessor(Protocol):
    memory: str  # where it takes frames from and leaves its result: "host" or "cuda"

    def __init__(self, info: VideoInfo, pix_fmt: str, model: Model, config: Config) -> None: ...  # on cuda: and a Gpu

    def __call__(self, batch: FrameBatch) -> Any: ...


def shrink_steps(shape: tuple[int, int], size: tuple[int, int]) -> list[tuple[str, tuple[int, int]]]:
    """How a plane (h, w) is resampled to `size` (width, height) without aliasing: steps of ("half" | "area" | "linear",
    (width, height)).

    It is halved as often as it can be done exactly; for what is left, less than another halving, bilinear
    interpolation reads every pixel. A direction in which it grows is always bilinear.
    """
    (height, width), (target_width, target_height) = shape, size
    steps = []
    while min(height / target_height, width / target_width) >= 2 and not (height % 2 or width % 2):
        height, width = height // 2, width // 2
        steps.append(("half", (width, height)))
    if (width, height) != size:
        if max(height / target_height, width / target_width) > 2:
            width, height = min(width, target_width), min(height, target_height)
            steps.append(("area", (width, height)))
        if (width, height) != size:
            steps.append(("linear", size))
    return steps
