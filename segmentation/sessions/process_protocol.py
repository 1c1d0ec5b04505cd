"""Messages between `processes` and `process_worker`. Runs have numbers."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from segmentation.frames.latency import Histogram
from segmentation.frames.source import Source
from segmentation.media.output_stream import OutputAddress
from segmentation.options.config import Config
from segmentation.pipeline.report import Report
from segmentation.pipeline.stream_status import StreamStatus


class Start(NamedTuple):
    """To the process, first: the session's options, the level of its log, and whether it sees a GPU of its own."""

    config: Config
    level: int
    on_gpu: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """To the process: one more run."""

    number: int
    source: Source
    target: Path | OutputAddress | None
    config: Config


class StopRun(NamedTuple):
    """To the process: a run is to end with complete files."""

    number: int


class Cancel(NamedTuple):
    """To the process: nobody waits for a run any more. One of a file ends without outputs, others as at `StopRun`."""

    number: int


class ThumbnailRequest(NamedTuple):
    """To the process: `Picture` is wanted within so many seconds."""

    number: int
    patience: float


class Picture(NamedTuple):
    """From the process: a small JPEG of a run's output, or that there is none."""

    number: int
    jpeg: bytes | None


class RunAdvanced(NamedTuple):
    """From the process: so many frames of a run are done, of so many expected."""

    number: int
    done: int
    expected: int


class StatusUpdate(NamedTuple):
    """From the process, now and then: a run's figures."""

    number: int
    status: StreamStatus
    late: Histogram


class RunEnded(NamedTuple):
    """From the process: a run is over, with a report or an error."""

    number: int
    report: Report | None
    error: BaseException | None


class Logged(NamedTuple):
    """From the process: a line for the log."""

    record: logging.LogRecord
