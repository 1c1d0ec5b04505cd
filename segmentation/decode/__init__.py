"""Stage 1, decode: a file becomes batches of YUV frames.

Contract: `Decoder(info, pix_fmt, config)` is an iterable of `FrameBatch`. Every frame that can be decoded comes out
once, in presentation order, with strictly rising pts in `info.time_base`; all frames have the size of `info` and the
layout `pix_fmt`, a member of `frames.FORMATS`. The planes handed out belong to the batch: they are not reused while
it is referenced, and nobody writes to them. `config.start`, `duration`, `max_frames` and `batch_size` are obeyed.

`damaged` counts the frames that were lost or are known to be broken; it is complete when the iteration has ended.
"""

from collections.abc import Iterator
from typing import Protocol

from segmentation.config import Config
from segmentation.frames import FrameBatch, VideoInfo


class Decoder(Protocol):
    damaged: int

    def __init__(self, info: VideoInfo, pix_fmt: str, config: Config) -> None: ...

    def __iter__(self) -> Iterator[FrameBatch]: ...
