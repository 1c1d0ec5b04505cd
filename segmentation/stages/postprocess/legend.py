"""Chooses the colors of classes that are shown together, and draws the legend that names them."""

import colorsys
from dataclasses import dataclass

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames import FORMATS, FULL, LIMITED, Color, Plane, Planes, VideoInfo
from segmentation.media.planes import EXACT, plane_view
from segmentation.options.effect import Effect
from segmentation.stages.postprocess.backdrop import subsampled

Rgb = tuple[int, int, int]
# Color-blind eyes tell these colors apart too: Okabe and Ito, "Color Universal Design", 2008, without black.
_OKABE_ITO: tuple[Rgb, ...] = (
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
    (204, 121, 167),
)
_GOLDEN = 0.381966  # of a turn: hues at this distance fill the circle evenly in any number
_LINE = 44  # height of a line, in pixels of a picture whose shorter side has 1080
_LEAST_LINE = 16  # pixels: names on lower lines can't be read
_FONT = cv2.FONT_HERSHEY_SIMPLEX


def palette(length: int) -> list[Rgb]:
    """Returns `length` colors, the same colors each time."""
    colors = list(_OKABE_ITO[:length])
    while len(colors) < length:
        r, g, b = colorsys.hsv_to_rgb(len(colors) * _GOLDEN % 1, 0.8, 0.9)
        colors.append((round(255 * r), round(255 * g), round(255 * b)))
    return colors


def palette_samples(effect: Effect, color: Color, pix_fmt: str) -> tuple[Plane, Plane, Plane]:
    """Returns the colors of the effect's classes as samples: for each plane an array (classes,)."""
    layout = FORMATS[pix_fmt]
    values = [color.from_rgb(rgb, layout.bits) for rgb in palette(len(effect.classes))]
    y, u, v = np.array(values, layout.dtype).reshape(-1, 3).T
    return y, u, v


@dataclass(frozen=True, slots=True)
class Legend:
    """A rectangle of the frame, as stored, in which the name of each class stands on the color of the class."""

    planes: Planes  # the samples of the rectangle
    top: int  # in luma samples, as `left`; both, and the size, are multiples of the chroma subsampling
    left: int

    def boxes(self, pix_fmt: str) -> list[tuple[slice, slice]]:
        """Returns the (rows, columns) of each plane of the frame that the rectangle covers."""
        layout = FORMATS[pix_fmt]
        shifts = ((0, 0), (layout.shift_y, layout.shift_x), (layout.shift_y, layout.shift_x))
        return [
            (
                slice(self.top >> down, (self.top >> down) + plane.shape[0]),
                slice(self.left >> across, (self.left >> across) + plane.shape[1]),
            )
            for plane, (down, across) in zip(self.planes, shifts, strict=True)
        ]


def legend(names: tuple[str, ...], info: VideoInfo, pix_fmt: str) -> Legend:
    """Returns the legend of classes in the colors of `palette`, upright at the bottom left, cut off by the frame."""
    width, height = info.upright_size
    lines = _lines(names, max(_LEAST_LINE, round(_LINE * min(width, height) / 1080)))
    margin = len(lines) // len(names) // 2
    picture = np.zeros((height, width, 3), np.uint8)
    shown = np.zeros((height, width), bool)
    lines = lines[: height - margin, : width - margin]
    place = np.s_[height - margin - lines.shape[0] : height - margin, margin : margin + lines.shape[1]]
    picture[place], shown[place] = lines, True
    picture, shown = map(info.orientation.stored, (picture, shown))
    rows, columns = np.flatnonzero(shown.any(1)), np.flatnonzero(shown.any(0))
    top, bottom, left, right = ((rows[0] + 1) & ~1, (rows[-1] + 1) & ~1, (columns[0] + 1) & ~1, (columns[-1] + 1) & ~1)
    return Legend(_planes(picture[top:bottom, left:right], info.color, pix_fmt), int(top), int(left))


def _lines(names: tuple[str, ...], line: int) -> NDArray[np.uint8]:
    """Returns a picture (H, W, 3) RGB of the names below each other, on lines `line` pixels high."""
    scale = 0.55 * line / cv2.getTextSize("Hg", _FONT, 1.0, 1)[0][1]
    thickness = max(1, line // 20)
    sizes = [cv2.getTextSize(name, _FONT, scale, thickness)[0] for name in names]
    picture = np.zeros((line * len(names), max(size[0] for size in sizes) + line, 3), np.uint8)
    for i, (name, color, size) in enumerate(zip(names, palette(len(names)), sizes, strict=True)):
        part = picture[i * line : (i + 1) * line]
        part[:] = color
        bright = 0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2] > 128
        below = (line + size[1]) // 2
        text = np.ascontiguousarray(part)
        ink = (0,) * 3 if bright else (255,) * 3
        cv2.putText(text, name, (line // 2, below), _FONT, scale, ink, thickness, cv2.LINE_AA)
        part[:] = text
    return picture


def _planes(picture: NDArray[np.uint8], color: Color, pix_fmt: str) -> Planes:
    """Returns a picture (H, W, 3) RGB as planes."""
    layout = FORMATS[pix_fmt]
    full = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24").reformat(
        format=f"yuv444p{'10le' if layout.bits == 10 else ''}",
        dst_colorspace=color.swscale,
        dst_color_range=FULL if color.range == FULL else LIMITED,
        interpolation=EXACT,
    )
    y, u, v = (plane_view(full, i, layout.dtype) for i in range(3))
    return subsampled((y, u, v), layout)
