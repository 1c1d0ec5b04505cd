"""What GPU libraries raise, as errors that users can do something about. They have no common base, but common words."""

import re

from segmentation.errors import DeviceError, DeviceMemoryError, SegmentationError, one_line

_NO_MEMORY = ("out of memory", "out_of_memory")
_NUMBER = re.compile(r"returned error (\d+)")  # NVDEC's library says no more: a CUresult of cuda.h
_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
_LOST = {201, 214, *range(700, 720), 999}  # the context is invalid, memory is defective, a kernel has failed, unknown


def translate_gpu_error(exc: BaseException) -> DeviceError | None:
    """The error behind an exception of a GPU library; `None` for any other exception."""
    if isinstance(exc, DeviceError):
        return exc
    if not isinstance(exc, Exception) or isinstance(exc, (SegmentationError, OSError)):
        return None  # ours, and the system's, quote names of files, which may hold any words
    text = one_line(exc)
    lower = text.lower()
    found = _NUMBER.search(lower)
    number = int(found[1]) if found else 0
    if number == _MEMORY or any(words in lower for words in _NO_MEMORY):
        return DeviceMemoryError(f"the GPU's memory is full ({text})")
    named = "cuda error" in lower or "cuda_error" in lower or type(exc).__name__ in ("AcceleratorError", "CUDAError")
    if named or number in _LOST:
        return DeviceError(f"the GPU failed ({text}); see nvidia-smi and the system's log")
    return None
