"""Preprocesses frames with OpenCV on the CPU: shrinks the planes first, then converts the few pixels that are left."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.frames import FORMATS, Frame, FrameBatch, Halvings, Memory, Plane, VideoInfo
from segmentation.models.detection import Place
from segmentation.models.input_size import shape_shown
from segmentation.models.model import Model
from segmentation.options.config import Config
from segmentation.stages.preprocess import GRAY, Preprocessor
from segmentation.stages.preprocess.resampling import shrink_steps

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu


class OpenCVPreprocessor(Preprocessor):
    """A `Preprocessor` with NumPy arrays. Frames may differ in size."""

    memory: ClassVar[Memory] = "host"

    def __init__(self, info: VideoInfo, pix_fmt: str, model: Model, config: Config, gpu: Gpu | None = None) -> None:
        self._model, self._info = model, info
        self._orientation = info.orientation
        self._to_rgb = info.color.yuv_to_rgb(FORMATS[pix_fmt].bits)
        self._order = (2, 1, 0) if model.channel_order == "bgr" else (0, 1, 2)

    @staticmethod
    def describe(config: Config, info: VideoInfo | None = None) -> str:
        return f"OpenCV {cv2.__version__}"

    def __call__(self, batch: FrameBatch) -> NDArray[np.generic]:
        tensor = np.empty((len(batch), 3, self._model.height, self._model.width), self._model.dtype)
        for pixels, frame in zip(tensor, batch.frames, strict=True):
            height, width = frame.planes[0].shape
            place = self._model.place_of(*shape_shown(self._info, width, height))
            rgb = self._orientation.upright(self._small_rgb(frame, place))
            whole = rgb.shape[:2] == pixels.shape[1:]
            for target, channel in zip(pixels, self._order, strict=True):
                mean, deviation = self._model.mean[channel], self._model.std[channel]
                if not whole:
                    target[:] = (GRAY - mean) / deviation
                target[place.pixels] = (rgb[..., channel] - mean) / deviation
        return tensor

    def _small_rgb(self, frame: Frame, place: Place) -> NDArray[np.float32]:
        """Returns the frame at its size in the input: (h, w, 3) float32 RGB in 0..1, as stored, not upright."""
        size = self._orientation.size(place.width, place.height)
        # Shrinking and the color matrix are both linear, so that their order matters for the clipping alone.
        small = cv2.merge([shrink(p, size, known) for p, known in zip(frame.planes, frame.halvings, strict=True)])
        return np.clip(cv2.transform(small.astype(np.float32), self._to_rgb), 0, 1)


def shrink(plane: Plane, size: tuple[int, int], halvings: Halvings | None = None) -> Plane:
    """Returns `plane` (h, w) resampled to `size` (width, height) without aliasing.

    Halvings on the way are read from `halvings` of this plane and added to it. Several stages shrink the same planes,
    and the first halving, which reads the whole plane, takes most of the time.
    """
    halvings = {} if halvings is None else halvings
    for step, target in shrink_steps((plane.shape[0], plane.shape[1]), size):
        if target in halvings:
            plane = halvings[target]
            continue
        # OpenCV averages 2x2 pixels many times faster than any other area.
        plane = cv2.resize(plane, target, interpolation=cv2.INTER_LINEAR if step == "linear" else cv2.INTER_AREA)
        if step == "half":
            halvings[target] = plane
    return plane
