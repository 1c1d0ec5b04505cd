"""Stage 5, encode: frames become packets of a video stream.

Contract: `Encoder(muxer, info, pix_fmt, config, gpu)` adds its stream to the muxer. `encode(batch)` returns the packets
that are ready, `flush()` the rest, in decoding order; each frame keeps its pts and duration in `info.time_base`.
`formats(codec)` says which members of `frames.FORMATS` it takes. `close()` is called in every way out, after `flush()`
or in place of it, any number of times: it ends the encoder's threads and waits for them, about a second at the most.

`memory` says where it wants frames:

- `host`: `Frame.planes` are NumPy arrays, four of a cut-out. An encoder may keep references to them until their packets
  are out, so nobody writes to them and their memory stays valid while anything references it. On runs with a GPU they
  may be views of page-locked memory that a copy from the GPU has filled. An encoder that hands frames to another
  process has `blocks`, a `shared_memory.BlockPool`: what lies there, said by `FrameBatch.shared`, it does not copy. One
  that has `expect()` is told so, as soon as it is made, that frames will come from a GPU.
- `cuda`: `FrameBatch.planes` are tensors on `gpu.device`, and `Frame.planes` is (). What fills them is queued on
  `gpu.stream`; who reads them on another stream waits there for `FrameBatch.ready`, and keeps a reference until it has
  read them: afterwards their memory is given out again on `gpu.stream`.

`gpu` is the run's `Gpu`, and `None` without a GPU.
"""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

if TYPE_CHECKING:  # the encoders' own process begins here, and needs none of it
    from av.packet import Packet

    from segmentation.config import Config
    from segmentation.frames import FrameBatch, VideoInfo
    from segmentation.media.muxer import Muxer


class Encoder(Protocol):
    memory: ClassVar[Literal["host", "cuda"]]

    def __init__(self, muxer: Muxer, info: VideoInfo, pix_fmt: str, config: Config, gpu: Any = None) -> None: ...

    @staticmethod
    def formats(codec: str) -> tuple[str, ...]: ...

    def encode(self, batch: FrameBatch) -> list[Packet[Any]]: ...

    def flush(self) -> list[Packet[Any]]: ...

    def close(self) -> None: ...
