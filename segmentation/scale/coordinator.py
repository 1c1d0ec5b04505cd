"""Runs of videos on workers: what `Segmenter` is on one process, `Workers` is on several."""

from __future__ import annotations

import logging
import os
import queue
import re
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, Unpack

from segmentation.errors import BackendError, ConfigError, SegmentationError, Stopped, check_keywords
from segmentation.frames import VideoInfo
from segmentation.frames.byte_source import is_fifo
from segmentation.frames.source import Input, Source, is_url
from segmentation.media.opening.probe import probe
from segmentation.media.output_stream import Output, OutputStream, as_target
from segmentation.models.model import load_model
from segmentation.options.access import access_of
from segmentation.options.config import Config
from segmentation.options.keywords import Options, RunOptions
from segmentation.pipeline.output_paths import check_names, check_streams, default_output
from segmentation.pipeline.report import Report
from segmentation.pipeline.request import Progress
from segmentation.pipeline.stream_status import StreamBoard
from segmentation.scale.dispatcher import Dispatcher, Video
from segmentation.scale.join import Joiner, NoPieces, for_pieces
from segmentation.scale.local import LocalWorkers
from segmentation.scale.piece_folder import PieceFolder
from segmentation.scale.plan import VideoPlan, plan_video
from segmentation.scale.protocol import Done, Ended, PieceTask, RunTask, WorkerPool
from segmentation.scale.storage import StorageLost
from segmentation.sessions.workers_status import WorkersStatus
from segmentation.system.atomic_file import PendingFile
from segmentation.system.installation import install

log = logging.getLogger(__name__)

_POLL = 0.1  # seconds

Result = TypeVar("Result")


class Workers:
    """Segments videos on several processes, one after the other or several at a time from several threads.

    Each video is cut at keyframes into pieces, which workers make. All numbers of workers write the same packets,
    results and masks. Use as a context manager: leaving it ends the workers.

        with Workers("local:2", effect="blur:40") as workers:
            workers.run("long.mp4")
    """

    def __init__(
        self, workers: str = "auto", config: Config | None = None, *, exact: bool = False, **options: Unpack[Options]
    ) -> None:
        """`workers` is `local:N` for N processes of this machine, `auto` for one a GPU, or `ray:ADDRESS` for those of a
        cluster, with `ray` alone for one of this machine.

        `exact` leaves out workers whose libraries or devices are others than the first one's, so that they may make
        other packets. Options are those of `Segmenter`. Raises `ConfigError` or `BackendError`.
        """
        check_keywords(options, Options.__annotations__, "Workers()")
        self.config = replace(config or Config(), **options)
        if callable(self.config.model):
            raise ConfigError(f"workers {workers}: the {self.config.model_name} can't be sent to workers; name a file")
        if self.config.trace is not None:
            raise ConfigError(f"trace {self.config.trace}: is of one process; leave out --trace, or --workers")
        self.streams = StreamBoard()  # has none: live sources are refused
        self._recurrent: bool | None = None
        self._lock = threading.Lock()
        self._left: dict[Path, PieceFolder] = {}  # of runs that failed or were stopped
        self._exact = exact
        pool = _pool(workers, self.config)
        self.size = len(pool.names)  # workers that there are when all is well
        self._dispatcher = Dispatcher(pool, exact=exact)

    def status(self) -> WorkersStatus:
        """Returns the figures of this moment: of each worker, and of the videos under way."""
        return self._dispatcher.status()

    def about(self) -> str:
        """Returns a few words on the workers, for a progress bar."""
        return self._dispatcher.about()

    def run(
        self,
        input: Input,
        output: Output | OutputStream | None = None,
        *,
        stop: threading.Event | None = None,
        progress: Progress | None = None,
        **options: Unpack[RunOptions],
    ) -> Report:
        """Segments one file or address, see `Segmenter.run`.

        Setting `stop` ends the run with an error, as does an exception of `progress`; complete pieces stay in
        `.<output>.pieces/`, and the next run with the same options goes on there. So it does after this process was
        killed.
        """
        check_keywords(options, RunOptions.__annotations__, "run()", session=Options.__annotations__)
        config, stop = replace(self.config, **options), stop or threading.Event()
        source, target = _files(input, output, config)
        begin = time.perf_counter()
        planned = self._plan(source, target, config)
        if planned is None:
            report = self._run_whole(source, target, options, stop, progress)
        else:
            report = self._run_pieces(*planned, target, config, stop, progress)
        seconds = time.perf_counter() - begin
        report = replace(report, input=source.text, output=str(target))  # as they were given
        return replace(report, seconds=round(seconds, 3), fps=round(report.frames / seconds, 2))

    def close(self) -> None:
        """Ends the workers, without a wait for processes of this machine that are idle. No run may be under way."""
        self._dispatcher.close()
        for folder in self._left.values():  # a worker that was still at work may have begun a piece since
            with suppress(SegmentationError, OSError):
                folder.lock()
            folder.leave()

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _plan(self, source: Source, target: Path, config: Config) -> tuple[VideoPlan, VideoInfo] | None:
        """Returns the plan of a video that is made of pieces, and what describes the video.

        `None` for what a worker makes in an ordinary run.
        """
        if source.is_pattern:
            return None
        info = probe(source, access_of(config))
        try:
            pieces = for_pieces(config, info, target)
        except NoPieces as exc:
            log.warning("%s: is not cut, since %s; one worker does all", source.text, exc)
            return None
        plan = plan_video(info, target, pieces, recurrent=self._is_recurrent(config))
        if plan.uncut:
            log.warning("%s: is not cut, since %s; one worker does all", source.text, plan.uncut)
        return plan, info

    def _is_recurrent(self, config: Config) -> bool:
        with self._lock:
            if self._recurrent is None:
                self._recurrent = config.masks is None and load_model(self.config).form.recurrent
            return self._recurrent

    def _run_pieces(
        self,
        plan: VideoPlan,
        info: VideoInfo,
        target: Path,
        config: Config,
        stop: threading.Event,
        progress: Progress | None,
    ) -> Report:
        PendingFile(target, overwrite=config.overwrite).check("-o")
        folder = PieceFolder.beside(target)
        try:
            plan = folder.begin(plan)
            frames = {number: piece.frames for number, piece in enumerate(plan.pieces)}
            task = PieceTask(video=str(target.absolute()), plan=plan, folder=str(folder.path))
            video = Video(task, plan.frames, frames)

            def attempt() -> Joiner:
                folder.lock()
                joiner = Joiner(plan, target, info, overwrite=config.overwrite, exact=self._exact)
                with ExitStack() as opening:
                    opening.enter_context(joiner)
                    self._join(video, plan, folder, joiner, stop, progress)
                    finished.push(opening.pop_all())
                return joiner

            with ExitStack() as finished:
                joiner = _patiently(video, stop, attempt)
                folder.remove()
                return replace(joiner.report(), workers=video.labor.rates, pieces=len(plan.pieces), redone=video.redone)
        except BaseException:
            self._left[folder.path] = folder
            raise
        finally:
            folder.leave()

    def _join(
        self,
        video: Video,
        plan: VideoPlan,
        folder: PieceFolder,
        joiner: Joiner,
        stop: threading.Event,
        progress: Progress | None,
    ) -> None:
        """Joins the pieces that are there, and the others as workers make them."""
        done = folder.done(plan)
        if done:
            log.warning("%s: goes on with %d of %d pieces that are there", plan.source, len(done), len(plan.pieces))
        video.begin(sum(video.pieces[number] for number in done))
        with self._dispatcher.under_way(video, done):
            for number in range(len(plan.pieces)):
                while number not in done:
                    if stop.is_set():
                        kept = " before a piece was complete"
                        if folder.holds_pieces():
                            kept = f"; its complete pieces are in {folder.path}, and the same command goes on"
                        raise Stopped(f"{video.source}: stopped{kept}")
                    event = self._next(video, progress)
                    done |= {event.piece} if isinstance(event, Done) else set()
                with folder.piece(plan, number) as piece:
                    joiner.add(piece)
        joiner.finish()

    def _run_whole(
        self, source: Source, target: Path, options: RunOptions, stop: threading.Event, progress: Progress | None
    ) -> Report:
        """Has one worker make an ordinary run."""
        place = source.text if source.is_url else os.path.abspath(source.text)  # a worker may be in another folder
        arguments = {"input": place, "output": target.absolute(), **options}
        task = RunTask(video=str(target.absolute()), run=arguments)
        video = Video(task, 0, {0: 0})
        return _patiently(video, stop, lambda: self._whole(video, stop, progress))

    def _whole(self, video: Video, stop: threading.Event, progress: Progress | None) -> Report:
        """Makes an attempt at an ordinary run."""
        video.begin(0)
        with self._dispatcher.under_way(video, set()):
            while True:
                event = self._next(video, progress)
                if isinstance(event, Ended) and event.report is not None:
                    return replace(event.report, workers=video.labor.rates, pieces=1, redone=video.redone)
                if stop.is_set() and not self._dispatcher.stop_workers(video) and video.arrived.empty():
                    raise Stopped(f"{video.source}: stopped; nothing was written")

    def _next(self, video: Video, progress: Progress | None) -> Any:
        """Returns what has arrived of a video, `None` if nothing has for a while. Raises the error of its failure."""
        try:
            event = video.arrived.get(timeout=_POLL)
        except queue.Empty:
            event = None
        if isinstance(event, BaseException):
            raise event
        if progress is not None:
            progress(video.done, video.frames)
        return event


def _patiently(video: Video, stop: threading.Event, attempt: Callable[[], Result]) -> Result:
    """Returns what an attempt returns. When a share is lost meanwhile, there is another one once it is back."""
    share = video.task.share
    while True:
        try:
            with share.errors_told_apart():
                return attempt()
        except StorageLost as exc:
            log.warning("%s; goes on when it is back", exc)
        share.wait(stop)


def _pool(workers: str, config: Config) -> WorkerPool:
    """Returns the workers that an option names. Raises `ConfigError` or `BackendError`."""
    if not hasattr(os, "memfd_create"):
        raise BackendError(f"workers {workers}: need Linux, where two processes share memory; leave out --workers")
    if workers == "auto":
        return LocalWorkers(None, config)
    if found := re.fullmatch(r"local:([1-9]\d{0,3})", workers):
        return LocalWorkers(int(found[1]), config)
    if workers == "ray" or workers.startswith("ray:"):
        try:
            from segmentation.scale.ray_workers import RayWorkers
        except ModuleNotFoundError as exc:
            raise BackendError(f"workers {workers}: the package {exc.name} is not installed; {install('ray')}") from exc
        return RayWorkers(workers.partition(":")[2] or None, config)
    raise ConfigError(f"workers {workers!r}: write local:N for N processes of this machine, auto, or ray[:ADDRESS]")


def _files(input: Input, output: Output | OutputStream | None, config: Config) -> tuple[Source, Path]:
    """Returns the input and the output. Raises `ConfigError` for what workers, other processes, can't have."""
    for name, given in (("input", input), ("output", output), ("results", config.results)):
        is_file = given is None or isinstance(given, str | Path)
        posts = name == "results" and is_url(str(given))
        if not is_file or posts or (given is not None and is_fifo(str(given))):
            given = given if isinstance(given, str | Path) else f"of type {type(given).__name__}"
            raise ConfigError(f"{name} {given}: workers read and write files; name one, or leave out --workers")
    if not config.video:
        raise ConfigError("no video: workers make videos; leave out --workers, or --no-video")
    source = Source.parse(str(input))
    if source.is_live:
        raise ConfigError(f"{source.label}: workers take files; leave out --workers for a live source")
    target = as_target(default_output(source, config) if output is None else output, config)
    check_names(source, target, config)
    check_streams(source, target, config)
    if not isinstance(target, Path):
        raise ConfigError(f"output {target}: workers write files; name one, or leave out --workers")
    return source, target
