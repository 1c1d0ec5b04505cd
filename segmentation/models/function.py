"""A Python function as a network: `model=lambda batch: ...`."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segmentation.errors import ModelError
from segmentation.host_array import on_host
from segmentation.options import Network


def scores_of(function: Network, pictures: NDArray[np.float32], name: str | Path) -> NDArray[np.float32]:
    """Calls a function with pictures (N, 3, H, W) and returns its scores as (N, C, h, w) float32.

    The function returns (N, h, w) or (N, C, h, w), as an array or a tensor. What it raises is passed on. Raises
    `ModelError`, which begins with `name`, if it returns anything else.
    """
    found = function(pictures)
    try:
        returned = on_host(found)
    except TypeError as exc:
        raise ModelError(f"{name}: returned no scores: {exc}") from exc
    scores = returned[:, None] if returned.ndim == 3 else returned
    count = len(pictures)
    if scores.ndim != 4 or len(scores) != count or not scores.size or scores.dtype.kind not in "fiub":
        shape = f"{count}, h, w) or ({count}, C, h, w"
        raise ModelError(
            f"{name}: returned {returned.shape} {returned.dtype} for {count} pictures; ({shape}) is needed"
        )
    scores = np.asarray(scores, np.float32)
    if not np.isfinite(scores).all():
        raise ModelError(f"{name}: returned scores that are infinite or no numbers")
    return scores
