"""Convolutions of 1x1 with one of each channel by itself behind them, on a GPU in FP16: one kernel of our own."""

from __future__ import annotations

import numpy as np
import torch

from segmentation.gpu.kernels import THREADS, Kernels
from segmentation.stages.inference.compiler.cuda_graph import kernels_on
from segmentation.stages.inference.compiler.depthwise import Bounds
from segmentation.stages.inference.compiler.network_kernels import SEPARABLE, SeparableForm, tile_of


def separable(
    x: torch.Tensor,
    weight: torch.Tensor,
    point_bias: torch.Tensor,
    taps: torch.Tensor,
    bias: torch.Tensor,
    form: SeparableForm,
    bounds: Bounds,
) -> torch.Tensor:
    """Returns the convolution of x (N, C, H, W), float16, by 1x1, then of each of the K channels, channels last.

    `weight` is (K, C, 1, 1), `taps` those of `depthwise.taps_of` for a side of 3, biases are (K,), all float16. Between
    the two, places are rounded to float16, and outside of the picture zero. The result is brought within `bounds`; with
    `form.pool` it is the highest of each square of so many rows and columns. Sums are in FP32.
    """
    return launched(kernels_on(x.device, SEPARABLE[form]), x, weight, point_bias, taps, bias, form, bounds)


def launched(
    kernels: Kernels,
    x: torch.Tensor,
    weight: torch.Tensor,
    point_bias: torch.Tensor,
    taps: torch.Tensor,
    bias: torch.Tensor,
    form: SeparableForm,
    bounds: Bounds,
) -> torch.Tensor:
    """Queues the kernel; see `separable`."""
    count, _, height, width = x.shape
    given = x.permute(0, 2, 3, 1).contiguous()  # no copy of what is channels last already
    out = torch.empty((count, height // form.pool, width // form.pool, form.outputs), dtype=x.dtype, device=x.device)
    across, down = (-(-size // (tile - 2)) for size, tile in zip((width, height), tile_of(form), strict=True))
    size = across * THREADS[0], down * THREADS[1], count  # a block makes a tile without its edge
    factors = weight.flatten(1).contiguous(), point_bias, taps, bias
    kernels("separable", size, given, *factors, out, width, height, *map(np.float32, bounds))
    return out.permute(0, 3, 1, 2)
