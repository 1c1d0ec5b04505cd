"""NVDEC sessions: each decodes one stream of packets into surfaces in device memory."""

from __future__ import annotations  # av.Packet takes its parameter only for type checkers

from contextlib import nullcontext
from typing import TYPE_CHECKING, Protocol

import PyNvVideoCodec as nvc

from segmentation.errors import InputError
from segmentation.gpu.capture_lock import capture_unsafe
from segmentation.gpu.context import Gpu
from segmentation.gpu.errors import translate_gpu_error
from segmentation.stages.decode.chunk_progress import Presentation
from segmentation.stages.decode.chunks import is_hidden
from segmentation.stages.decode.nvdec_support import NVDEC_CODECS
from segmentation.stages.decode.stream_format import StreamFormat

if TYPE_CHECKING:
    from segmentation.media.bitstream.sei import MessageReader
    from segmentation.media.video_packet import ChunkPacket

_IN_ORDER = ("vp8", "vp9")  # codecs whose frames are shown as they are decoded


class Surface(Protocol):
    """A decoded picture in the session's own memory, as PyNvVideoCodec returns it."""

    timestamp: int  # of the packet
    shape: tuple[int, ...]  # (rows of all planes, width)
    strides: tuple[int, ...]

    def GetPtrToPlane(self, index: int) -> int: ...  # the library's name


class TimesToCome(dict[int, Presentation]):
    """The times of packets that a session got and whose frames are to come, by timestamp, in decoding order."""

    def __init__(self, codec: str, messages: MessageReader | None = None) -> None:
        """`messages` reads those of frames."""
        super().__init__()
        self._messages = messages
        self._codec, self._in_order = codec, codec in _IN_ORDER

    def data(self, packet: ChunkPacket) -> nvc.PacketData:
        """Returns a packet for NVDEC, and notes its times for its frame, if that is shown.

        NVDEC takes timestamps that rise in decoding order for decoding times, and gives them to the frames in
        presentation order. That is right for AVI, which stores no other times.
        """
        timestamp = packet.pts if packet.pts is not None else packet.dts or 0
        if not is_hidden(self._codec, packet):
            messages = () if self._messages is None else self._messages.of_packet(packet)
            self[timestamp] = Presentation(packet.pts, packet.duration or 0, packet.is_discard, messages)
        data = nvc.PacketData()
        data.bsl_data, data.bsl, data.pts = packet.buffer_ptr, packet.buffer_size, timestamp
        return data

    def taken(self, timestamp: int) -> Presentation:
        """Returns the times of the frame that has come out with this timestamp.

        In VP8 and VP9 frames come out as their packets went in, but NVDEC also uses up the timestamps of packets whose
        frames it does not show.
        """
        if self._in_order:
            timestamp = next(iter(self), timestamp)
        return self.pop(timestamp, Presentation(None, 0, False))


class NvdecSession:
    """One of NVDEC's decoders, bound to a CUDA stream. Creating and destroying it spares running graph captures."""

    def __init__(self, stream_format: StreamFormat, gpu: Gpu, *, remedy: str = "use --decode pyav") -> None:
        """Creates a session that copies its surfaces on the stream of `gpu`. `remedy` ends its errors."""
        self.format, self._remedy = stream_format, remedy
        self.path = ""  # of the file that is being decoded, for errors
        self._begun = False  # whether a surface has come: the first packets create the hardware decoder
        with capture_unsafe():
            self._decoder: nvc.PyNvDecoder | None = nvc.CreateDecoder(
                gpuid=gpu.index,
                codec=getattr(nvc.cudaVideoCodec, NVDEC_CODECS[stream_format.codec]),
                cudastream=gpu.stream.cuda_stream,
                usedevicememory=True,
                latency=nvc.DisplayDecodeLatencyType.NATIVE,
            )

    def decode(self, data: nvc.PacketData) -> list[Surface]:
        """Returns the surfaces that are ready after one more packet; all that are left, after an empty packet.

        The next call may overwrite the surfaces. Raises `InputError` if NVDEC can't decode the stream, or the
        `DeviceError` behind the library's exception.
        """
        assert self._decoder is not None
        try:
            with nullcontext() if self._begun else capture_unsafe():
                surfaces: list[Surface] = self._decoder.Decode(data)
        except (nvc.PyNvVCException, nvc.PyNvVCExceptionUnsupported) as exc:
            if (fault := translate_gpu_error(exc)) is not None:
                raise fault from exc
            reason = " ".join(str(exc).split())
            if "Reconfigure" in reason:
                what = "the picture's size or depth changes on the way, which NVDEC's frames don't follow"
                raise InputError(f"{self.path}: {what}; {self._remedy}") from exc
            raise InputError(f"{self.path}: NVDEC can't decode it ({reason}); {self._remedy}") from exc
        self._begun = self._begun or bool(surfaces)
        return surfaces

    def close(self) -> None:
        """Destroys the session."""
        with capture_unsafe():
            self._decoder = None
