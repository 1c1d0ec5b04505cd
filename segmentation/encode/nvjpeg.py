"""NVIDIA's nvJPEG through its C interface: pictures in the GPU's memory become JPEG files in the host's.

ctypes gives up Python's lock during a call, so threads that have an encoder each do encode at the same time. Names and
types are those of nvjpeg.h.
"""

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from ctypes import POINTER, byref, c_int, c_size_t, c_void_p
from functools import cache
from typing import Any

from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

from segmentation.errors import BackendError

_STATUS = (
    "SUCCESS NOT_INITIALIZED INVALID_PARAMETER BAD_JPEG JPEG_NOT_SUPPORTED ALLOCATOR_FAILURE EXECUTION_FAILED "
    "ARCH_MISMATCH INTERNAL_ERROR IMPLEMENTATION_NOT_SUPPORTED INCOMPLETE_BITSTREAM"
).split()
_CSS_444 = 0
_INPUT_RGB = 3  # three planes


class NvJpegError(RuntimeError):
    """A call failed; the text is its status."""


class _Image(ctypes.Structure):
    _fields_ = (("channel", c_void_p * 4), ("pitch", c_size_t * 4))


# All return a status. Handles and streams are pointers.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "nvjpegGetProperty": (c_int, POINTER(c_int)),
    "nvjpegCreateSimple": (POINTER(c_void_p),),
    "nvjpegEncoderStateCreate": (c_void_p, POINTER(c_void_p), c_void_p),
    "nvjpegEncoderStateDestroy": (c_void_p,),
    "nvjpegEncoderParamsCreate": (c_void_p, POINTER(c_void_p), c_void_p),
    "nvjpegEncoderParamsDestroy": (c_void_p,),
    "nvjpegEncoderParamsSetQuality": (c_void_p, c_int, c_void_p),
    "nvjpegEncoderParamsSetOptimizedHuffman": (c_void_p, c_int, c_void_p),
    "nvjpegEncoderParamsSetSamplingFactors": (c_void_p, c_int, c_void_p),
    "nvjpegEncodeImage": (c_void_p, c_void_p, c_void_p, POINTER(_Image), c_int, c_int, c_int, c_void_p),
    "nvjpegEncodeRetrieveBitstream": (c_void_p, c_void_p, c_void_p, POINTER(c_size_t), c_void_p),
}


def _check(status: int, function: Any, arguments: tuple[Any, ...]) -> None:
    if status:
        raise NvJpegError(f"NVJPEG_STATUS_{_STATUS[status]}" if 0 < status < len(_STATUS) else f"status {status}")


@cache
def library() -> Any:
    """nvJPEG's functions, which raise `NvJpegError`. Raises `BackendError` where the library is not installed."""
    try:
        path = load_nvidia_dynamic_lib("nvjpeg").abs_path
    except DynamicLibNotFoundError as exc:
        raise BackendError("nvJPEG is not installed; try: pip install 'nvidia-nvjpeg<14'") from exc
    found = ctypes.CDLL(path)
    for name, types in _FUNCTIONS.items():
        function = getattr(found, name)
        function.argtypes, function.restype, function.errcheck = types, c_int, _check
    return found


def version() -> str:
    parts = [c_int() for _ in range(3)]
    for number, part in enumerate(parts):
        library().nvjpegGetProperty(number, byref(part))
    return ".".join(str(part.value) for part in parts)


@cache
def _handle(device: int) -> c_void_p:
    """nvJPEG on a device, which is the current one: for all threads, as long as the process lives."""
    handle = c_void_p()
    library().nvjpegCreateSimple(byref(handle))
    return handle


class PictureEncoder:
    """Makes one picture at a time a JPEG file, 4:4:4, on a CUDA stream. `quality` is 1 to 100.

    For one thread at a time, whose current device is the one of that number. All but `close` raises `NvJpegError`.
    """

    def __init__(self, device: int, stream: int, quality: int) -> None:
        self._nvjpeg, self._handle, self._stream = library(), _handle(device), c_void_p(stream)
        self._state, self._params = c_void_p(), c_void_p()
        self._length = c_size_t()
        try:
            self._nvjpeg.nvjpegEncoderStateCreate(self._handle, byref(self._state), self._stream)
            self._nvjpeg.nvjpegEncoderParamsCreate(self._handle, byref(self._params), self._stream)
            self._nvjpeg.nvjpegEncoderParamsSetQuality(self._params, quality, self._stream)
            self._nvjpeg.nvjpegEncoderParamsSetOptimizedHuffman(self._params, 0, self._stream)  # smaller, but slower
            self._nvjpeg.nvjpegEncoderParamsSetSamplingFactors(self._params, _CSS_444, self._stream)
        except NvJpegError:
            self.close()
            raise

    def encode(self, planes: Sequence[int], pitch: int, width: int, height: int) -> int:
        """Encodes a picture: the addresses of R, G and B, 8 bits, in device memory, and the bytes from row to row.

        Returns the length of its file.
        """
        image = _Image(tuple(planes), (pitch,) * len(planes))
        self._nvjpeg.nvjpegEncodeImage(
            self._handle, self._state, self._params, byref(image), _INPUT_RGB, width, height, self._stream
        )
        self._retrieve(None)  # tells the length, as soon as the GPU knows it
        return self._length.value

    def read(self, address: int) -> None:
        """Queues the copying of the file that `encode` has made to the host's memory."""
        self._retrieve(address)

    def close(self) -> None:
        """Frees what nvJPEG holds for this encoder; the second time it does nothing."""
        for pointer, free in (
            (self._params, self._nvjpeg.nvjpegEncoderParamsDestroy),
            (self._state, self._nvjpeg.nvjpegEncoderStateDestroy),
        ):
            if pointer:
                with suppress(NvJpegError):  # a GPU that has failed, which was said before
                    free(pointer)
                pointer.value = None

    def _retrieve(self, address: int | None) -> None:
        self._nvjpeg.nvjpegEncodeRetrieveBitstream(
            self._handle, self._state, address, byref(self._length), self._stream
        )
