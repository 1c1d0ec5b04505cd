"""What GPU libraries raise, as errors that users can do something about. They have no common base, but common words."""

from segmentation.errors import DeviceError, DeviceMemoryError
from segmentation.model import short


def explain(exc: BaseException) -> DeviceError | None:
    """The error behind an exception of a GPU library; `None` for any other exception."""
    if isinstance(exc, DeviceError):
        return exc
    if not isinstance(exc, Exception):
        return None
    text = short(exc)
    lower = text.lower()
    if "out of memory" in lower or "out_of_memory" in lower:
        return DeviceMemoryError(f"the GPU's memory is full ({text}); try a smaller --batch-size")
    if "cuda error" in lower or "cuda_error" in lower or type(exc).__name__ in ("AcceleratorError", "CUDAError"):
        return DeviceError(f"the GPU failed ({text}); see nvidia-smi and the system's log")
    return None
