"""Puts the effect on the whole picture where there is no mask for it: nothing is shown for want of one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from segmentation.frames import Array, MaskedBatch, Transfer
from segmentation.options.config import Config


def covered(batch: MaskedBatch, config: Config, transfer: Transfer) -> MaskedBatch:
    """Returns the batch with masks that put the effect everywhere, for repeated frames and for masks with a NaN.

    A repeated picture is old. A network whose numbers overflow returns NaN, in which an edge would lie anywhere.
    """
    value = 1.0 if config.invert else 0.0
    with transfer.on_stream():
        masks = _filled(batch.masks, value) if batch.frames.repeated else _without_nan(batch.masks, value)
    return replace(batch, masks=masks)


def _filled(masks: Array, value: float) -> Array:
    return np.full_like(masks, value) if isinstance(masks, np.ndarray) else masks.new_full(masks.shape, value)


def _without_nan(masks: Array, value: float) -> Array:
    """Returns the masks (N, h, w), where all of one that has a NaN is `value`. Waits for no GPU."""
    if isinstance(masks, np.ndarray):
        unknown = np.isnan(masks.sum(axis=(1, 2)))
        return np.where(unknown[:, None, None], np.float32(value), masks) if unknown.any() else masks
    return masks.masked_fill(masks.sum(dim=(1, 2)).isnan()[:, None, None], value)
