"""The arguments of one run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from segmentation.frames.source import Source
from segmentation.media.output_stream import Target
from segmentation.options.config import Config

if TYPE_CHECKING:
    from segmentation.pipeline.stream_status import StreamMonitor

Progress = Callable[[int, int], None]  # (frames done, frames expected or 0)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The arguments of one run."""

    source: Source
    target: Target | None  # `None` without a video
    config: Config
    stop: threading.Event  # ends the run early
    progress: Progress | None
    monitor: StreamMonitor | None = None  # of a live source
