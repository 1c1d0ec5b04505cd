"""Draws the card that an output shows while its source is lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames import FORMATS, FrameBatch, Plane, Planes, VideoInfo

_FONT = cv2.FONT_HERSHEY_SIMPLEX
_GROUND, _INK = (32, 32, 32), (235, 235, 235)  # RGB
_WIDEST = 0.8  # of the picture's width: the longest line
_HIGHEST = 0.08  # of the picture's height: a line's letters
_SPACING = 2.0  # from line to line, in heights of letters


def lost_card(info: VideoInfo, pix_fmt: str) -> Planes:
    """Returns the planes of a picture that says since when the source is lost, as large as the video's frames.

    The name is on the picture if the source has one. An address is nothing for those who see the picture.
    """
    name = [info.source.name] if info.source.name else []
    return card(info, pix_fmt, [*name, "no signal", f"since {time.strftime('%H:%M:%S')}"])


def with_card(batch: FrameBatch, shown: Planes) -> FrameBatch:
    """Returns a batch of one frame, on the host or on a GPU, with the card's planes in the place of its own."""
    if batch.memory == "host":
        return replace(batch, frames=tuple(replace(frame, planes=shown) for frame in batch.frames))
    for plane, part in zip(batch.planes, shown, strict=True):
        plane[: len(batch)].copy_(plane.new_tensor(part))
    return batch


def card(info: VideoInfo, pix_fmt: str, lines: Sequence[str]) -> Planes:
    """Returns the planes of a picture with `lines` in its middle, upright after the video's rotation."""
    layout = FORMATS[pix_fmt]
    letters = np.ascontiguousarray(info.orientation.stored(_letters(lines, *info.upright_size)))
    ground, ink = (info.color.from_rgb(rgb, layout.bits) for rgb in (_GROUND, _INK))

    def plane(shape: tuple[int, int], low: int, high: int) -> Plane:
        share = cv2.resize(letters, shape[::-1], interpolation=cv2.INTER_AREA) / 255
        return (low + share * (high - low)).astype(layout.dtype)

    y, u, v = map(plane, layout.shapes(info.width, info.height), ground, ink)
    return y, u, v


def _letters(lines: Sequence[str], width: int, height: int) -> NDArray[np.uint8]:
    """Returns how much of each pixel (H, W) is ink, 0 to 255."""
    canvas = np.zeros((height, width), np.uint8)
    (_, tall), _ = cv2.getTextSize("H", _FONT, 1.0, 1)
    widest = max(cv2.getTextSize(line, _FONT, 1.0, 1)[0][0] for line in lines)
    scale = min(_WIDEST * width / widest, _HIGHEST * height / tall)
    step = _SPACING * scale * tall
    for number, line in enumerate(lines):
        thickness = max(1, round(1.5 * scale))
        (wide, _), _ = cv2.getTextSize(line, _FONT, scale, thickness)
        place = (
            round((width - wide) / 2),
            round(height / 2 + step * (number - (len(lines) - 1) / 2) + scale * tall / 2),
        )
        cv2.putText(canvas, line, place, _FONT, scale, 255, thickness, cv2.LINE_AA)
    return canvas
