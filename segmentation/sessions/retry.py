"""A second attempt with half the batch, where the GPU's memory was full."""

import gc
import logging
import traceback
from contextlib import suppress
from pathlib import Path

from segmentation.errors import DeviceMemoryError, causes
from segmentation.models.model import load_model
from segmentation.options.config import Config
from segmentation.pipeline.resources import Resources, release_cached_memory

_PACKAGE = str(Path(__file__).parents[1])

log = logging.getLogger(__name__)


def halve_batch(resources: Resources, config: Config, source: str, exc: DeviceMemoryError) -> None:
    """Limits the batch for the next attempt. Raises `DeviceMemoryError` where the batch can't be smaller."""
    half = resources.batch_size(config, None, on_gpu=True, live=False) // 2  # a live source does not begin again
    if not half:
        raise exc
    if config.masks is None and (fixed := load_model(config).batch) is not None:
        raise DeviceMemoryError(f"{exc}; {config.model} takes {fixed} frames at a time, try one for fewer") from exc
    log.warning("%s: %s; starting again with --batch-size %d", source, str(exc), half)  # a record may be kept
    resources.limit_batch(half)
    gc.collect()
    release_cached_memory()


def forget(exc: BaseException) -> None:
    """Clears this package's frames in the traceback of a failed run.

    The exception's traceback holds the run's frames, and these hold its pictures and tensors. Without this their memory
    stays taken while the caller keeps the exception, or until the garbage collector finds the cycle.
    """
    for one in causes(exc):
        for frame, _ in traceback.walk_tb(one.__traceback__):
            if frame.f_code.co_filename.startswith(_PACKAGE):
                with suppress(RuntimeError):  # it is still being executed
                    frame.clear()
