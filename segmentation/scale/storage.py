"""Network shares that vanish: recognizes such an error, and waits for a share's return."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from segmentation.errors import SegmentationError, one_line
from segmentation.frames.source import Source

PATIENCE = 60.0  # seconds
_POLL = 0.2  # seconds


class StorageLost(SegmentationError):
    """A file or a folder that was there can't be reached any more, as when a network share is gone."""


class SharedStorage:
    """The input of a run, and the folder that it writes to, if there is one. Both are there when the run begins."""

    def __init__(self, source: str, folder: str | Path | None = None) -> None:
        parsed, path = Source.parse(source), Path(source)
        self._paths = [] if parsed.is_url else [path.parent if parsed.is_pattern else path]
        self._paths += [] if folder is None else [Path(folder)]

    @contextmanager
    def errors_told_apart(self) -> Iterator[None]:
        """Raises `StorageLost` in the place of an error that comes while something can't be reached."""
        try:
            yield
        except (SegmentationError, OSError) as exc:
            fault = self.fault()
            if fault and not isinstance(exc, StorageLost):
                raise StorageLost(fault) from exc
            raise

    def fault(self) -> str:
        """Returns what can't be reached, an empty string if all can."""
        for path in self._paths:
            try:
                _reach(path)
            except OSError as exc:
                return f"{path}: can't be reached any more ({one_line(exc)})"
        return ""

    def wait(self, stop: threading.Event) -> None:
        """Waits until all can be reached. Raises `StorageLost` after `PATIENCE` seconds, and when `stop` is set."""
        deadline = time.monotonic() + PATIENCE
        while fault := self.fault():
            if time.monotonic() > deadline or stop.wait(_POLL):
                how = "; stopped" if stop.is_set() else f", for {PATIENCE:g} s"
                raise StorageLost(f"{fault}{how}; when it is back, the same command goes on")


def _reach(path: Path) -> None:
    """Reads a little, since what the system says of a file without reading may be old. Raises `OSError`."""
    if path.is_dir():
        os.listdir(path)
    else:
        with path.open("rb") as file:
            file.read(1)
