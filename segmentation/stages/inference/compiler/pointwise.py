"""Convolutions of 1x1 in FP16 as matrix products: a row for each place, its channels beside each other.

cuBLAS adds a bias, a ReLU and what the result is added to in the kernel of the product; PyTorch's convolution queues
each as a kernel of its own.
"""

from __future__ import annotations

import torch


def pointwise(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, rectified: bool = False
) -> torch.Tensor:
    """Returns the convolution of x (N, C, H, W) with weights (K, C, 1, 1) and biases (K,), channels last.

    With `rectified`, which needs biases, returns its ReLU.
    """
    factors = _rows(x), weight.flatten(1).t()
    if bias is None:
        return _picture(torch.mm(*factors), x)
    return _picture((torch._addmm_activation if rectified else torch.addmm)(bias, *factors), x)


def pointwise_into(x: torch.Tensor, weight: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """Returns `pointwise(x, weight, None) + total`, where possible in the memory of `total`."""
    if total.shape != (len(x), len(weight), *x.shape[2:]):
        return pointwise(x, weight, None) + total
    return _picture(_rows(total).addmm_(_rows(x), weight.flatten(1).t()), x)


def _rows(x: torch.Tensor) -> torch.Tensor:
    """Returns x (N, C, H, W) as (N * H * W, C): without a copy if it is channels last."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


def _picture(rows: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Returns (N * H * W, K) as (N, K, H, W), of as many places as `like` has."""
    count, _, height, width = like.shape
    return rows.view(count, height, width, -1).permute(0, 3, 1, 2)
