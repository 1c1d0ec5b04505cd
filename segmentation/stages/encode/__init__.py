"""Stage 5, encode: turns frames into packets of a video stream."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from segmentation.stages import Stage

if TYPE_CHECKING:  # the encoders' own process imports this package, and needs none of these
    from segmentation.frames import FrameBatch, VideoInfo
    from segmentation.gpu.context import Gpu
    from segmentation.media.muxer import Muxer
    from segmentation.media.video_packet import VideoPacket
    from segmentation.options.config import Config
    from segmentation.stages.encode.worker_process import EncoderService
    from segmentation.system.shared_memory import BlockPool


class Encoder(Stage):
    """Adds a video stream to the muxer, and makes its packets. Frames keep pts and duration, in `info.time_base`.

    `memory` says where it takes frames from:

    - "host": `Frame.planes` are NumPy arrays, four of a cut-out. An encoder may refer to them until their packets are
      out, so no stage writes to them. After a GPU they may be views of page-locked memory.
    - "cuda": `FrameBatch.planes` are tensors on `gpu.device`, and `Frame.planes` is (). The work that fills them is
      queued on `gpu.stream`. An encoder that reads them on another stream makes that stream wait for
      `FrameBatch.ready`, and refers to them until it has read them.
    """

    blocks: BlockPool | None = None  # of an encoder in another process: frames in these blocks are not copied again

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
        """`service` lends processes that outlive the file. Without it an encoder that needs one owns a service.

        Raises `OutputError` where the codec refuses the video or the options.
        """

    @staticmethod
    @abstractmethod
    def formats(codec: str) -> tuple[str, ...]:
        """Returns the keys of `frames.FORMATS` that it can encode with this codec."""

    @abstractmethod
    def encode(self, batch: FrameBatch) -> list[VideoPacket]:
        """Encodes a batch. Returns the packets that are ready, in decoding order."""

    @abstractmethod
    def flush(self) -> list[VideoPacket]:
        """Returns the remaining packets. To be called after the last batch."""

    def prefault(self) -> None:
        """Begins to fault in the memory of `blocks`: a GPU fills memory faster than one thread can fault it in.

        Encoders in this process have no such memory, and do nothing.
        """
