"""The planes of PyAV's frames as NumPy arrays."""

from collections.abc import Sequence

import numpy as np
from av.video.frame import VideoFrame
from av.video.reformatter import Interpolation
from numpy.typing import NDArray

from segmentation.frames import FORMATS, FULL, LIMITED, PixelFormat, Plane, VideoInfo

# swscale's flags where every level counts: chroma for each pixel, rounded rather than cut off.
EXACT = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT | Interpolation.FULL_CHR_H_INP


def plane_view(frame: VideoFrame, index: int, dtype: type[np.uint8] | type[np.uint16]) -> Plane:
    """Returns plane `index` of a planar frame, as an array (h, w) of `dtype` that shares the frame's memory."""
    plane = frame.planes[index]
    samples: Plane = np.frombuffer(plane, dtype)  # type: ignore[call-overload]
    rows = samples.reshape(plane.height, plane.line_size // np.dtype(dtype).itemsize)
    return rows[:, : plane.width]


def bounded_view(frame: VideoFrame, index: int, layout: PixelFormat) -> Plane:
    """Returns plane `index` of a decoded frame of this layout, with no sample above the layout's depth.

    Damaged streams and raw video hold such samples in 16 bits, and libx264 ends the process at one. Then the plane is
    a copy.
    """
    plane = plane_view(frame, index, layout.dtype)
    peak = (1 << layout.bits) - 1
    return np.minimum(plane, layout.dtype(peak)) if layout.bits > 8 and plane.max() > peak else plane


def rgb_of(planes: Sequence[Plane], pix_fmt: str, info: VideoInfo) -> NDArray[np.uint8]:
    """Returns a frame upright as (H, W, 3) RGB, by the video's own matrix and range, or (H, W, 4) with a fourth plane.

    HDR is not mapped to SDR. Where alpha is 0 the picture is black.
    """
    layout, color, cutout = FORMATS[pix_fmt], info.color, len(planes) == 4
    picture = VideoFrame(info.width, info.height, layout.name.replace("yuv", "yuva") if cutout else layout.name)
    for i, plane in enumerate(planes):
        plane_view(picture, i, layout.dtype)[:] = plane
    rgb = picture.reformat(
        format="rgba" if cutout else "rgb24",
        src_colorspace=color.swscale,
        src_color_range=FULL if color.range == FULL else LIMITED,
        dst_color_range=FULL,
        interpolation=EXACT,
    ).to_ndarray()
    if cutout:
        rgb[planes[3] == 0] = 0  # subsampled chroma brings colors of neighbors
    return np.ascontiguousarray(info.orientation.upright(rgb), np.uint8)
