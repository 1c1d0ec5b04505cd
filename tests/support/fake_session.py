"""A session that segments nothing, for tests of the command line."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from segmentation import Config, Report


class FakeSegmenter:
    """Stands for a session: records its runs, and does what a test asks for in each."""

    made: "list[FakeSegmenter]"
    during: Callable[[threading.Event], None]

    def __init__(self, config: Config) -> None:
        self.config = config
        self.runs: list[dict[str, Any]] = []
        self.closed = False
        self.made.append(self)

    def close(self) -> None:
        self.closed = True

    def run(
        self,
        source: str,
        target: Path,
        *,
        stop: threading.Event,
        progress: Callable[[int, int], None],
        **options: Any,
    ) -> Report:
        """Writes files of one byte, for each output."""
        self.runs.append({"source": source, **options})
        type(self).during(stop)
        progress(1, 2)
        for path in (target, *(path for _, path in options.get("also", ()))):
            Path(path).write_bytes(b"v")
        return Report(
            input=source,
            output=str(target),
            also=(),
            frames=1,
            damaged=0,
            inferred=1,
            found=1,
            received=1,
            complete=not stop.is_set(),
            seconds=1.0,
            fps=1.0,
            plan={},
            stages={},
        )
