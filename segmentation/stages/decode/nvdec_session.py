"""One decoder of NVDEC's."""

from contextlib import nullcontext
from typing import Any

import PyNvVideoCodec as nvc

from segmentation.errors import InputError
from segmentation.frames import VideoInfo
from segmentation.gpu.capture_lock import capture_unsafe
from segmentation.gpu.context import Gpu
from segmentation.gpu.errors import translate_gpu_error
from segmentation.stages.decode.nvdec_support import NVDEC_CODECS


class NvdecSession:
    """Packets in, surfaces out. Its beginning and end don't spoil captures of CUDA graphs."""

    def __init__(self, info: VideoInfo, gpu: Gpu) -> None:
        self._path = info.path
        self._begun = False  # whether a picture has come: what it needs is made only when it sees the first packets
        with capture_unsafe():
            self._decoder: Any = nvc.CreateDecoder(
                gpuid=gpu.index,
                codec=getattr(nvc.cudaVideoCodec, NVDEC_CODECS[info.codec]),
                cudastream=gpu.stream.cuda_stream,
                usedevicememory=True,
            )

    def decode(self, data: Any) -> list[Any]:
        """The surfaces that are ready after one more packet."""
        try:
            with nullcontext() if self._begun else capture_unsafe():
                surfaces: list[Any] = self._decoder.Decode(data)
        except (nvc.PyNvVCException, nvc.PyNvVCExceptionUnsupported) as exc:
            if (fault := translate_gpu_error(exc)) is not None:
                raise fault from exc
            reason = " ".join(str(exc).split())
            raise InputError(f"{self._path}: NVDEC can't decode it ({reason}); use --decode pyav") from exc
        self._begun = self._begun or bool(surfaces)
        return surfaces

    def close(self) -> None:
        with capture_unsafe():
            self._decoder = None


class NvdecSessionPool:
    """Keeps NVDEC sessions from one file to the next."""

    def close(self) -> None:
        """Destroys all idle sessions."""
