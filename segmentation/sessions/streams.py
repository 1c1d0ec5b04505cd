"""Live sources that come and go while others run, on one session."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal, Unpack

from segmentation.errors import ConfigError, SegmentationError, check_keywords, one_line, reported
from segmentation.frames.source import Source, named
from segmentation.media.output_stream import Output
from segmentation.options.config import Config
from segmentation.options.keywords import Options, RunOptions
from segmentation.pipeline.report import Report
from segmentation.pipeline.stream_status import StreamStatus
from segmentation.sessions.input_threads import InputThreads
from segmentation.sessions.processes import session
from segmentation.sessions.status_server import Control, StatusServer
from segmentation.system.closing import Closing

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """A change of one stream.

    `kind` is "started" (the first frames are through), "ended" with the run's `report`, or "failed" with the `error`.
    """

    name: str
    kind: Literal["started", "ended", "failed"]
    report: Report | None = None
    error: Exception | None = None


class Streams(Closing):
    """Runs live sources, each on a thread of its own. One that fails leaves the others as they are.

    The network and all else that outlives a run is made once, see `Segmenter`. Leaving the context ends all streams,
    with complete files.

        with Streams(cut_every=600) as streams:
            streams.add("hall", "rtsp://camera/stream", "rec/{name}-%Y%m%d-%H%M%S.mkv")
            for event in streams.events():
                print(event.name, event.kind, event.error or "")
    """

    def __init__(self, config: Config | None = None, *, processes: int = 1, **options: Unpack[Options]) -> None:
        """Options are those of `Segmenter`. With several `processes` each has a session, and a share of the streams.
        On a GPU take one for each four or five cameras of 1080p. Raises `ConfigError`.
        """
        self._segmenter = session(processes, config, **options)
        self._threads: InputThreads[StreamEvent] = InputThreads()
        self._adding = threading.Lock()
        self._servers = ExitStack()
        self.report: dict[str, Report] = {}  # of each name, that of the run that has ended last

    def add(self, name: str, address: str, output: Output | None = None, **options: Unpack[RunOptions]) -> None:
        """Begins a stream, and returns at once. `output` and options are those of `Segmenter.run`.

        Raises `ConfigError` for a name that is taken or is none, and for an address that is no live source's, and
        `SegmentationError` where no thread can be started. Whatever else is wrong is an event.
        """
        check_keywords(options, RunOptions.__annotations__, "add()", session=Options.__annotations__)
        source = named(name, address)
        with self._adding:
            if name in self.names:
                raise ConfigError(f"{name}: is under way already; remove it first, or give another name")
            monitor = self._segmenter.streams.begin(source)
            try:
                self._threads.begin(source, lambda stop: self._run(source, output, stop, options))
            except RuntimeError as exc:
                monitor.failed(exc)
                raise reported(exc, name) from exc

    def remove(self, name: str) -> None:
        """Ends a stream with complete files, and waits for that. Raises `ConfigError` if there is no such stream."""
        for stream in self._threads.named(name):
            stream.stop.set()
            stream.thread.join()

    @property
    def names(self) -> list[str]:
        """Returns the names of the streams that are under way."""
        return [stream.source.name for stream in self._threads.under_way]

    def events(self) -> Iterator[StreamEvent]:
        """Yields what happens, and what has happened since the last call, until no stream is under way."""
        while len(self._threads):
            if (event := self._threads.next()) is not None:
                yield event

    def status(self) -> list[StreamStatus]:
        """Returns the figures of all streams at this moment, also of those that have ended."""
        return [monitor.status() for monitor in self._segmenter.streams.monitors]

    def serve(self, address: str, output: Output | None = None) -> str:
        """Serves figures and small pictures on `HOST:PORT`, or on `:PORT` for this machine alone, until `close`.

        Returns the URL of the page. Whoever has the token in the environment variable `SEGMENTATION_STATUS_TOKEN` may
        add streams, which write `output` as in `add`, and remove streams. Raises `ConfigError`.
        """
        control = Control(add=lambda name, address: self.add(name, address, output), remove=self.remove)
        server = StatusServer(address, self._segmenter.streams, control)
        return self._servers.enter_context(server).url

    def close(self) -> None:
        """Ends all streams with complete files, and frees the session's resources."""
        self._servers.close()
        for stream in self._threads.stop():
            stream.thread.join()
        self._segmenter.close()

    def _run(self, source: Source, output: Output | None, stop: threading.Event, options: RunOptions) -> StreamEvent:
        """Runs one stream to its end, on its thread."""
        name, started = source.name, False

        def advance(done: int, expected: int) -> None:
            nonlocal started
            if not started:
                started = True
                self._threads.put(StreamEvent(name=name, kind="started"))

        try:
            report = self._segmenter.run(source.text, output, stop=stop, progress=advance, **options)
        except (SegmentationError, OSError) as exc:
            log.warning("%s", exc if isinstance(exc, SegmentationError) else f"{name}: {one_line(exc)}")
            return StreamEvent(name=name, kind="failed", error=exc)
        except Exception as exc:  # a bug, which is to be seen, and is to end no other stream
            log.exception("%s: its run has failed", name)
            return StreamEvent(name=name, kind="failed", error=exc)
        self.report[name] = report
        return StreamEvent(name=name, kind="ended", report=report)
