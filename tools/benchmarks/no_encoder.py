"""An encoder that throws frames away, to measure what comes before."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

from collections import deque
from dataclasses import replace
from typing import Any, ClassVar, Literal

from av.packet import Packet

from segmentation.frames import FORMATS, FrameBatch, VideoInfo
from segmentation.gpu.cuda_calls import Event
from segmentation.gpu.transfer import GpuTransfer
from segmentation.media.cuts import Cuts, Cutter
from segmentation.media.muxer import Muxer
from segmentation.options.config import Config
from segmentation.stages.encode import Encoder
from segmentation.stages.encode.pyav import PyAVEncoder
from segmentation.stages.encode.segments import JoinedStream

_AHEAD = 2  # batches whose work may be queued on the GPU: with a real encoder the host waits for them too


_NOTHING = bytes((0, 0, 0, 1, 12, 255, 128))  # a unit of H.264 that decoders skip: filler data
_SEGMENT = 60  # frames


class NoEncoder(Encoder):
    """See `segmentation.stages.encode`. Encodes the first frame, so that the file is valid, and drops the others."""

    memory: ClassVar[Literal["cuda"]] = "cuda"

    def __init__(
        self, muxer: Muxer, info: VideoInfo, pix_fmt: str, config: Config, gpu: Any, *, service: object = None
    ) -> None:
        self._gpu = gpu
        self._encoder = PyAVEncoder(muxer, info, pix_fmt, config, threads=1)  # more make opening it slow
        self._move = GpuTransfer(gpu, info, FORMATS[pix_fmt], config.batch_size or 1)
        self._queued: deque[Event] = deque()
        self._begun = False

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        return "encodes nothing"

    @staticmethod
    def formats(codec: str) -> tuple[str, ...]:
        return PyAVEncoder.formats(codec)

    def encode(self, batch: FrameBatch) -> list[Packet[Any]]:
        packets = []
        if not self._begun:
            first = replace(batch, frames=batch.frames[:1])
            packets = self._encoder.encode(self._move.frames(first, "host"))
        self._begun = True
        self._queued.append(self._gpu.record_event())
        if len(self._queued) > _AHEAD:
            self._queued.popleft().synchronize()
        return packets

    def flush(self) -> list[Packet[Any]]:
        self._gpu.stream.synchronize()
        return self._encoder.flush()

    def close(self) -> None:
        self._encoder.close()


class NoSegments(JoinedStream):
    """See `SegmentEncoder`. Each frame's packet holds no picture, so that pieces are made and joined as ever."""

    memory: ClassVar[Literal["cuda"]] = "cuda"  # type: ignore[assignment]

    def __init__(
        self, muxer: Muxer, info: VideoInfo, pix_fmt: str, config: Config, gpu: Any, *, service: object = None
    ) -> None:
        super().__init__(muxer, info, pix_fmt, config)
        self._gpu = gpu
        self._cutter = Cutter(muxer.cuts or Cuts(_SEGMENT))
        self._queued: deque[Event] = deque()

    def encode(self, batch: FrameBatch) -> list[Packet[Any]]:
        self._queued.append(self._gpu.record_event())
        if len(self._queued) > _AHEAD:
            self._queued.popleft().synchronize()
        packets = [Packet(_NOTHING) for _ in batch.frames]
        for packet, frame in zip(packets, batch.frames, strict=True):
            packet.pts, packet.duration = frame.pts, frame.duration
            packet.is_keyframe = self._cutter.begins(frame.pts)
        return self.joined(packets)

    def flush(self) -> list[Packet[Any]]:
        self._gpu.stream.synchronize()
        return []
