"""Stage 1, decode: a file becomes batches of YUV frames."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from segmentation.stages import Stage

if TYPE_CHECKING:
    from segmentation.frames import FrameBatch, VideoInfo
    from segmentation.gpu.context import Gpu
    from segmentation.media.source_packets import SourcePackets
    from segmentation.options.config import Config
    from segmentation.stages.decode.nvdec_session_pool import NvdecSessionPool


class Decoder(Stage):
    """An iterable over the frames of a file that can be decoded, each once, in presentation order.

    pts rise strictly, in `info.time_base`. All frames have the size of `info` and the layout `pix_fmt`, a key of
    `frames.FORMATS`. No stage writes to the planes. The decoder does not reuse them while their batch is
    referenced. `config.start`, `duration`, `max_frames` and `batch_size` are obeyed.
    """

    damaged: int  # frames lost or known to be broken; complete when the iteration has ended
    cut_short: bool = False  # the frames are not all as the file has them: reading ended early, or they are turned anew
    source: SourcePackets | None = None  # that it reads, once it has begun

    @abstractmethod
    def __init__(
        self,
        info: VideoInfo,
        pix_fmt: str,
        config: Config,
        gpu: Gpu | None,
        *,
        sessions: NvdecSessionPool | None = None,
    ) -> None:
        """`sessions` lends NVDEC sessions that outlive the file; without it, the decoder makes its own."""

    @abstractmethod
    def __iter__(self) -> Iterator[FrameBatch]:
        """Yields the batches. Raises `InputError` if the file can't be decoded on."""
