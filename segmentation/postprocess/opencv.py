"""Postprocessing with OpenCV on the CPU, in integers, on the YUV planes."""

from dataclasses import replace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.config import Config, Effect
from segmentation.frames import FORMATS, FrameBatch, Plane, Planes, VideoInfo
from segmentation.postprocess import blur_scale
from segmentation.preprocess.opencv import shrink

Alpha = NDArray[Any]  # (H, W) uint8, 255 where the foreground is kept fully
Layer = NDArray[Any]  # (h, w) float32, at reduced size


class OpenCVPostprocessor:
    """See `segmentation.postprocess`."""

    memory = "host"

    def __init__(self, info: VideoInfo, pix_fmt: str, effect: Effect, config: Config) -> None:
        self._format = FORMATS[pix_fmt]
        self._turns = info.rotation // 90
        self._size = (info.width, info.height)
        self._effect = effect
        self._small, self._sigma = blur_scale(self._size, effect.strength)
        rgb = (0, 0, 0) if effect.kind == "mask" else effect.rgb
        self._plain = self._planes_of(info.colour.from_rgb(rgb, self._format.bits))
        self._white = self._planes_of(info.colour.from_rgb((255, 255, 255), self._format.bits))

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        return f"OpenCV {cv2.__version__}, {config.effect}"

    def __call__(self, batch: FrameBatch, masks: NDArray[np.float32]) -> FrameBatch:
        frames = tuple(
            replace(frame, planes=self._apply(frame.planes, self._alpha(mask)))
            for frame, mask in zip(batch.frames, masks, strict=True)
        )
        return replace(batch, frames=frames)

    def _apply(self, planes: Planes, alpha: Alpha) -> Planes:
        match self._effect.kind:
            case "blur":
                return self._composite(planes, self._blurred(planes, alpha), alpha)
            case "mask":
                return self._composite(self._white, self._plain, alpha)
            case "overlay":  # the kept part half in the tint's colour
                return self._composite(planes, self._plain, cv2.addWeighted(alpha, -0.5, alpha, 0, 255))
            case _:
                return self._composite(planes, self._plain, alpha)

    def _alpha(self, mask: NDArray[np.float32]) -> Alpha:
        """Enlarges a mask (h, w) to the frame, as stored, then sharpens it: probability 1/4 is 0, 3/4 is 255."""
        # Enlarged before it is sharpened: the edge is then a smooth line, not the steps of the small mask.
        small = np.rot90((mask * 255 + 0.5).astype(np.uint8), -self._turns)
        large = cv2.resize(np.ascontiguousarray(small), self._size, interpolation=cv2.INTER_LINEAR)
        above: Alpha = cv2.subtract(large, 64.0)  # type: ignore[call-overload]
        sharp: Alpha = cv2.add(above, above)  # saturates at 255
        return sharp

    def _blurred(self, planes: Planes, alpha: Alpha) -> Planes:
        """The background blurred without the foreground: blur(I * (1 - a)) / blur(1 - a), at reduced size."""
        weight: Layer = 1 - shrink(alpha, self._small).astype(np.float32) / 255
        # Far inside the foreground no background is near and the quotient would be 0 / 0; nothing of it shows.
        total = self._gaussian(weight) + 1e-6

        def blurred(plane: Plane) -> Plane:
            small = self._gaussian(shrink(plane, self._small) * weight) / total
            rounded = (small + 0.5).astype(plane.dtype)
            return cv2.resize(rounded, (plane.shape[1], plane.shape[0]), interpolation=cv2.INTER_LINEAR)

        y, u, v = (blurred(plane) for plane in planes)
        return y, u, v

    def _gaussian(self, layer: Layer) -> Layer:
        return cv2.GaussianBlur(layer, (0, 0), self._sigma)

    def _composite(self, foreground: Planes, background: Planes, alpha: Alpha) -> Planes:
        chroma = self._chroma_alpha(alpha)
        y, u, v = (composite(f, b, a) for f, b, a in zip(foreground, background, (alpha, chroma, chroma), strict=True))
        return y, u, v

    def _chroma_alpha(self, alpha: Alpha) -> Alpha:
        """Alpha at the chroma's size: the largest of those that share a sample, so that a kept pixel keeps both."""
        across, down = 1 << self._format.shift_x, 1 << self._format.shift_y
        if across * down == 1:
            return alpha
        largest = cv2.dilate(alpha, np.ones((down, across), np.uint8), anchor=(0, 0))
        return np.ascontiguousarray(largest[::down, ::across])

    def _planes_of(self, yuv: tuple[int, int, int]) -> Planes:
        width, height = self._size
        chroma = (-(-height >> self._format.shift_y), -(-width >> self._format.shift_x))
        shapes = ((height, width), chroma, chroma)
        y, u, v = (np.full(shape, value, self._format.dtype) for shape, value in zip(shapes, yuv, strict=True))
        return y, u, v


def composite(foreground: Plane, background: Plane, alpha: Alpha) -> Plane:
    """`(foreground * alpha + background * (255 - alpha)) / 255`, each product rounded; planes and alpha (h, w)."""
    weight = alpha.astype(foreground.dtype, copy=False)
    kept = cv2.multiply(foreground, weight, scale=1 / 255)
    return cv2.add(kept, cv2.multiply(background, 255 - weight, scale=1 / 255))
