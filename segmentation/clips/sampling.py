"""Computes the arguments of sample.cu's kernel: places, weights and numbers, as the CPU path has them."""

from __future__ import annotations

from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from segmentation.clips.output import Output, Window
from segmentation.frames import Color, PixelFormat
from segmentation.gpu.kernels import KernelSource
from segmentation.stages.preprocess.resampling import Table, bilinear, means, table

CLIPS = KernelSource(files=("clips/sample.cu",))


def corners(window: Window, layout: PixelFormat) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns the row and the column of the stored picture's luma and chroma at which a `window` of it begins.

    As in FFmpeg's crop, the chroma of a window begins at the sample of its first pixel.
    """
    return (window.top, window.left), (window.top >> layout.shift_y, window.left >> layout.shift_x)


def lengths(window: Window, layout: PixelFormat) -> tuple[int, int, int, int]:
    """Returns how many samples a window of the stored picture has: luma across and down, chroma across and down."""
    width, height = window.width, window.height
    return width, height, -(-width >> layout.shift_x), -(-height >> layout.shift_y)


def weights(length: int, after: int) -> Table:
    """Returns the weights by which `length` samples along an axis become `after`, see `resampling.Table`.

    They are those of swscale's area filter: the mean of the covered samples where an axis shrinks, else bilinear.
    """
    return table(means(length, after) if after < length else bilinear(length, after))


@cache
def levels(space: Literal["rgb", "ycbcr"], color: Color, bits: int) -> NDArray[np.float32]:
    """Returns the matrix (3, 4) from (Y, U, V, 1), in levels of `bits`, to an output's channels from 0 to 1."""
    if space == "rgb":
        return color.yuv_to_rgb(bits).astype(np.float32)
    scale = 1 / (255 << bits - 8)
    return np.hstack([np.eye(3) * scale, np.zeros((3, 1))]).astype(np.float32)


def elements(output: Output) -> NDArray[np.generic]:
    """Returns what is written for each channel and level (3, 256), in the output's dtype."""
    pictures = np.broadcast_to(np.arange(256, dtype=np.uint8)[:, None], (256, 3))
    made = output.numbers([np.ascontiguousarray(pictures[None])])  # (1, 3, 1, 256)
    return np.ascontiguousarray(made[0, :, 0])
