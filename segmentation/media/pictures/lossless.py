"""Pictures that FFmpeg can't decode, as a lossless video in memory that it can."""

from collections.abc import Sequence
from fractions import Fraction
from io import BytesIO
from itertools import accumulate

import av
import numpy as np
from av.codec.context import Flags
from av.container import InputContainer
from av.video.frame import VideoFrame
from numpy.typing import NDArray

_TICK = Fraction(1, 1000)  # WebP's and Matroska's


def lossless_video(pictures: Sequence[NDArray[np.uint8]], durations: Sequence[int]) -> InputContainer:
    """Returns pictures, (H, W, 3) BGR or (H, W, 4) BGRA, as a Matroska file with FFV1.

    Each is shown for so many milliseconds.
    """
    file = BytesIO()
    layout = "bgra" if any(pixels.shape[2] == 4 for pixels in pictures) else "bgr0"
    with av.open(file, "w", format="matroska") as container:
        rate = Fraction(1000 * len(durations), sum(durations)).limit_denominator(1000)
        stream = container.add_stream("ffv1", rate=rate, options={"level": "3"})
        context = stream.codec_context
        context.height, context.width = pictures[0].shape[:2]
        context.pix_fmt, context.time_base = layout, _TICK
        context.flags |= Flags.frame_duration
        for pixels, duration, end in zip(pictures, durations, accumulate(durations), strict=True):
            form = "bgra" if pixels.shape[2] == 4 else "bgr24"
            frame = VideoFrame.from_ndarray(np.ascontiguousarray(pixels, np.uint8), form)
            frame.pts, frame.duration, frame.time_base = end - duration, duration, _TICK
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    file.seek(0)
    opened: InputContainer = av.open(file, "r")
    return opened
