"""What GPU libraries raise, as errors that users can do something about. They have no common base, but common words."""

from segmentation.errors import DeviceError, DeviceMemoryError
from segmentation.model import short

_NO_MEMORY = ("out of memory", "out_of_memory", "returned error 2")  # 2: CUDA_ERROR_OUT_OF_MEMORY


def explain(exc: BaseException) -> DeviceError | None:
    """The error behind an exception of a GPU library; `None` for any other exception."""
    if isinstance(exc, DeviceError):
        return exc
    if not isinstance(exc, Exception):
        return None
    text = short(exc)
    lower = text.lower()
    if any(words in lower for words in _NO_MEMORY):
        return DeviceMemoryError(f"the GPU's memory is full ({text}); try a smaller --batch-size")
    if "cuda error" in lower or "cuda_error" in lower or type(exc).__name__ in ("AcceleratorError", "CUDAError"):
        return DeviceError(f"the GPU failed ({text}); see nvidia-smi and the system's log")
    return None
