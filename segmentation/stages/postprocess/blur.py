"""Sizes of blurs and blocks, the same on every implementation."""

import math

# Where the background is replaced, what is left of the old one at the edge is taken off, estimated by a blur as weak as
# this: near enough to be the background's own color, wide enough to reach over the edge.
OLD_BACKGROUND = 16.0


def blur_scale(size: tuple[int, int], strength: float, least: float = 2) -> tuple[tuple[int, int], float]:
    """The size (width, height) at which a blur is computed, and its standard deviation there, in pixels.

    `strength` is a standard deviation in pixels of a picture whose shorter side has 1080. A strong blur leaves no
    detail that a smaller picture could not hold: the picture is halved while its standard deviation stays `least`.
    """
    sigma = strength * min(size) / 1080
    factor = 1 << max(0, math.floor(math.log2(sigma / least)))
    return (-(-size[0] // factor), -(-size[1] // factor)), sigma / factor


def gaussian_side(sigma: float) -> int:
    """Pixels a side of a Gaussian's kernel, as OpenCV chooses it for floating point: four sigma from the middle."""
    return round(sigma * 8 + 1) | 1


def block_side(size: tuple[int, int], block: float) -> int:
    """Pixels a side of blocks that have `block` where the shorter side has 1080: even, to end with chroma's."""
    return max(2, 2 * round(block * min(size) / 2160))
