"""Pictures that carry their number and the monotonic time in their luma, so that a test finds both in the output."""

import time
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

_COLUMNS, _ROWS = 10, 6  # cells over the whole picture: 24 bits of the number, 36 of the time in milliseconds
_NUMBER, _BITS = 24, _COLUMNS * _ROWS


def drawn(number: int, size: tuple[int, int]) -> av.VideoFrame:
    """A frame with its number and the time at which it was drawn. `size` is (width, height)."""
    value = number << _BITS - _NUMBER | round(time.monotonic() * 1000) % (1 << _BITS - _NUMBER)
    bits = np.array([value >> at & 1 for at in range(_BITS)], np.uint8).reshape(_ROWS, _COLUMNS)
    width, height = size
    rows, columns = np.arange(height) * _ROWS // height, np.arange(width) * _COLUMNS // width
    luma = np.where(bits[rows][:, columns], 220, 30).astype(np.uint8)
    return av.VideoFrame.from_ndarray(np.vstack([luma, np.full((height // 2, width), 128, np.uint8)]), "yuv420p")


def read(luma: NDArray[np.uint8]) -> tuple[int, float]:
    """The number, and the time in seconds, of a picture of any size."""
    height, width = luma.shape
    rows = (np.arange(_ROWS) * 2 + 1) * height // (2 * _ROWS)
    columns = (np.arange(_COLUMNS) * 2 + 1) * width // (2 * _COLUMNS)
    value = sum(int(bit) << at for at, bit in enumerate((luma[rows][:, columns] > 125).ravel()))
    return value >> _BITS - _NUMBER, (value & (1 << _BITS - _NUMBER) - 1) / 1000


def numbers(path: Path) -> list[int]:
    """The numbers of a video's pictures."""
    with av.open(str(path)) as file:
        return [read(frame.to_ndarray(format="gray"))[0] for frame in file.decode(video=0)]
