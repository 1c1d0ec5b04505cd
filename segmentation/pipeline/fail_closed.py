"""Puts the effect on the whole picture where there is no mask for it: a missing mask shows nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from segmentation.frames import Array, MaskedBatch, Memory, Transfer, VideoInfo
from segmentation.options.config import Config
from segmentation.tracking.anonymize.regions import Regions

if TYPE_CHECKING:  # machines without a GPU may lack its libraries
    from segmentation.gpu.context import Gpu


class FailClosed:
    """Replaces unknown masks by masks that put the effect everywhere: those of repeated frames, and those with a NaN.

    A repeated picture is old. A network whose numbers overflow returns NaN, in which an edge would lie anywhere. These
    frames are noted, and so are known masks with a value above the threshold. Regions that are covered come last.
    """

    def __init__(self, config: Config, info: VideoInfo, transfer: Transfer, memory: Memory, gpu: Gpu | None) -> None:
        """`memory` is where the masks are. On a GPU the next call may overwrite the masks of a call.

        Raises `ConfigError` for a region outside of the picture.
        """
        self._value = 1.0 if config.invert else 0.0
        self._transfer = transfer
        self._regions = Regions(config, info, transfer)
        self._without_nan: Callable[[Any, float], tuple[Array, NDArray[np.bool_], NDArray[np.bool_]]]
        self._without_nan = partial(without_nan, threshold=config.threshold)
        if gpu is not None and memory == "cuda":
            from segmentation.stages.masks.cuda import CudaCover  # needs PyTorch

            self._without_nan = CudaCover(config, gpu)

    def __call__(self, batch: MaskedBatch) -> MaskedBatch:
        if not batch.frames.repeated:
            masks, found, unknown = self._without_nan(batch.masks, self._value)
            known = replace(batch, masks=masks, found=found[: len(batch)], unknown=unknown[: len(batch)])
            return self._regions(known)
        with self._transfer.on_stream():
            return replace(batch, masks=_filled(batch.masks, self._value))


def without_nan(
    masks: NDArray[np.float32], value: float, threshold: float
) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]]:
    """Returns the masks (N, h, w), where all of one that has a NaN is `value`.

    The others are (N,): which of the masks without a NaN exceed `threshold`, and which had one.
    """
    peaks = masks.max(axis=(1, 2))  # NaN where there is one
    unknown = np.isnan(peaks)
    covered = np.where(unknown[:, None, None], np.float32(value), masks) if unknown.any() else masks
    return covered, peaks > np.float32(threshold), unknown


def _filled(masks: Array, value: float) -> Array:
    return np.full_like(masks, value) if isinstance(masks, np.ndarray) else masks.new_full(masks.shape, value)
