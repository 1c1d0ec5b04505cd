"""Stage 2, preprocess: YUV frames become the network's input.

Contract: `Preprocessor(info, pix_fmt, model)(batch)` returns (N, 3, model.height, model.width) in `model.dtype`:
`(rgb - mean) / std` with rgb in 0..1, converted with the stream's own matrix and range, turned upright, squeezed to the
network's size. This is the only place where RGB exists. The caller owns the result.
"""

from typing import Any, Protocol

from segmentation.frames import FrameBatch, VideoInfo
from segmentation.model import Model


class Preprocessor(Protocol):
    def __init__(self, info: VideoInfo, pix_fmt: str, model: Model) -> None: ...

    def __call__(self, batch: FrameBatch) -> Any: ...
