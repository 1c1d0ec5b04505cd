"""Masks of some instances alone: of those that are kept, or of those that an effect is for."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np

from segmentation.frames import MaskedBatch, Memory, Transfer
from segmentation.options.effect import Effect
from segmentation.tracking.choice import selection, within

_FRINGE = 7  # pixels a side of the square around a pixel whose values below the threshold go with it
SHOWING = ("cutout", "mask", "overlay")  # effects that show the mask: with a label, its instances

KEPT = Effect("mask")  # for the masks of those who are kept


def with_selected_masks(
    batch: MaskedBatch, effect: Effect, threshold: float, transfer: Transfer, *, keeping: bool
) -> MaskedBatch:
    """Returns the batch with the masks for an effect: what it leaves as it is, and for `SHOWING` what is shown.

    Without `keeping` and without a label that is the batch itself. So it is where instances are not found:
    there `fail_closed.py` has put the effect everywhere.
    """
    if not batch.instances or batch.frames.repeated or not (keeping or effect.label):
        return batch
    chosen = np.stack([selection(frame, effect.label, keeping=keeping) for frame in batch.instances])
    kernel = np.ones((_FRINGE, _FRINGE), np.uint8)
    near = np.stack([cv2.dilate(place.astype(np.uint8), kernel) for place in chosen])
    taken = np.stack([frame.label_map > 0 for frame in batch.instances]) & ~chosen
    unknown = np.array([frame.unknown for frame in batch.instances], np.float32)[:, None, None]
    masks, count = batch.masks, len(batch)
    memory: Memory = "host" if isinstance(masks, np.ndarray) else "cuda"
    found_within = np.stack([within(frame, effect.label, keeping=keeping) for frame in batch.instances])
    parts = ((near > 0) & ~taken, found_within, unknown)
    soft, whole, covered = (transfer.rows(part.astype(np.float32), memory, count) for part in parts)
    with transfer.on_stream():
        masks = masks[:count]
        low = (masks <= threshold) * whole  # the first network's mask says nothing of them
        found = masks * soft * (1 - low) + low
        found = 1 - found if effect.label and effect.kind not in SHOWING else found
        return replace(batch, masks=found * (1 - covered) + masks * covered)
