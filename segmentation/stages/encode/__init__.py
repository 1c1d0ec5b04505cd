"""Stage 5, encode: frames become packets of a video stream."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from segmentation.stages import Stage

if TYPE_CHECKING:  # the encoders' own process imports this package, and needs none of these
    from av.packet import Packet

    from segmentation.config import Config
    from segmentation.frames import FrameBatch, VideoInfo
    from segmentation.gpu.context import Gpu
    from segmentation.media.muxer import Muxer
    from segmentation.shared_memory import BlockPool
    from segmentation.stages.encode.worker_process import EncoderService


class Encoder(Stage):
    """Adds its stream to the muxer. Each frame keeps its pts and duration in `info.time_base`.

    `memory` says where it wants frames:

    - "host": `Frame.planes` are NumPy arrays, four of a cut-out. An encoder may keep references to them until their
      packets are out, so no stage writes to them. On runs with a GPU they may be views of pinned memory that a copy
      from the GPU has filled.
    - "cuda": `FrameBatch.planes` are tensors on `gpu.device`, and `Frame.planes` is (). The work that fills them is
      queued on `gpu.stream`. An encoder that reads them on another stream makes that stream wait for
      `FrameBatch.ready`, and keeps a reference until it has read them.
    """

    blocks: BlockPool | None = (
        None  # of an encoder in another process: frames in it (`FrameBatch.shared`) aren't copied
    )

    @abstractmethod
    def __init__(
        self,
        muxer: Muxer,
        info: VideoInfo,
        pix_fmt: str,
        config: Config,
        gpu: Gpu | None,
        *,
        service: EncoderService | None = None,
    ) -> None:
        """`service` lends processes that outlive the file. Without it an encoder that needs one owns a service."""

    @staticmethod
    @abstractmethod
    def formats(codec: str) -> tuple[str, ...]:
        """The keys of `frames.FORMATS` that it takes for this codec."""

    @abstractmethod
    def encode(self, batch: FrameBatch) -> list[Packet[Any]]:
        """The packets that are ready, in decoding order."""

    @abstractmethod
    def flush(self) -> list[Packet[Any]]:
        """The packets that are left, after the last batch."""

    def prefault(self) -> None:  # only an encoder in another process has memory to make ready
        """Makes the memory of `blocks` ready: frames will come from a GPU, faster than they can be encoded."""
