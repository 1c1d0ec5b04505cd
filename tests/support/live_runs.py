"""Runs of live sources on threads of their own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segmentation import Report, Segmenter


def keep(batch: NDArray[np.float32]) -> NDArray[np.float32]:
    """A network that keeps everything."""
    return np.ones((len(batch), 32, 32), np.float32)


@contextmanager
def running(segmenter: Segmenter, source: str, target: str | Path, **options: Any) -> Iterator[list[Report]]:
    """A run while the context lasts. Its report is in the list after that."""
    stop, reports = threading.Event(), []

    def run() -> None:
        reports.append(segmenter.run(source, target, stop=stop, **options))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield reports
    finally:
        stop.set()
        thread.join()
