"""Stage 1, decode: a file becomes batches of YUV frames.

Contract: `Decoder(info, pix_fmt, config)`, on a GPU with a `Gpu` as the last argument, is an iterable of `FrameBatch`.
Every frame that can be decoded comes out once, in presentation order, with strictly rising pts in `info.time_base`; all
frames have the size of `info` and the layout `pix_fmt`, a member of `frames.FORMATS`. The planes handed out belong to
the batch: they are not reused while it is referenced, and nobody writes to them. `memory` says where they are: "host",
NumPy arrays in each frame, or "cuda", the batch's tensors. `close()`, where there is one, ends the decoder's threads in
every way out. `config.start`, `duration`, `max_frames` and `batch_size` are obeyed.

`damaged` counts the frames that were lost or are known to be broken; it is complete when the iteration has ended.
"""

from collections.abc import Iterator
from typing import Protocol

from segmentation.config import Config
from segmentation.frames import FrameBatch, VideoInfo


class Decoder(Protocol):
    memory: str
    damaged: int

    def __init__(self, info: VideoInfo, pix_fmt: str, config: Config) -> None: ...

    def __iter__(self) -> Iterator[FrameBatch]: ...
