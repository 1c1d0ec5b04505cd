"""Pictures that carry their number and the monotonic time in their luma, so that a test finds both in the output.

A checksum says whether a picture has come whole.
"""

import time
import zlib
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

_COLUMNS, _ROWS = 10, 8  # cells over the whole picture
_TIME, _NUMBER, _CHECK = 36, 24, 20  # bits, from the lowest on. The time is in milliseconds


def drawn(number: int, size: tuple[int, int], when: float | None = None) -> av.VideoFrame:
    """A frame with its number and a time in seconds, by default the present one. `size` is (width, height)."""
    when = time.monotonic() if when is None else when
    value = number << _TIME | round(when * 1000) % (1 << _TIME)
    value |= _checksum(value) << _NUMBER + _TIME
    bits = np.array([value >> at & 1 for at in range(_COLUMNS * _ROWS)], np.uint8).reshape(_ROWS, _COLUMNS)
    width, height = size
    rows, columns = np.arange(height) * _ROWS // height, np.arange(width) * _COLUMNS // width
    luma = np.where(bits[rows][:, columns], 220, 30).astype(np.uint8)
    return av.VideoFrame.from_ndarray(np.vstack([luma, np.full((height // 2, width), 128, np.uint8)]), "yuv420p")


def read(luma: NDArray[np.uint8]) -> tuple[int, float]:
    """The number, and the time in seconds, of a picture of any size."""
    value = _value(luma)
    return value >> _TIME & (1 << _NUMBER) - 1, (value & (1 << _TIME) - 1) / 1000


def is_whole(luma: NDArray[np.uint8]) -> bool:
    """Whether number and time are those of one drawn picture."""
    value = _value(luma)
    return value >> _NUMBER + _TIME == _checksum(value & (1 << _NUMBER + _TIME) - 1)


def numbers(path: Path) -> list[int]:
    """The numbers of a video's pictures."""
    with av.open(str(path)) as file:
        return [read(frame.to_ndarray(format="gray"))[0] for frame in file.decode(video=0)]


def _value(luma: NDArray[np.uint8]) -> int:
    height, width = luma.shape
    rows = (np.arange(_ROWS) * 2 + 1) * height // (2 * _ROWS)
    columns = (np.arange(_COLUMNS) * 2 + 1) * width // (2 * _COLUMNS)
    return sum(int(bit) << at for at, bit in enumerate((luma[rows][:, columns] > 125).ravel()))


def _checksum(value: int) -> int:
    return zlib.crc32(value.to_bytes(8, "little")) & (1 << _CHECK) - 1
