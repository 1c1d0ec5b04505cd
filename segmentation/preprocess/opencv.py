"""Preprocessing with OpenCV on the CPU: shrink the planes first, convert the few pixels that are left."""

import cv2
import numpy as np
from numpy.typing import NDArray

from segmentation.config import Config
from segmentation.frames import FORMATS, FrameBatch, Plane, Planes, VideoInfo
from segmentation.model import Model


class OpenCVPreprocessor:
    """See `segmentation.preprocess`. Returns a NumPy array."""

    def __init__(self, info: VideoInfo, pix_fmt: str, model: Model) -> None:
        self._model = model
        self._turns = info.rotation // 90
        self._to_rgb = info.colour.yuv_to_rgb(FORMATS[pix_fmt].bits)
        height, width = (model.height, model.width) if self._turns % 2 == 0 else (model.width, model.height)
        self._size = (width, height)
        self._order = (2, 1, 0) if model.channel_order == "bgr" else (0, 1, 2)

    @staticmethod
    def describe(config: Config) -> str:
        return f"OpenCV {cv2.__version__}"

    def __call__(self, batch: FrameBatch) -> NDArray[np.generic]:
        tensor = np.empty((len(batch), 3, self._model.height, self._model.width), self._model.dtype)
        for pixels, frame in zip(tensor, batch.frames, strict=True):
            rgb = np.rot90(self._small_rgb(frame.planes), self._turns)
            for target, channel in zip(pixels, self._order, strict=True):
                target[:] = (rgb[..., channel] - self._model.mean[channel]) / self._model.std[channel]
        return tensor

    def _small_rgb(self, planes: Planes) -> NDArray[np.float32]:
        """(h, w, 3) float32 RGB in 0..1, as stored (not yet upright)."""
        # Shrinking and the colour matrix are both linear, so their order does not matter but for the clipping.
        small = cv2.merge([shrink(plane, self._size) for plane in planes])
        return np.clip(cv2.transform(small.astype(np.float32), self._to_rgb), 0, 1)


def shrink(plane: Plane, size: tuple[int, int]) -> Plane:
    """Resamples `plane` (h, w) to `size` (width, height) without aliasing."""
    width, height = size
    # OpenCV averages 2x2 pixels many times faster than any other area, and for what is left, less than another halving,
    # bilinear interpolation reads every pixel.
    while min(plane.shape[0] / height, plane.shape[1] / width) >= 2 and not (plane.shape[0] % 2 or plane.shape[1] % 2):
        plane = cv2.resize(plane, (plane.shape[1] // 2, plane.shape[0] // 2), interpolation=cv2.INTER_AREA)
    if plane.shape == (height, width):
        return plane
    ratio = max(plane.shape[0] / height, plane.shape[1] / width)
    return cv2.resize(plane, size, interpolation=cv2.INTER_AREA if ratio > 2 else cv2.INTER_LINEAR)
