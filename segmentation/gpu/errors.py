"""Translates exceptions of GPU libraries into errors that users can act on."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from segmentation.errors import DeviceError, DeviceMemoryError, SegmentationError, one_line

# By module and name, because importing these libraries takes long, and some machines lack them.
_MEMORY_TYPES = (("torch", "OutOfMemoryError"),)
_FAULT_TYPES = (
    ("torch", "AcceleratorError"),
    ("cuda.core._utils.cuda_utils", "CUDAError"),
    ("segmentation.gpu.cuda_calls", "DriverError"),
)
# NVDEC, TensorRT, CV-CUDA and nvJPEG raise general types, whose text alone says that the GPU is meant.
_MEMORY_WORDS = ("out of memory", "out_of_memory")
_FAULT_WORDS = ("cuda error", "cuda_error")
_NUMBER = re.compile(r"returned error (\d+)")  # in NVDEC's messages: a CUresult of cuda.h
_MEMORY_NUMBER = 2  # CUDA_ERROR_OUT_OF_MEMORY
_FAULT_NUMBERS = {201, 214, *range(700, 720), 999}  # invalid context, defective memory, failed kernel, unknown


def translate_gpu_error(exc: BaseException) -> DeviceError | None:
    """Returns the error that users can act on for an exception of a GPU library; `None` for any other exception.

    The exception's type decides where its library has types for such errors, else the exception's text.
    """
    if isinstance(exc, DeviceError):
        return exc
    if not isinstance(exc, Exception) or isinstance(exc, (SegmentationError, OSError)):
        return None  # their texts quote names of files, which may hold any words
    text = one_line(exc)
    words = text.lower()
    match = _NUMBER.search(words)
    number = int(match[1]) if match else 0
    memory = number == _MEMORY_NUMBER or any(part in words for part in _MEMORY_WORDS)
    if _is_any(exc, _MEMORY_TYPES) or memory:
        return DeviceMemoryError(f"the GPU's memory is full ({text})")
    fault = number in _FAULT_NUMBERS or any(part in words for part in _FAULT_WORDS)
    if _is_any(exc, _FAULT_TYPES) or fault:
        return DeviceError(f"the GPU failed ({text}); see nvidia-smi and the system's log")
    return None


@contextmanager
def gpu_errors() -> Iterator[None]:
    """Raises the `DeviceError` behind an exception of a GPU library, from that exception; others pass unchanged."""
    try:
        yield
    except Exception as exc:
        fault = translate_gpu_error(exc)
        try:
            if fault is None or fault is exc:
                raise
            raise fault from exc
        finally:
            del fault  # breaks the cycle exception -> traceback -> this frame, which keeps GPU memory alive


def _is_any(exc: BaseException, names: tuple[tuple[str, str], ...]) -> bool:
    """Returns whether the exception has one of these types, exactly: the compiler's NVRTCError is a CUDAError too."""
    modules = ((sys.modules.get(module), name) for module, name in names)
    return any(type(exc) is vars(module).get(name) for module, name in modules if module is not None)
