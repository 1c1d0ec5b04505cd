"""Convolutions of each channel by itself, on a GPU in FP16: a kernel of our own."""

from __future__ import annotations

import math

import numpy as np
import torch

from segmentation.gpu.kernels import Kernels
from segmentation.stages.inference.compiler.cuda_graph import kernels_on
from segmentation.stages.inference.compiler.network_kernels import DEPTHWISE, EIGHT, WIDE, LayerForm

Bounds = tuple[float, float]  # least and most
UNBOUNDED = -math.inf, math.inf


def taps_of(weight: torch.Tensor) -> torch.Tensor:
    """Returns the weights (C, 1, side, side) of a convolution as the kernel takes them: (side * side, C)."""
    return weight.flatten(1).t().contiguous()


def depthwise(
    x: torch.Tensor,
    taps: torch.Tensor,
    bias: torch.Tensor,
    form: LayerForm,
    padding: int,
    bounds: Bounds,
    limit: float = math.inf,
) -> torch.Tensor:
    """Returns the convolution of x (N, C, H, W), float16, brought within `bounds`, channels last.

    Values of x above `limit` count as `limit`. `taps` are those of `taps_of`, `bias` is (C,), both float16. C is a
    multiple of `EIGHT`, `form` a key of `DEPTHWISE`. Sums are in FP32.
    """
    return launched(kernels_on(x.device, DEPTHWISE[form]), x, taps, bias, form, padding, bounds, limit)


def launched(
    kernels: Kernels,
    x: torch.Tensor,
    taps: torch.Tensor,
    bias: torch.Tensor,
    form: LayerForm,
    padding: int,
    bounds: Bounds,
    limit: float = math.inf,
) -> torch.Tensor:
    """Queues the kernel; see `depthwise`."""
    count, channels, height, width = x.shape
    reach = form.dilation * (form.side - 1) + 1 - 2 * padding
    rows, columns = ((size - reach) // form.stride + 1 for size in (height, width))
    given = x.permute(0, 2, 3, 1).contiguous()  # no copy of what is channels last already
    out = torch.empty((count, rows, columns, channels), dtype=x.dtype, device=x.device)
    size = (channels // EIGHT * -(-columns // WIDE), rows, count)
    shape = channels, width, height, columns, rows, padding
    kernels("depthwise", size, given, taps, bias, out, *shape, *map(np.float32, (*bounds, limit)))
    return out.permute(0, 3, 1, 2)
