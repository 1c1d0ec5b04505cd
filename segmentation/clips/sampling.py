"""What the kernel of sample.cu needs to make a clip's frames as the CPU path does: tables of weights and of numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from segmentation.clips.output import Output, Window
from segmentation.frames import Color, PixelFormat
from segmentation.gpu.kernels import KernelSource
from segmentation.stages.preprocess.resampling import Table, bilinear, means, table

CLIPS = KernelSource(files=("clips/sample.cu",))


class Tables(NamedTuple):
    """Weights along the axes of a stored picture, see `resampling.Table`."""

    luma_across: Table
    luma_down: Table
    chroma_across: Table
    chroma_down: Table


def tables(window: Window, size: tuple[int, int], layout: PixelFormat) -> Tables:
    """Returns the weights for a `window` of the stored picture that becomes `size` (height, width), both as stored.

    They are those of swscale's area filter: the mean of the covered samples where an axis shrinks, else bilinear. As in
    FFmpeg's crop, the chroma of a window begins at the sample of its first pixel.
    """
    across = (
        _along(window.left, window.width, size[1]),
        _along(window.left >> layout.shift_x, -(-window.width >> layout.shift_x), size[1]),
    )
    down = (
        _along(window.top, window.height, size[0]),
        _along(window.top >> layout.shift_y, -(-window.height >> layout.shift_y), size[0]),
    )
    return Tables(across[0], down[0], across[1], down[1])


def _along(first: int, length: int, after: int) -> Table:
    made = table(means(length, after) if after < length else bilinear(length, after))
    made[:, 0] += first
    return made


def levels(output: Output, color: Color, bits: int) -> NDArray[np.float32]:
    """Returns the matrix (3, 4) from (Y, U, V, 1), in levels of `bits`, to the output's channels from 0 to 1."""
    if output.color == "rgb":
        return color.yuv_to_rgb(bits).astype(np.float32)
    scale = 1 / (255 << bits - 8)
    return np.hstack([np.eye(3) * scale, np.zeros((3, 1))]).astype(np.float32)


def elements(output: Output) -> NDArray[np.generic]:
    """Returns what is written for each channel and level (3, 256), in the output's dtype."""
    pictures = np.broadcast_to(np.arange(256, dtype=np.uint8)[:, None], (256, 3))
    made = output.numbers([np.ascontiguousarray(pictures[None])])  # (1, 3, 1, 256)
    return np.ascontiguousarray(made[0, :, 0])
