"""Rounds masks to 8 bits, in which they are saved; `cuda.CudaQuantizer` does the same on a GPU."""

import numpy as np
from numpy.typing import NDArray

VALUES = np.arange(256, dtype=np.float32) / np.float32(255)  # of each level


def quantize(masks: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Returns masks (N, h, w) in 0..1 as they are saved (uint8, 0 to 255), and as they are read again (float32)."""
    levels = (masks * np.float32(255) + np.float32(0.5)).astype(np.uint8)
    return levels, VALUES[levels]
