"""Masks in 8 bits, as they are saved; `cuda.CudaQuantizer` does the same on a GPU."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

VALUES = np.arange(256, dtype=np.float32) / np.float32(255)  # the mask that each level means


def quantize(masks: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Masks (N, h, w) in 0..1 as they are saved (uint8), and as they are read again (float32)."""
    levels = (masks * np.float32(255) + np.float32(0.5)).astype(np.uint8)
    return levels, VALUES[levels]
