"""The planes of PyAV's frames as NumPy arrays."""

import numpy as np
from av.video.frame import VideoFrame

from segmentation.frames import Plane


def plane_view(frame: VideoFrame, index: int, dtype: type[np.uint8] | type[np.uint16]) -> Plane:
    """Returns plane `index` of a planar frame, as an array (h, w) of `dtype` that shares the frame's memory."""
    plane = frame.planes[index]
    samples: Plane = np.frombuffer(plane, dtype)  # type: ignore[call-overload]
    rows = samples.reshape(plane.height, plane.line_size // np.dtype(dtype).itemsize)
    return rows[:, : plane.width]
