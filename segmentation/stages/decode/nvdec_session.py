"""NVDEC sessions: each decodes one stream of packets into surfaces in device memory."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Protocol

import PyNvVideoCodec as nvc

from segmentation.errors import InputError
from segmentation.gpu.capture_lock import capture_unsafe
from segmentation.gpu.context import Gpu
from segmentation.gpu.errors import translate_gpu_error
from segmentation.stages.decode.nvdec_session_pool import StreamFormat
from segmentation.stages.decode.nvdec_support import NVDEC_CODECS


class Surface(Protocol):
    """A decoded picture in the session's own memory, as PyNvVideoCodec returns it."""

    timestamp: int  # of the packet
    shape: tuple[int, ...]  # (rows of all planes, width)
    strides: tuple[int, ...]

    def GetPtrToPlane(self, index: int) -> int: ...  # the library's name


class NvdecSession:
    """One of NVDEC's decoders, bound to a CUDA stream. Creating and destroying it spares running graph captures."""

    def __init__(self, stream_format: StreamFormat, gpu: Gpu) -> None:
        """Creates a session that copies its surfaces on the stream of `gpu`."""
        self.format = stream_format
        self.path = ""  # of the file that is being decoded, for errors
        self._begun = False  # whether a surface has come: the first packets create the hardware decoder
        with capture_unsafe():
            self._decoder: nvc.PyNvDecoder | None = nvc.CreateDecoder(
                gpuid=gpu.index,
                codec=getattr(nvc.cudaVideoCodec, NVDEC_CODECS[stream_format.codec]),
                cudastream=gpu.stream.cuda_stream,
                usedevicememory=True,
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
                raise InputError(f"{self.path}: {what}; use --decode pyav") from exc
            raise InputError(f"{self.path}: NVDEC can't decode it ({reason}); use --decode pyav") from exc
        self._begun = self._begun or bool(surfaces)
        return surfaces

    def close(self) -> None:
        """Destroys the session."""
        with capture_unsafe():
            self._decoder = None
