"""Stage 5, encode: frames become packets of a video stream.

Contract: `Encoder(muxer, info, pix_fmt, config)` adds its stream to the muxer. `encode(batch)` returns the packets that
are ready, `flush()` the rest; each frame keeps its pts and duration in `info.time_base`. `formats(codec)` says which
members of `frames.FORMATS` it takes. Frames are read during the call only.
"""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

from typing import Any, Protocol

from av.packet import Packet

from segmentation.config import Config
from segmentation.frames import FrameBatch, VideoInfo
from segmentation.mux import Muxer


class Encoder(Protocol):
    def __init__(self, muxer: Muxer, info: VideoInfo, pix_fmt: str, config: Config) -> None: ...

    @staticmethod
    def formats(codec: str) -> tuple[str, ...]: ...

    def encode(self, batch: FrameBatch) -> list[Packet[Any]]: ...

    def flush(self) -> list[Packet[Any]]: ...
