"""Preprocesses crops: parts of frames at full size, for networks that look at what others have found."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from segmentation.frames import Frame, FrameBatch, PixelFormat, VideoInfo
from segmentation.frames.instances import Box
from segmentation.models.detection import Place
from segmentation.models.input_size import shape_shown
from segmentation.models.model import Model


class Crop(NamedTuple):
    """A part of a stored frame, in samples of luma. It begins and ends with whole samples of chroma."""

    frame: int  # its place in the batch
    x: int
    y: int
    width: int
    height: int

    def shown(self, info: VideoInfo) -> Box:
        """Returns the box that the crop shows, in shares of the upright picture."""
        right, bottom = self.x + self.width, self.y + self.height
        stored = self.x / info.width, self.y / info.height, right / info.width, bottom / info.height
        return info.orientation.box(stored)

    def place(self, info: VideoInfo, model: Model) -> Place:
        """Returns where the network's input shows the crop."""
        return model.place_of(*shape_shown(info, self.width, self.height))


class CropPreprocessor(ABC):
    """Calling it with a batch and crops of its frames returns the network's input on the host.

    That is (N, 3, model.height, model.width) in `model.dtype`, each crop as a `Preprocessor` shows a frame of its size.
    There are 1 to `AT_ONCE` crops. The next call may overwrite the result.
    """

    @abstractmethod
    def __call__(self, batch: FrameBatch, crops: Sequence[Crop]) -> NDArray[np.generic]: ...


AT_ONCE = 8  # crops of a call: page-locked memory holds as many for each network of each run


def crop_of(frame: int, box: Box, info: VideoInfo, layout: PixelFormat) -> Crop:
    """Returns the crop of a frame that shows `box`, in shares of the upright picture.

    Whatever lies outside of the picture is left out.
    """
    left, top, right, bottom = info.orientation.inverse.box(box)
    x0, x1 = _span(left, right, info.width, 1 << layout.shift_x)
    y0, y1 = _span(top, bottom, info.height, 1 << layout.shift_y)
    return Crop(frame, x0, y0, x1 - x0, y1 - y0)


def cut(frame: Frame, crop: Crop, layout: PixelFormat) -> Frame:
    """Returns a crop of a frame on the host as a frame of its own, whose planes are views."""
    _, x, y, width, height = crop
    luma, u, v = (
        plane[y >> down : -(-(y + height) >> down), x >> across : -(-(x + width) >> across)]
        for plane, across, down in zip(
            frame.planes[:3], (0, layout.shift_x, layout.shift_x), (0, layout.shift_y, layout.shift_y), strict=True
        )
    )
    return Frame(planes=(luma, u, v), pts=frame.pts, duration=frame.duration)


def _span(begin: float, end: float, length: int, step: int) -> tuple[int, int]:
    """Returns the first sample of a part and the one behind its last, in whole steps; the part has at least one."""
    first = min(max(math.floor(begin * length), 0), length - 1) // step * step
    behind = -(-max(math.ceil(end * length), first + 1) // step) * step
    return first, min(behind, length)
