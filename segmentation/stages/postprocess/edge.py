"""Places the edge between the kept part and the rest, and sets its width: `--threshold`, `--feather`, `--invert`.

A mask is enlarged to the frame and put through a ramp, `clip(gain * m + bias, 0, 255)` with m in 0..255. The result is
half opaque at the threshold. The ramp is steep, but not too steep for a smooth edge. With `--feather`, the ramp comes
first, at a smaller size, and then a blur; enlarging leaves these values as they are.
"""

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.options.config import Config
from segmentation.stages.postprocess.blur import blur_scale

RAMP = 0.25  # of the mask's range on either side of the threshold, less where the range ends before
STEP_WIDTH = 2.5631  # standard deviations in which a step that a Gaussian blurs goes from 10 % to 90 %
REACH = 4  # standard deviations from the middle of a Gaussian's kernel to its end, see `gaussian_side`
ROUNDING = 0.02  # of the mask's range: the error of enlarging, which rounds
FULL = 0.9985  # values above are rounded to 255


@dataclass(frozen=True, slots=True)
class Edge:
    """The three options, and the numbers that follow from them."""

    threshold: float = 0.5
    feather: float = 0.0  # from 10 % to 90 %, in pixels of a picture whose shorter side has 1080
    invert: bool = False

    @staticmethod
    def of(config: Config) -> "Edge":
        """Returns the edge that a configuration describes."""
        return Edge(config.threshold, config.feather, config.invert)

    @property
    def _half(self) -> float:
        """Half the width of the ramp, in the mask's range."""
        return min(RAMP, self.threshold, 1 - self.threshold)

    @property
    def sharp(self) -> tuple[float, float]:
        """(gain, bias) of the ramp that sharpens a mask of 0..255: 0 stays 0 and 255 stays 255."""
        gain = 0.5 / self._half
        zero = min(round(255 * (self.threshold - self._half)), 255 - 255 / gain)
        return gain, -gain * zero

    @property
    def ramp(self) -> tuple[float, float]:
        """(gain, bias) from the enlarged mask, 0..255, to opacity. A feathered mask is sharp already, see `sharp`."""
        gain, bias = (1.0, 0.0) if self.feather else self.sharp
        return (-gain, 255 - bias) if self.invert else (gain, bias)

    def feather_scale(self, size: tuple[int, int]) -> tuple[tuple[int, int], float]:
        """Returns the size (width, height) at which a frame's edge is blurred, and the standard deviation in pixels."""
        return blur_scale(size, self.feather / STEP_WIDTH, least=1)

    def kept(self, mask: NDArray[np.float32], size: tuple[int, int]) -> NDArray[np.bool_]:
        """Returns the places (h, w) of a mask around which a frame of `size` (width, height) is kept for certain.

        Both are upright. Around a place means at least up to the next place of the mask, and as far as a softened edge
        reaches.
        """
        low, high = self.threshold - self._half - ROUNDING, self.threshold + self._half + ROUNDING
        sure = mask < max(low, 1 - FULL) if self.invert else mask > min(high, FULL)
        # A pixel whose corner lies at a place is read between the two places at its center.
        reach = [max(1, math.ceil((p / s + 1) / 2)) for p, s in zip(mask.shape[::-1], size, strict=True)]
        if self.feather:
            (width, height), sigma = self.feather_scale(size)
            sides = ((mask.shape[1], width), (mask.shape[0], height))
            reach = [1 + int(np.ceil((REACH * sigma + 2) * places / pixels)) for places, pixels in sides]
        near = np.ones((2 * reach[1] + 1, 2 * reach[0] + 1), np.uint8)
        return cv2.erode(sure.astype(np.uint8), near, borderType=cv2.BORDER_REPLICATE) > 0
