"""Covers of people on a GPU: the same as in `cover.py` and `several.py`, without a way to the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F


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
