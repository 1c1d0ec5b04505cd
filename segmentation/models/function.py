"""A Python function as a network: `model=lambda pictures: ...`."""

import threading
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segmentation.errors import ModelError
from segmentation.frames.host_array import on_host
from segmentation.options.keywords import Network


class FunctionNetwork:
    """A function that is called by one thread at a time."""

    def __init__(self, function: Network, name: str | Path) -> None:
        """`name` begins the message of a fault."""
        self._function, self._name = function, name
        self._lock = threading.Lock()

    def __call__(self, pictures: NDArray[np.float32]) -> NDArray[np.float32]:
        """Calls the function with pictures (N, 3, H, W), and returns its scores as a new array (N, C, h, w) float32.

        The function returns (N, h, w) or (N, C, h, w), as an array or a tensor. What it raises is passed on. Raises
        `ModelError` if it returns anything else.
        """
        with self._lock:
            found = self._function(pictures)
            try:
                returned = on_host(found)
            except TypeError as exc:
                raise ModelError(f"{self._name}: returned no scores: {exc}") from exc
            scores = returned[:, None] if returned.ndim == 3 else returned
            count = len(pictures)
            if scores.ndim != 4 or len(scores) != count or not scores.size or scores.dtype.kind not in "fiub":
                given = f"{returned.shape} {returned.dtype} for {count} pictures"
                raise ModelError(f"{self._name}: returned {given}; ({count}, h, w) or ({count}, C, h, w) is needed")
            with np.errstate(over="ignore"):  # infinite scores are refused
                scores = np.array(scores, np.float32)  # the function may write to its own array again
        if not np.isfinite(scores).all():
            raise ModelError(f"{self._name}: returned scores that are infinite or no numbers")
        return scores
