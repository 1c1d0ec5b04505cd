"""Covers on a GPU: the same as in `cover.py` and `several.py`, without a way of masks to or from the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from segmentation.frames import FORMATS
from segmentation.stages.masks.mask_kernels import MASKS

if TYPE_CHECKING:
    from segmentation.gpu.context import Gpu


class CudaEllipses:
    """Calling it returns masks (N, H, W) of the ellipses (N, most, 4), as `cover.inside` has them. It does not wait."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._kernels = gpu.kernels(MASKS, FORMATS["yuv420p"])

    def __call__(self, ellipses: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
        count, most, _ = ellipses.shape
        height, width = size
        masks = self._gpu.empty((count, height, width), torch.float32)
        self._kernels("draw_ellipses", (width, height, count), ellipses, most, width, height, masks)
        return masks


def around(parts: Sequence[torch.Tensor], rows: range, reach: int, kernel: NDArray[np.uint8]) -> torch.Tensor:
    """Returns `rows` of successive masks (n, h, w): each the highest of `reach` frames on either side, dilated.

    `kernel` (k, k) is 1 in the middle of each of its rows. Masks with a NaN become NaN.
    """
    line = torch.cat(list(parts))
    masks, height = line[rows.start : rows.stop], line.shape[1]
    highest = F.max_pool3d(line[None], (2 * reach + 1, 1, 1), 1, (reach, 0, 0))[0, rows.start : rows.stop]
    beyond = len(kernel) // 2
    padded = F.pad(highest, (0, 0, beyond, beyond), value=-torch.inf)
    grown = highest
    for down, wide in enumerate(kernel.sum(axis=1).tolist()):
        grown = grown.maximum(F.max_pool2d(padded[:, down : down + height], (1, wide), 1, (0, wide // 2)))
    return grown.masked_fill(masks.isnan().any(2).any(1)[:, None, None], torch.nan)


def with_people(masks: torch.Tensor, people: torch.Tensor, least: float) -> torch.Tensor:
    """Returns masks (n, H, W) that are 1 where those of people (n, h, w) exceed `least`.

    Where these have a NaN, all of the mask is NaN.
    """
    there = F.interpolate(people[:, None], masks.shape[1:], mode="bilinear", align_corners=False)[:, 0]
    unknown = people.isnan().any(2).any(1)[:, None, None]
    return masks.masked_fill(there > least, 1.0).masked_fill(unknown, torch.nan)
