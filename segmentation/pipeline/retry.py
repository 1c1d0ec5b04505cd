"""A second attempt with half the batch, where the GPU's memory was full."""

import gc
import logging
import traceback

from segmentation.config import Config
from segmentation.errors import DeviceMemoryError
from segmentation.models.model import load_model
from segmentation.pipeline.resources import Resources, release_cached_memory

log = logging.getLogger(__name__)


def halve_batch(resources: Resources, config: Config, source: str, exc: DeviceMemoryError) -> None:
    """Limits the batch for the next attempt. Raises `DeviceMemoryError` where the batch can't be smaller."""
    half = resources.batch_size(config, None, on_gpu=True) // 2
    if not half:
        raise exc
    if config.masks is None and (fixed := load_model(config).batch) is not None:
        raise DeviceMemoryError(f"{exc}; {config.model} takes {fixed} frames at a time, try one for fewer") from exc
    log.warning("%s: %s; starting again with --batch-size %d", source, str(exc), half)  # a record may be kept
    resources.limit_batch(half)


def forget(exc: BaseException) -> None:
    """Frees the GPU memory of a failed attempt.

    The exception's traceback holds the attempt's frames, and these hold all its tensors. Clearing the frames breaks
    that; without it the next attempt would find the memory still taken.
    """
    chain: BaseException | None = exc
    while chain is not None:
        traceback.clear_frames(chain.__traceback__)
        chain = chain.__cause__ or chain.__context__
    gc.collect()
    release_cached_memory()
