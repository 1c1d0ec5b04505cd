"""One video, one call."""

import threading
from dataclasses import replace
from typing import Unpack

from segmentation.errors import check_keywords
from segmentation.frames.source import Input
from segmentation.media.output_stream import Output
from segmentation.options.config import Config
from segmentation.options.keywords import Options
from segmentation.pipeline.report import Report
from segmentation.pipeline.request import Progress
from segmentation.sessions.session import Segmenter


def segment(
    input: Input,
    output: Output | None = None,
    config: Config | None = None,
    *,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
    **options: Unpack[Options],
) -> Report:
    """Segments one video and writes the result: a `Segmenter` of one run.

    Options are the fields of `Config`, given as one object or as keywords; keywords win. See `Segmenter.run` for the
    arguments and the exceptions.
    """
    check_keywords(options, Options.__annotations__, "segment()")
    with Segmenter(replace(config or Config(), **options)) as segmenter:
        return segmenter.run(input, output, stop=stop, progress=progress)
