"""An encoder that throws frames away, to measure what comes before."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

from collections import deque
from typing import Any, ClassVar, Literal

from av.packet import Packet

from segmentation.frames import Frame, FrameBatch, VideoInfo
from segmentation.gpu.cuda_calls import Event
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
    """See `segmentation.stages.encode`. The file gets one packet, which holds no picture.

    To encode even one frame of 1080p by x264 takes 35 CPU ms, a third of what all else takes for a clip of 90 frames,
    and to open it 4 ms with the GIL. The stream is called Motion JPEG, whose encoder opens in 0.02 ms with one thread,
    and on 16 cores in 1.2 with as many as FFmpeg would take.
    """

    memory: ClassVar[Literal["cuda"]] = "cuda"

    def __init__(
        self, muxer: Muxer, info: VideoInfo, pix_fmt: str, config: Config, gpu: Any, *, service: object = None
    ) -> None:
        self._stream = muxer.add_video("mjpeg", info, {})
        context = self._stream.codec_context
        context.width, context.height, context.pix_fmt = info.width, info.height, "yuvj420p"
        context.time_base = self._time_base = info.time_base
        context.thread_count = 1
        context.open()
        self._gpu = gpu
        self._queued: deque[Event] = deque()
        self._begun = False

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        return "encodes nothing"

    @staticmethod
    def formats(codec: str) -> tuple[str, ...]:
        return PyAVEncoder.formats(codec)

    def encode(self, batch: FrameBatch) -> list[Packet[Any]]:
        packets = [] if self._begun else [_packet(batch.frames[0])]
        for packet in packets:
            packet.stream, packet.time_base = self._stream, self._time_base
            packet.dts, packet.is_keyframe = packet.pts, True
        self._begun = True
        self._queued.append(self._gpu.record_event())
        if len(self._queued) > _AHEAD:
            self._queued.popleft().synchronize()
        return packets

    def flush(self) -> list[Packet[Any]]:
        self._gpu.stream.synchronize()
        return []


def _packet(frame: Frame) -> Packet[Any]:
    packet = Packet(_NOTHING)
    packet.pts, packet.duration = frame.pts, frame.duration
    return packet


class NoSegments(JoinedStream):
    """See `SegmentEncoder`. Each frame's packet holds no picture, so that pieces are made and joined as ever."""

    memory: ClassVar[Literal["cuda"]] = "cuda"

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
        packets = [_packet(frame) for frame in batch.frames]
        for packet, frame in zip(packets, batch.frames, strict=True):
            packet.is_keyframe = self._cutter.begins(frame.pts)
        return self.joined(packets)

    def flush(self) -> list[Packet[Any]]:
        self._gpu.stream.synchronize()
        return []
