"""Postprocesses frames with OpenCV on the CPU, in integers, on the YUV planes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames import (
    FORMATS,
    CutOut,
    Frame,
    FrameBatch,
    Halvings,
    MaskedBatch,
    Memory,
    Plane,
    Planes,
    VideoInfo,
)
from segmentation.options.config import Config
from segmentation.options.effect import Effect
from segmentation.stages.postprocess import Postprocessor
from segmentation.stages.postprocess.backdrop import MOST_WORKERS, Backdrop, check_backdrop
from segmentation.stages.postprocess.blur import OLD_BACKGROUND, block_side, blur_scale, gaussian_side
from segmentation.stages.postprocess.edge import Edge
from segmentation.stages.postprocess.legend import Legend, legend, palette_samples
from segmentation.stages.preprocess.opencv import shrink

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu

Mask = NDArray[np.float32]  # (h, w), upright
Alpha = NDArray[Any]  # (H, W) uint8, 255 where the foreground is kept fully; OpenCV's annotations name no dtype
Layer = NDArray[Any]  # (h, w) float32, at reduced size
ClassMap = NDArray[np.uint8]  # (h, w), upright


class OpenCVPostprocessor(Postprocessor):
    """A `Postprocessor` with NumPy arrays."""

    memory: ClassVar[Memory] = "host"

    def __init__(self, info: VideoInfo, pix_fmt: str, effect: Effect, config: Config, gpu: Gpu | None = None) -> None:
        self._format = FORMATS[pix_fmt]
        self._orientation = info.orientation
        self._size = (info.width, info.height)
        self._effect = effect
        self._edge = Edge.of(config)
        strength = effect.strength if effect.kind == "blur" else OLD_BACKGROUND
        self._small, self._sigma = blur_scale(self._size, strength)
        self._block = block_side(self._size, effect.block)
        rgb = (0, 0, 0) if effect.kind == "mask" else effect.rgb
        self._plain = self._planes_of(info.color.from_rgb(rgb, self._format.bits))
        self._white = self._planes_of(info.color.from_rgb((255, 255, 255), self._format.bits))
        self._black = info.color.from_rgb((0, 0, 0), self._format.bits)
        self._palette = palette_samples(effect, info.color, pix_fmt)
        self._legend = legend(effect.classes, info, pix_fmt) if effect.classes else None
        self._boxes = self._legend.boxes(pix_fmt) if self._legend else []
        self._backdrop = Backdrop(info, pix_fmt, effect, config, MOST_WORKERS) if effect.file else None

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        backdrop = check_backdrop(config.effects[0], config)
        return f"OpenCV {cv2.__version__}, {config.effect}{backdrop}"

    def close(self) -> None:
        if self._backdrop is not None:
            self._backdrop.close()

    def __call__(self, batch: MaskedBatch) -> FrameBatch:
        class_maps: Iterable[ClassMap | None] = repeat(None, len(batch)) if batch.class_map is None else batch.class_map
        frames = tuple(
            replace(frame, planes=self._apply(frame, self._alpha(mask), class_map))  # type: ignore[arg-type]
            for frame, mask, class_map in zip(batch.frames.frames, batch.masks, class_maps, strict=True)
        )
        return replace(batch.frames, frames=frames)

    def _apply(self, frame: Frame, alpha: Alpha, class_map: ClassMap | None) -> Planes | CutOut:
        planes = frame.planes
        match self._effect.kind:
            case "blur":
                return self._composite(planes, self._blurred(frame, alpha), alpha)
            case "pixelate":
                return self._composite(planes, self._pixelated(planes, alpha), alpha)
            case "mask":
                return self._composite(self._white, self._plain, alpha)
            case "overlay":  # the kept part takes half its color from the tint
                half = cv2.addWeighted(alpha, -0.5, alpha, 0, 255)
                if self._legend is None or class_map is None:
                    return self._composite(planes, self._plain, half)
                return self._write_legend(self._legend, self._composite(planes, self._tints(class_map), half))
            case "cutout":
                return self._cut_out(frame, alpha)
            case _:
                return self._replaced(frame, self._backdrop(frame.pts) if self._backdrop else self._plain, alpha)

    def _tints(self, class_map: ClassMap) -> Planes:
        """Returns the frame's planes in the color of the class at each place."""
        small = np.ascontiguousarray(self._orientation.stored(class_map))
        y, u, v = (
            cv2.resize(values[small], plain.shape[::-1], interpolation=cv2.INTER_LINEAR)
            for values, plain in zip(self._palette, self._plain, strict=True)
        )
        return y, u, v

    def _write_legend(self, drawn: Legend, planes: Planes) -> Planes:
        """Overwrites a part of the planes with the legend, and returns the planes."""
        for plane, part, box in zip(planes, drawn.planes, self._boxes, strict=True):
            plane[box] = part
        return planes

    def _alpha(self, mask: Mask) -> Alpha:
        """Returns a mask at the frame's size, as stored, put through the edge's ramp, see `edge.py`."""
        # Enlarged first: the edge of a mask that is sharpened first shows the steps of the small mask.
        if self._edge.feather:
            mask = self._feathered(mask)
        small = self._orientation.stored(cv2.convertScaleAbs(mask, alpha=255))
        large = cv2.resize(np.ascontiguousarray(small), self._size, interpolation=cv2.INTER_LINEAR)
        gain, bias = self._edge.ramp
        return cv2.addWeighted(large, gain, large, 0, bias)  # saturates

    def _feathered(self, mask: Mask) -> Mask:
        """Returns the mask sharpened and blurred, at the smallest size that can hold the blur."""
        size, sigma = self._edge.feather_scale(self._orientation.size(*self._size))
        gain, bias = self._edge.sharp
        large = cv2.resize(mask, size, interpolation=cv2.INTER_LINEAR)
        sharp = np.clip(large * np.float32(gain) + np.float32(bias / 255), 0, 1)
        side = gaussian_side(sigma)
        return np.asarray(cv2.GaussianBlur(sharp, (side, side), sigma), np.float32)

    def _blurred(self, frame: Frame, alpha: Alpha) -> Planes:
        """Returns the background blurred without the foreground: blur(I * (1 - a)) / blur(1 - a), at reduced size."""
        weight: Layer = 1 - shrink(alpha, self._small).astype(np.float32) / 255
        # Far inside the foreground, where nothing of the background shows, the quotient would be 0 / 0.
        total = self._gaussian(weight) + 1e-6

        def blurred(plane: Plane, halvings: Halvings) -> Plane:
            small = self._gaussian(shrink(plane, self._small, halvings) * weight) / total
            rounded = (small + 0.5).astype(plane.dtype)
            return cv2.resize(rounded, (plane.shape[1], plane.shape[0]), interpolation=cv2.INTER_LINEAR)

        y, u, v = map(blurred, frame.planes, frame.halvings)
        return y, u, v

    def _gaussian(self, layer: Layer) -> Layer:
        return cv2.GaussianBlur(layer, (0, 0), self._sigma)

    def _pixelated(self, planes: Planes, alpha: Alpha) -> Planes:
        """Returns blocks in the mean color of their background: mean(I * (1 - a)) / mean(1 - a)."""
        across, down = self._block >> self._format.shift_x, self._block >> self._format.shift_y
        chroma = self._chroma_alpha(alpha)
        luma_blocks = _blocks(planes[0], alpha, self._block, self._block)
        u, v = (_blocks(plane, chroma, across, down) for plane in planes[1:])
        return luma_blocks, u, v

    def _replaced(self, frame: Frame, new: Planes, alpha: Alpha) -> Planes:
        """Returns the subject before `new`, with the old background taken out of the samples at its edge."""
        if self._edge.feather:  # a softened alpha is not the subject's share of a sample
            return self._composite(frame.planes, new, alpha)
        chroma = self._chroma_alpha(alpha)
        parts = zip(frame.planes, self._blurred(frame, alpha), new, (alpha, chroma, chroma), strict=True)
        y, u, v = (replaced(*part) for part in parts)
        return y, u, v

    def _cut_out(self, frame: Frame, alpha: Alpha) -> CutOut:
        """Returns the subject's own colors, black where alpha is 0, and alpha in the planes' depth."""
        chroma = self._chroma_alpha(alpha)
        old = frame.planes if self._edge.feather else self._blurred(frame, alpha)
        parts = zip(frame.planes, old, self._black, (alpha, chroma, chroma), strict=True)
        y, u, v = (cut_out(*part) for part in parts)
        return y, u, v, scaled_alpha(alpha, y.dtype)

    def _composite(self, foreground: Planes, background: Planes, alpha: Alpha) -> Planes:
        chroma = self._chroma_alpha(alpha)
        y, u, v = (composite(f, b, a) for f, b, a in zip(foreground, background, (alpha, chroma, chroma), strict=True))
        return y, u, v

    def _chroma_alpha(self, alpha: Alpha) -> Alpha:
        """Returns alpha at the chroma's size: the largest in a chroma sample, so that kept pixels keep their chroma."""
        across, down = 1 << self._format.shift_x, 1 << self._format.shift_y
        if across * down == 1:
            return alpha
        largest = cv2.dilate(alpha, np.ones((down, across), np.uint8), anchor=(0, 0))
        return np.ascontiguousarray(largest[::down, ::across])

    def _planes_of(self, yuv: tuple[int, int, int]) -> Planes:
        """Returns a frame's planes in one color."""
        shapes = self._format.shapes(*self._size)
        y, u, v = (np.full(shape, value, self._format.dtype) for shape, value in zip(shapes, yuv, strict=True))
        return y, u, v


def composite(foreground: Plane, background: Plane, alpha: Alpha) -> Plane:
    """Returns `(foreground * alpha + background * (255 - alpha)) / 255`, each product rounded; all are (h, w)."""
    weight = alpha.astype(foreground.dtype, copy=False)
    kept = cv2.multiply(foreground, weight, scale=1 / 255)
    return cv2.add(kept, cv2.multiply(background, 255 - weight, scale=1 / 255))


def replaced(plane: Plane, old: Plane, new: Plane, alpha: Alpha) -> Plane:
    """Returns `clip(plane - (1 - a) * old, 0, a * peak) + (1 - a) * new`: planes and alpha (h, w), a being alpha / 255.

    A sample at the edge is a mixture of subject and old background, and this exchanges the background. The formula
    holds for chroma too: its zero is half its range, so that both sides of it are clipped by the same share.
    """
    rest = 255 - alpha.astype(plane.dtype, copy=False)
    subject = cv2.subtract(plane, cv2.multiply(old, rest, scale=1 / 255))  # not below 0
    return cv2.add(cv2.min(subject, scaled_alpha(alpha, plane.dtype)), cv2.multiply(new, rest, scale=1 / 255))


def cut_out(plane: Plane, old: Plane, nothing: int, alpha: Alpha) -> Plane:
    """Returns `(plane - (1 - a) * old) / a`, the subject's own color in straight alpha; `nothing` where alpha is 0.

    With `plane` itself as the old background, colors stay as they are.
    """
    result = np.where(alpha > 0, plane, nothing).astype(plane.dtype)
    edge = (alpha > 0) & (alpha < 255)
    share = alpha[edge].astype(np.float32)
    own = (plane[edge] * np.float32(255) - old[edge] * (255 - share)) / share
    result[edge] = np.rint(np.clip(own, 0, _peak(plane.dtype)))
    return result


def scaled_alpha(alpha: Alpha, dtype: np.dtype[np.generic]) -> Plane:
    """Returns alpha in samples of 8 bits (uint8) or 10 (uint16)."""
    if dtype == np.uint8:
        return alpha
    return np.rint(alpha * np.float32(_peak(dtype) / 255)).astype(dtype)


def _peak(dtype: np.dtype[np.generic]) -> int:
    return 255 if dtype == np.uint8 else 1023


def _blocks(plane: Plane, alpha: Alpha, across: int, down: int) -> Plane:
    """Returns a plane in blocks of `across` x `down` samples, each the mean of its samples weighted by 255 - alpha."""
    height, width = plane.shape
    small = (-(-width // across), -(-height // down))
    # Beyond the plane's end weights are 0. Both are written in place: allocating large arrays takes the most time.
    weight, weighted = (np.zeros((small[1] * down, small[0] * across), np.float32) for _ in range(2))
    inside = np.s_[:height, :width]
    weight[inside] = 255 - alpha
    np.multiply(plane, weight[inside], out=weighted[inside])
    total, background = (cv2.resize(layer, small, interpolation=cv2.INTER_AREA) for layer in (weighted, weight))
    mean = total / np.maximum(background, 1e-6)  # without background nothing of it shows
    large = cv2.resize((mean + 0.5).astype(plane.dtype), None, fx=across, fy=down, interpolation=cv2.INTER_NEAREST)
    return np.ascontiguousarray(large[:height, :width])
