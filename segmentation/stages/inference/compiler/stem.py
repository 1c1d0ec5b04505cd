"""The first convolution of a network of pictures, on a GPU: a kernel of our own that reads them as they come."""

from __future__ import annotations

import numpy as np
import torch

from segmentation.gpu.kernels import Kernels
from segmentation.stages.inference.compiler.cuda_graph import kernels_on
from segmentation.stages.inference.compiler.depthwise import Bounds
from segmentation.stages.inference.compiler.network_kernels import EIGHT, SIDE, STEM, STRIDE, WIDE


def taps_of(weight: torch.Tensor) -> torch.Tensor:
    """Returns the weights (C, 3, 3, 3) of a convolution as the kernel takes them: (3, 3, 3, C)."""
    return weight.permute(1, 2, 3, 0).contiguous()


def stem(
    x: torch.Tensor, taps: torch.Tensor, bias: torch.Tensor, padding: int, bounds: Bounds, mirrored: bool = False
) -> torch.Tensor:
    """Returns the convolution of x (N, 3, H, W), rounded to float16, brought within `bounds`, channels last.

    `taps` are those of `taps_of`, `bias` is (C,), both float16, and C a multiple of `EIGHT`; the stride is `STRIDE`.
    Sums are in FP32. With `mirrored` x is read from right to left.
    """
    return launched(kernels_on(x.device, STEM), x, taps, bias, padding, bounds, mirrored)


def launched(
    kernels: Kernels,
    x: torch.Tensor,
    taps: torch.Tensor,
    bias: torch.Tensor,
    padding: int,
    bounds: Bounds,
    mirrored: bool = False,
) -> torch.Tensor:
    """Queues the kernel; see `stem`."""
    count, _, height, width = x.shape
    rows, columns = ((size + 2 * padding - SIDE) // STRIDE + 1 for size in (height, width))
    channels = taps.shape[-1]
    out = torch.empty((count, rows, columns, channels), dtype=taps.dtype, device=x.device)
    size = (channels // EIGHT * -(-columns // WIDE), rows, count)
    shape = channels, width, height, columns, rows, padding, int(mirrored)
    kernels("stem", size, x.float().contiguous(), taps, bias, out, *shape, *map(np.float32, bounds))
    return out.permute(0, 3, 1, 2)
