"""Makes small pictures of frames, as large as their masks: people differ by their colors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from segmentation.frames import Array, FrameBatch, Plane, VideoInfo
from segmentation.tracking.color_histograms import Samples

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu

Sampler: TypeAlias = "Callable[[FrameBatch, tuple[int, int]], Array]"  # see `color_samples`


def make_sampler(batch: FrameBatch, info: VideoInfo, pix_fmt: str, gpu: Gpu | None) -> Sampler:
    """Returns the function that makes small pictures of batches, on the GPU if this one is there."""
    if gpu is None or batch.memory == "host":
        return lambda frames, shape: color_samples(frames, info, shape)
    from segmentation.tracking.cuda_color_samples import CudaColorSamples  # needs PyTorch

    return CudaColorSamples(info, pix_fmt, gpu)


def color_samples(batch: FrameBatch, info: VideoInfo, shape: tuple[int, int]) -> Samples:
    """Returns one sample of the color for each place of masks (h, w), upright, of a batch on the host."""
    stored = info.orientation.size(*shape)
    levels = np.stack([[_sampled(plane, stored) for plane in frame.planes] for frame in batch.frames], 1)
    return info.orientation.upright(levels, (2, 3))


def _sampled(plane: Plane, shape: Sequence[int]) -> NDArray[np.uint8]:
    """Returns the samples in the middle of each place, in 8 bits."""
    rows, columns = (
        (2 * np.arange(here) + 1) * there // (2 * here) for here, there in zip(shape, plane.shape, strict=True)
    )
    samples = plane[rows[:, None], columns]
    return np.asarray(samples if plane.dtype == np.uint8 else samples >> 2, np.uint8)
