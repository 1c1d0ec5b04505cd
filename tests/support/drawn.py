"""Frames and masks made of numbers alone: what the stages are given, and what they made of it."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames import FORMATS, Color, Frame, FrameBatch, Planes, VideoInfo
from segmentation.frames.orientation import UPRIGHT, Orientation
from segmentation.frames.source import Source
from segmentation.models.model import Model

MODEL = Model(
    name="test",
    path=Path("test.onnx"),
    input_name="input",
    output_name="mask",
    dtype=np.float32,
    batch=None,
    height=96,
    width=160,
    mean=(0.0, 0.0, 0.0),
    std=(1.0, 1.0, 1.0),
    channel_order="rgb",
    labels=("person",),
    activation="none",
    keep=(0,),
)


ORIENTATIONS = [Orientation(turns, mirrored) for mirrored in (False, True) for turns in range(4)]


def display_matrix(orientation: Orientation) -> tuple[int, ...]:
    """Returns FFmpeg's display matrix, for `VideoStream.set_display_matrix`."""
    a, b, c, d = ((1, 0, 0, 1), (0, -1, 1, 0), (-1, 0, 0, -1), (0, 1, -1, 0))[orientation.turns]
    across = -65536 if orientation.mirrored else 65536
    return (across * a, 65536 * b, 0, across * c, 65536 * d, 0, 0, 0, 1 << 30)


def make_info(width: int, height: int, color: Color, shown: Orientation | int = UPRIGHT) -> VideoInfo:
    """Describes a video that is shown so; a number is degrees counter-clockwise."""
    orientation = shown if isinstance(shown, Orientation) else Orientation(shown // 90)
    return VideoInfo(
        source=Source.parse("test.mp4"),
        stream_index=0,
        width=width,
        height=height,
        pix_fmt="yuv420p",
        codec="h264",
        color=color,
        time_base=Fraction(1, 30),
        rate=Fraction(30),
        start=Fraction(0),
        frames=1,
        frames_exact=True,
        end=None,
        sample_aspect_ratio=None,
        display_matrix=None,
        rotation=90 * orientation.turns,
        mirrored=orientation.mirrored,
        interlaced=False,
    )


def batch_of(*planes: Planes) -> FrameBatch:
    return FrameBatch(frames=tuple(Frame(planes=p, pts=i, duration=1) for i, p in enumerate(planes)), index=0)


def smooth_rgb(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    """A picture (H, W, 3) with all hues and no detail that chroma subsampling would lose."""
    noise = np.random.default_rng(seed).random((5, 7, 3)).astype(np.float32)
    return (cv2.resize(noise, (width, height), interpolation=cv2.INTER_LINEAR) * 255).astype(np.uint8)


def planes_of(rgb: NDArray[np.uint8], pix_fmt: str, color: Color) -> Planes:
    """RGB to planes by the matrix's own definition, in floating point: no library's rounding in the way."""
    layout = FORMATS[pix_fmt]
    to_rgb = color.yuv_to_rgb(layout.bits).astype(np.float64)
    yuv = (rgb / 255 - to_rgb[:, 3]) @ np.linalg.inv(to_rgb[:, :3]).T
    full = [np.clip(np.round(yuv[..., i]), 0, 2**layout.bits - 1).astype(layout.dtype) for i in range(3)]
    small = (-(-rgb.shape[1] >> layout.shift_x), -(-rgb.shape[0] >> layout.shift_y))
    y, u, v = full[0], *(cv2.resize(p, small, interpolation=cv2.INTER_AREA) for p in full[1:])
    return y, u, v


def noise(pix_fmt: str, width: int = 322, height: int = 182, seed: int = 0) -> Planes:
    layout = FORMATS[pix_fmt]
    generator = np.random.default_rng(seed)
    chroma = (-(-height >> layout.shift_y), -(-width >> layout.shift_x))
    shapes = ((height, width), chroma, chroma)
    y, u, v = (generator.integers(0, 1 << layout.bits, shape).astype(layout.dtype) for shape in shapes)
    return y, u, v


def soft_mask(height: int, width: int, seed: int = 0) -> NDArray[np.float32]:
    """(2, height, width): regions that are kept, regions that are not, and everything between."""
    small = smooth_rgb(height, width, seed).astype(np.float32) / 255
    return np.clip((small[..., :2].transpose(2, 0, 1) - 0.5) * 3 + 0.5, 0, 1)


def disk(size: tuple[int, int], radius: float) -> NDArray[np.float32]:
    """A disk in the middle of (h, w) whose radius is this share of the height; squeezed as the picture is."""
    height, width = size
    y, x = np.mgrid[:height, :width].astype(np.float32)
    apart = np.hypot((y + 0.5) / height - 0.5, ((x + 0.5) / width - 0.5) * 16 / 9) - radius
    return np.clip(0.5 - apart * height, 0, 1).astype(np.float32)


def shown(planes: Any, pix_fmt: str, color: Color, turns: int = 0) -> NDArray[np.float32]:
    """The upright picture in RGB of 0..255."""
    size = planes[0].shape[::-1]
    yuv = np.dstack([cv2.resize(p, size, interpolation=cv2.INTER_LINEAR) for p in planes]).astype(np.float32)
    rgb = cv2.transform(yuv, color.yuv_to_rgb(FORMATS[pix_fmt].bits)) * 255
    return np.rot90(rgb, turns)


def compare(
    ours: FrameBatch, theirs: FrameBatch, pix_fmt: str, *, most: float, mean: float = 0.5, least_alpha: int = 0
) -> None:
    """Planes are the same to `most` levels of 255, and to `mean` on average, where a cut-out's alpha is not less."""
    layout = FORMATS[pix_fmt]
    scale = 1 << (layout.bits - 8)
    for a, b in zip(ours.frames, theirs.frames, strict=True):
        assert (a.pts, a.duration) == (b.pts, b.duration)
        for index, (plane, other) in enumerate(zip(a.planes, b.planes, strict=True)):
            assert plane.shape == other.shape and plane.dtype == other.dtype
            difference = np.abs(plane.astype(int) - other) / scale
            if least_alpha and index < 3:
                alpha: Any = b.planes[3]  # type: ignore[misc]
                across, down = (1 << layout.shift_x, 1 << layout.shift_y) if index else (1, 1)
                difference = difference[alpha[::down, ::across] >= least_alpha * scale]
            assert difference.max() <= most
            assert difference.mean() <= mean
