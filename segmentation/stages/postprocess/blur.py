"""Computes the sizes of blurs and blocks, for all implementations of postprocess."""

import math

# The strength of the blur that estimates the old background where the background is replaced. A stronger blur misses
# the background's color near the edge. A weaker blur does not reach over the edge.
OLD_BACKGROUND = 16.0


def blur_scale(size: tuple[int, int], strength: float, least: float = 2) -> tuple[tuple[int, int], float]:
    """Returns the size (width, height) at which a blur is computed, and its standard deviation there, in pixels.

    `size` is the picture's. `strength` is a standard deviation in pixels of a picture whose shorter side has 1080. The
    picture is halved while the standard deviation stays at `least` or above: a strong blur leaves no finer detail.
    """
    sigma = strength * min(size) / 1080
    factor = 1 << max(0, math.floor(math.log2(sigma / least)))
    return (-(-size[0] // factor), -(-size[1] // factor)), sigma / factor


def gaussian_side(sigma: float) -> int:
    """Returns the side of a Gaussian's kernel in pixels: OpenCV's choice for floating point, four sigma each way."""
    return round(sigma * 8 + 1) | 1


def block_side(size: tuple[int, int], block: float) -> int:
    """Returns the side of blocks in pixels, even, so that blocks of luma and chroma end together.

    `size` is the picture's. `block` is the side in a picture whose shorter side has 1080 pixels.
    """
    return max(2, 2 * round(block * min(size) / 2160))
